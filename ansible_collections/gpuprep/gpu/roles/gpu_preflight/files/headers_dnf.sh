#!/bin/sh
# Are the headers of a kernel installed ("present"), offered by the repositories ("available") or neither ("none")?
# Arguments: the running kernel, then the header packages wanted. First line: that word; then packages neither
# installed nor offered. Reads, changes nothing but dnf's cache.
running=$1
shift
offered() { [ -n "$(dnf -q repoquery --available "$1" 2>/dev/null)" ]; }
installed() { rpm -q "$1" >/dev/null 2>&1; }

# A kernel older than the newest installed one: the reboot before the driver's installation starts the newest.
newest=$(ls /boot/vmlinuz-* 2>/dev/null | grep -v rescue | sed 's,.*/vmlinuz-,,' | sort -V | tail -n 1)
following=$(echo "$1" | sed "s,$running,$newest,")
if [ -e "/lib/modules/$running/build/Makefile" ]; then echo present
elif offered "$1"; then echo available
elif [ -n "$newest" ] && [ "$newest" != "$running" ] && offered "$following"; then echo available
else echo none; fi
for package in "$@"; do installed "$package" || offered "$package" || echo "$package"; done
