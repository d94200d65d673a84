#!/bin/sh
# One line about the build in folder $1 by unit $2. Exit code: 0 finished, 1 failed or gone, 75 (EX_TEMPFAIL) at work.
cd "$1" 2>/dev/null || { echo "the build folder $1 is gone"; exit 1; }
case $(cat result 2>/dev/null) in
  ok) echo "built"; exit 0 ;;
  ?*) cat result; exit 1 ;;
esac
# Asked after reading the result, the unit could have ended in between: look again.
if ! systemctl is-active --quiet "$2"; then
  [ "$(cat result 2>/dev/null)" = ok ] && { echo "built"; exit 0; }
  [ -s result ] && { cat result; exit 1; }
  echo "the build was stopped from outside while $(cat stage 2>/dev/null)"
  exit 1
fi
stage=$(cat stage 2>/dev/null)
if [ "$stage" = compiling ]; then
  done=$(grep -cE '^(CC|X86ASM|AS|NVCC|HOSTCC)	' make.log 2>/dev/null)
  echo "compiled ${done:-0} of $(cat total) files"
else
  echo "${stage:-starting}"
fi
exit 75
