#!/bin/sh
# On the controller: one trusted host builds, others that need the same build wait for it.
#   claim.sh take CLAIM PID HOST   exit code 0: HOST builds; 75 (EX_TEMPFAIL): another run's host does, whose name is said
#   claim.sh wait CLAIM PID HOST   the same without claiming anything: nobody waits for a host whose build is not shared
#   claim.sh release CLAIM PID HOST
# PID is the run's own process: a claim of a run that died counts for nothing. Hosts of one run do not wait for each
# other, because Ansible lets no host of a run go on before all have ended the task.
action=$1 claim=$2 pid=$3 host=$4
case $action in
  release)
    [ "$(cat "$claim/owner" 2>/dev/null)" = "$pid $host" ] && rm -r "$claim"
    exit 0
    ;;
  wait)
    [ -d "$claim" ] || exit 0
    ;;
  *)
    if mkdir "$claim" 2>/dev/null; then
      echo "$pid $host" >"$claim/owner"
      exit 0
    fi
    ;;
esac
read -r owner other <"$claim/owner" || exit 75
[ "$owner" = "$pid" ] && exit 0
if kill -0 "$owner" 2>/dev/null; then
  echo "waiting for $other, where the same FFmpeg is being built"
  exit 75
fi
[ "$action" = wait ] && exit 0
rm -r "$claim"
exec sh "$0" "$@"
