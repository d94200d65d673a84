#!/bin/sh
# Makes DKMS know NVIDIA's module of a version whose source is on the disk. Argument: the version. Prints what it added.
# Where the open and the proprietary package have one name in DKMS, the old package takes the new one's module with it when it goes.
for settings in /usr/src/nvidia*-"$1"/dkms.conf; do
  [ -e "$settings" ] || continue
  folder=$(basename "$(dirname "$settings")")
  name=${folder%-"$1"}
  [ -e "/var/lib/dkms/$name/$1/source" ] || dkms add -m "$name" -v "$1"
done
