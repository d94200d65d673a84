#!/bin/sh
# Reads, changes nothing. Arguments: the certificate for which DKMS signs the driver ("" for its own); then PATH=MIB, the
# free space wanted below a path. Prints one JSON object.
# Needs only what a minimal image has: sh, cat, df, awk (no lspci: some images lack it).
certificate=$1
shift
gpus=""
for device in /sys/bus/pci/devices/*; do
  [ "$(cat "$device/vendor" 2>/dev/null)" = 0x10de ] || continue
  case "$(cat "$device/class" 2>/dev/null)" in
    0x03*) gpus="$gpus${gpus:+, }\"$(basename "$device") $(cat "$device/device")\"" ;;
  esac
done

# NVIDIA's .run installer leaves an uninstaller and a log; packages leave neither, or own the uninstaller.
runfile=""
for trace in /usr/bin/nvidia-uninstall /var/lib/nvidia/log; do
  [ -e "$trace" ] || continue
  dpkg-query -S "$trace" >/dev/null 2>&1 || rpm -qf "$trace" >/dev/null 2>&1 || runfile="$trace"
done

short=""
for wish in "$@"; do
  path=${wish%=*} wanted=${wish##*=}
  existing="$path"
  while [ ! -e "$existing" ]; do existing=$(dirname "$existing"); done
  free=$(df -Pm "$existing" | awk 'NR == 2 {print $4}')
  [ "$free" -ge "$wanted" ] || short="$short${short:+, }\"$path has $free MiB free, wanted $wanted MiB\""
done

# With Secure Boot the kernel refuses modules that are signed with a key it does not know; DKMS signs with its own.
secure_boot=false
for variable in /sys/firmware/efi/efivars/SecureBoot-*; do
  [ -r "$variable" ] && [ "$(od -An -tu1 -j4 -N1 "$variable" | tr -d ' ')" = 1 ] && secure_boot=true
done
# DKMS's own key, and the key that Ubuntu lets DKMS sign with.
for key in ${certificate:-/var/lib/dkms/mok.pub /var/lib/shim-signed/mok/MOK.der}; do
  if $secure_boot && LC_ALL=C mokutil --test-key "$key" 2>/dev/null | grep -q 'already enrolled'; then secure_boot=false; fi
done
[ -z "$certificate" ] && [ -e /proc/driver/nvidia/version ] && secure_boot=false

printf '{"gpus": [%s], "runfile": "%s", "short": [%s], "secure_boot": %s}\n' \
  "$gpus" "$runfile" "$short" "$secure_boot"
