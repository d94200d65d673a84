# Completion of gpuprep for fish:  gpuprep completion fish > ~/.config/fish/completions/gpuprep.fish
function __gpuprep_completion
    set -l tokens (commandline -opc)
    set -lx GPUPREP_COMP_WORDS (string join \n -- $tokens | string collect)
    set -lx GPUPREP_COMP_WORD (commandline -ct)
    set -lx _GPUPREP_COMPLETE fish_complete
    for line in ($tokens[1] 2>/dev/null)
        set -l parts (string split \t -- $line)
        switch $parts[1]
            case plain
                if test -n "$parts[3]"
                    printf '%s\t%s\n' $parts[2] $parts[3]
                else
                    printf '%s\n' $parts[2]
                end
            case '*'
                __fish_complete_path (commandline -ct)
        end
    end
end
complete --command gpuprep --no-files --keep-order --arguments '(__gpuprep_completion)'
