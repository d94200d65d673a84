#!/bin/sh
# Takes the module of a version from DKMS for a kernel, so that it is built and signed again. Arguments: the version, the kernel.
for settings in /usr/src/nvidia*-"$1"/dkms.conf; do
  [ -e "$settings" ] || continue
  folder=$(basename "$(dirname "$settings")")
  name=${folder%-"$1"}
  [ ! -e "/var/lib/dkms/$name/$1/$2" ] || dkms remove -m "$name" -v "$1" -k "$2"
done
