# Completion of gpuprep for bash 4.4 or newer. In ~/.bashrc:  eval "$(gpuprep completion bash)"
_gpuprep_completion() {
    local kind value
    COMPREPLY=()
    while IFS=$'\t' read -r kind value _; do
        case $kind in
            plain) COMPREPLY+=("$value") ;;
            file) compopt -o default ;;
            dir) compopt -o dirnames ;;
        esac
        case $value in
            */ | *,) compopt -o nospace ;;
        esac
    done < <(GPUPREP_COMP_LINE="${COMP_LINE:0:COMP_POINT}" GPUPREP_COMP_BREAKS="$COMP_WORDBREAKS" \
        _GPUPREP_COMPLETE=bash_complete "$1" 2>/dev/null)
}
complete -o nosort -F _gpuprep_completion gpuprep
