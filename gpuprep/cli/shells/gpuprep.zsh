#compdef gpuprep
# Completion of gpuprep for zsh. In ~/.zshrc, after compinit:  eval "$(gpuprep completion zsh)"
_gpuprep() {
    local kind value help line
    local -a plain folders
    local -i files=0
    while IFS= read -r line; do
        IFS=$'\t' read -r kind value help <<<"$line"
        case $kind in
            plain)
                if [[ $value == */ ]]; then
                    folders+=("$value")
                else
                    plain+=("${value//:/\\:}:${help}")
                fi
                ;;
            *) files=1 ;;
        esac
    done < <(GPUPREP_COMP_WORDS="${(@F)${(@Q)words[1,CURRENT-1]}}" GPUPREP_COMP_WORD="${(Q)PREFIX}" \
        _GPUPREP_COMPLETE=zsh_complete "${(Q)words[1]}" 2>/dev/null)
    (( $#plain )) && _describe -V 'gpuprep' plain
    (( $#folders )) && compadd -S '' -a folders
    (( files )) && _files
    return 0
}
if [[ ${zsh_eval_context[-1]} == loadautofunc ]]; then
    _gpuprep "$@"
else
    compdef _gpuprep gpuprep
fi
