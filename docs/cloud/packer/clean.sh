#!/bin/sh
# Takes everything of the machine that an image was built on out of the image: its identity, keys, records and traces.
# The last step on the builder, as root; then stop the machine without a new login. docs/cloud.md explains it.
#
#   clean.sh [--user NAME]    cleans, then checks; --user also removes an account that only the builder had
#   clean.sh --check          changes nothing: lists what is left of the builder; exit code 1 if there is anything
#
# What stays, because it is the image's: packages, driver, CUDA, cuDNN, FFmpeg, agent, holds, /etc/gpuprep/tuning.json,
# and /etc/gpuprep/provenance.json, which says what is installed and names no machine.
set -eu
export LC_ALL=C PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin

# Removed with all that is below it. Patterns of the shell, one a line; no blanks in them.
remove() {
  # Who this machine is.
  cat <<'EOF'
/var/lib/dbus/machine-id
/etc/ssh/ssh_host_*
/var/lib/systemd/random-seed
/var/lib/systemd/credential.secret
/var/lib/urandom/random-seed
/boot/loader/random-seed
/boot/efi/loader/random-seed
/etc/nvme/hostid
/etc/nvme/hostnqn
/var/lib/dkms/mok.key
/var/lib/dkms/mok.pub
/var/lib/shim-signed/mok/MOK.*
EOF
  # Its network.
  cat <<'EOF'
/var/lib/dhcp/*
/var/lib/dhclient/*
/var/lib/dhcpcd/*
/var/lib/NetworkManager/*
/etc/netplan/50-cloud-init.yaml
/etc/network/interfaces.d/50-cloud-init*
/etc/systemd/network/*-cloud-init-*
/etc/NetworkManager/system-connections/cloud-init-*
/etc/udev/rules.d/70-persistent-net.rules
EOF
  # What gpuprep knows of it: the certified facts and the night check that compares with them, results, caches, and
  # what containers are told of its GPUs.
  cat <<'EOF'
/etc/gpuprep/drift.json
/etc/systemd/system/gpuprep-drift.service
/etc/systemd/system/gpuprep-drift.timer
/etc/systemd/system/gpuprep-driver-check.service
/etc/systemd/system/multi-user.target.wants/gpuprep-driver-check.service
/etc/systemd/system/timers.target.wants/gpuprep-drift.timer
/var/lib/gpuprep/*
/etc/cdi/nvidia.json
/etc/cdi/nvidia.yaml
EOF
  echo "$metrics/gpuprep.prom"
  # Its own first boot (docs/cloud/user-data.yaml): a new machine gets its own user data.
  cat <<'EOF'
/etc/gpuprep/first-boot*
/etc/systemd/system/gpuprep-first-boot.service
/etc/systemd/system/cloud-init.target.wants/gpuprep-first-boot.service
/usr/local/sbin/gpuprep-first-boot
/opt/gpuprep/controller
EOF
  # Who may log in, who did, and what they left.
  for home in $(homes); do
    for name in .ssh/authorized_keys* .ssh/known_hosts* .ssh/id_* .ssh/environment .*_history .lesshst .viminfo \
      .wget-hsts .netrc .pgpass .git-credentials .aws .azure .config/gcloud .config/gpuprep .docker/config.json .ansible \
      .cache .local/state/gpuprep .nv .cupy .sudo_as_admin_successful gpuprep*.whl; do
      echo "$home/$name"
    done
  done
  # Leftovers, and logs that are put aside.
  cat <<'EOF'
/tmp/*
/tmp/.[!.]*
/var/tmp/*
/var/tmp/.[!.]*
/var/crash/*
/var/lib/systemd/coredump/*
/var/lib/systemd/timers/stamp-*
/var/lib/systemd/linger/*
/var/lib/sudo/lectured/*
/var/lib/lastlog/*
/var/lib/wtmpdb/*
/var/lib/amazon/ssm/*
/var/mail/*
/var/spool/mail/*
/var/lib/cloud/instance
/var/lib/cloud/instances/*
/var/lib/cloud/seed/*
/var/lib/dkms/*/*/*/*/log/*
/var/log/journal/*
/var/log/installer/*
/var/log/*.gz
/var/log/*.[0-9]
/var/log/*.old
/var/log/*/*.gz
/var/log/*/*.[0-9]
EOF
}

# Emptied, because programs want the file to be there. An empty machine-id is filled at the next boot.
EMPTY='/etc/machine-id /etc/hostname'
logs() { find /var/log -xdev -type f ! -path '/var/log/journal/*' -size +0 "$@"; }

homes() {
  echo /root
  for home in /home/*; do [ ! -d "$home" ] || [ -L "$home" ] || echo "$home"; done
}

die() {
  echo "clean.sh: $1" >&2
  exit 2
}

public() { grep -o 'AAAA[A-Za-z0-9+/=]*' || true; }

# The words that only this machine has: wherever one of them stands on the disk, the builder is still there.
words() {
  {
    cat /etc/machine-id /run/machine-id 2>/dev/null || true
    sed -n 's/^GPU UUID:[[:space:]]*\(GPU-[0-9a-f-]*\)$/\1/p' /proc/driver/nvidia/gpus/*/information 2>/dev/null || true
    cat /sys/class/dmi/id/product_uuid 2>/dev/null || true
    for card in /sys/class/net/*; do [ ! -e "$card/device" ] || cat "$card/address"; done
    # Of keys the part that is no option, kind or comment.
    for home in $(homes); do cat "$home/.ssh/authorized_keys" 2>/dev/null || true; done | public
    cat /etc/ssh/ssh_host_*.pub 2>/dev/null | public
    # A short or general name stands in many a file.
    for name in $names; do printf '%s\n' "$name"; done | grep -v -x localhost || true
  } | grep -E '.{8,}' | sort -u
}

# Everything that is left of the builder, a line each. $1: the words, in lines.
left() {
  for path in $(remove); do
    if { [ -e "$path" ] || [ -L "$path" ]; } && on_disk "$path"; then echo "$path is there"; fi
  done
  for path in $EMPTY; do
    [ ! -s "$path" ] || echo "$path is not empty"
  done
  logs -printf '%p is not empty\n'
  if [ -n "$1" ]; then
    printf '%s\n' "$1" | grep -r -l -F -a -s --devices=skip -f - \
      /boot /etc /home /opt /root /srv /usr/local /var 2>/dev/null | while read -r path; do
      ! on_disk "$path" || echo "$path names the builder"
    done
  fi
  return 0
}

# Folders in memory (/tmp, /run) are in no image.
on_disk() {
  case $(stat -f -c %T "$(dirname "$1")" 2>/dev/null) in tmpfs | ramfs | proc | sysfs | '') return 1 ;; esac
}

clean() {
  if command -v cloud-init >/dev/null; then cloud-init clean --logs --seed
  elif ! ls /usr/bin/google_guest_agent* >/dev/null 2>&1; then
    die "there is neither cloud-init nor Google's guest agent: nothing would give a new machine its keys and its name"
  fi
  # What would write again what is removed here.
  systemctl stop gpuprep-drift.timer gpuprep-first-boot.service rsyslog.service syslog.socket apt-daily.timer \
    apt-daily-upgrade.timer 2>/dev/null || true
  journalctl --relinquish-var 2>/dev/null || true
  # Not the builder's, but old and large.
  if command -v apt-get >/dev/null; then apt-get clean && rm -rf /var/lib/apt/lists/*; fi
  if command -v dnf >/dev/null; then dnf -q clean all; fi
  for path in $(remove); do
    rm -rf --one-file-system -- "$path"
  done
  for path in $EMPTY; do
    : >"$path"
  done
  logs -exec truncate --size=0 -- {} +
  # Clouds write the machine's name into it at each boot. A line in which no other name is left goes, and that of
  # 127.0.1.1, which Debian keeps for the name of an earlier boot.
  hosts=$(awk -v full="${names% *}" -v short="${names#* }" '
    /^[[:space:]]*(#|$)/ { print; next }
    $1 == "127.0.1.1" { next }
    {
      line = $1; kept = 0; found = 0
      for (i = 2; i <= NF && $i !~ /^#/; i++)
        if (($i == full || $i == short) && $i != "localhost") found = 1
        else { line = line " " $i; kept = 1 }
      if (!found) print
      else if (kept) print line
    }' /etc/hosts)
  printf '%s\n' "$hosts" >/etc/hosts
  # open-iscsi makes a name of its own where this stands.
  if [ -e /etc/iscsi/initiatorname.iscsi ]; then echo GenerateName=yes >/etc/iscsi/initiatorname.iscsi; fi
  systemctl daemon-reload
  if [ -n "$user" ]; then userdel --force --remove "$user" 2>/dev/null || [ $? = 12 ] || die "user $user stays"; fi
}

check_only='' user=''
while [ $# -gt 0 ]; do
  case $1 in
    --check) check_only=yes ;;
    --user) user=${2:?--user needs a name} && shift ;;
    *) die "$1 is no option: --check, --user NAME" ;;
  esac
  shift
done
case $user in root | -* | *[!a-z0-9_-]*) die "user $user is not removed" ;; esac
for home in /home/*; do
  case $home in *[!A-Za-z0-9._/*-]*) die "the name of $home has letters that this script does not take: remove it first" ;; esac
done
[ "$(id -u)" = 0 ] || die "only root can do that: sudo sh clean.sh"

names="$(uname -n) $(uname -n | cut -d. -f1)"
metrics=$(sed -n 's/^ *"textfile_directory": "\(\/[^" ]*\)".*/\1/p' /etc/gpuprep/drift.json 2>/dev/null | head -n 1)
metrics=${metrics:-/var/lib/prometheus/node-exporter}
own=$(words)
[ -n "$check_only" ] || clean
found=$(left "$own")
if [ -n "$found" ]; then
  echo "left of the builder:"
  printf '%s\n' "$found"
  exit 1
fi
sync
echo "nothing is left of the builder"
