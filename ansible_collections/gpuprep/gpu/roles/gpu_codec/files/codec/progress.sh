#!/bin/sh
# One line about the build in folder $1 by unit $2. Exit code: 0 finished, 1 failed or gone, 75 (EX_TEMPFAIL) at work.
# Runs as root, and every file there is the build user's: a link could lead to a secret, a pipe would block, and a file
# may be of any length and hold anything.
LC_ALL=C
export LC_ALL
cd "$1" 2>/dev/null || { echo "the build folder $1 is gone"; exit 1; }
# Not echo, which would make control characters of \033.
say() { printf '%s\n' "$1"; }
# read_file NAME BLOCKS: the beginning of a plain file, in blocks of 4 KiB.
read_file() { dd "if=$1" iflag=nofollow,nonblock bs=4096 "count=$2" status=none 2>/dev/null; }
line_of() { read_file "$1" 1 | head -c 2000 | tr -c '[:print:]' ' ' | sed 's/ *$//'; }
ended() {
  result=$(line_of result)
  case $result in
    ok) echo "built"; exit 0 ;;
    ?*) say "$result"; exit 1 ;;
  esac
}
ended
# Asked after reading the result, the unit could have ended in between: look again.
if ! systemctl is-active --quiet "$2"; then
  ended
  say "the build was stopped from outside while $(line_of stage)"
  exit 1
fi
stage=$(line_of stage)
if [ "$stage" = compiling ]; then
  done=$(read_file make.log 4096 | grep -caE '^(CC|X86ASM|AS|NVCC|HOSTCC)	')
  say "compiled ${done:-0} of $(line_of total) files"
else
  say "${stage:-starting}"
fi
exit 75
