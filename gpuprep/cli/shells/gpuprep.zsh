#compdef gpuprep
# Completion of gpuprep for zsh. In ~/.zshrc, after compinit:  eval "$(gpuprep completion zsh)"
_gpuprep() {
    local kind value help line
    local -a plain helps kinds shown folders
    local -i files=0 width=0 place
    while IFS= read -r line; do
        IFS=$'\t' read -r kind value help <<<"$line"
        case $kind in
            plain)
                if [[ $value == */ ]]; then
                    folders+=("$value")
                else
                    plain+=("$value")
                    helps+=("$help")
                    (( $#value > width )) && width=$#value
                fi
                ;;
            *) files=1 ;;
        esac
    done < <(GPUPREP_COMP_WORDS="${(@F)${(@Q)words[1,CURRENT-1]}}" GPUPREP_COMP_WORD="${(Q)PREFIX}" \
        _GPUPREP_COMPLETE=zsh_complete "${(Q)words[1]}" 2>/dev/null)
    # In gpuprep's order (-V): _describe puts those with the same help into one row, the shortest last.
    kinds=("${(@u)helps}")
    if (( $#kinds > 1 )); then
        for (( place = 1; place <= $#plain; place++ )); do
            line="${(r:width:)plain[place]}  ${helps[place]:+-- $helps[place]}"
            shown+=("${line[1,COLUMNS-1]}")
        done
        compadd -V gpuprep -l -d shown -a plain
    elif (( $#plain )); then
        compadd -V gpuprep -a plain
    fi
    (( $#folders )) && compadd -S '' -a folders
    (( files )) && _files
    return 0
}
if [[ ${zsh_eval_context[-1]} == loadautofunc ]]; then
    _gpuprep "$@"
else
    compdef _gpuprep gpuprep
fi
