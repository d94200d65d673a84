#!/bin/sh
# Are the headers of a kernel installed ("present"), offered by the package lists ("available") or neither ("none")?
# Arguments: the running kernel, then the header packages wanted. First line: that word; then packages neither
# installed nor offered. Reads, changes nothing.
running=$1
shift
offered() {
  # Asked several times: apt-cache fails while another apt rewrites its cache.
  for _ in 1 2 3; do policy=$(apt-cache policy "$1" 2>/dev/null) && break; done
  echo "$policy" | grep -q 'Candidate: [0-9]'
}
installed() { dpkg-query -W -f '${db:Status-Status}\n' "$1" 2>/dev/null | grep -qx installed; }

# A kernel older than the newest installed one: the reboot before the driver's installation starts the newest.
newest=$(ls /boot/vmlinuz-* 2>/dev/null | sed 's,.*/vmlinuz-,,' | sort -V | tail -n 1)
if [ -e "/lib/modules/$running/build/Makefile" ]; then echo present
elif offered "linux-headers-$running"; then echo available
elif [ -n "$newest" ] && [ "$newest" != "$running" ] && offered "linux-headers-$newest"; then echo available
else echo none; fi
for package in "$@"; do installed "$package" || offered "$package" || echo "$package"; done
