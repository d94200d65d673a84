#!/bin/sh
# Handles one version of NVIDIA's module, whose source is on the disk. Prints DKMS's messages.
# build VERSION KERNEL  builds it for a kernel, over one that DKMS does not know, and makes DKMS know it first: where the open and the
#                       proprietary package have one name in DKMS, the old package takes the new one's module with it when it goes
# again VERSION KERNEL  takes the module from DKMS for a kernel, so that it is built and signed again
for settings in /usr/src/nvidia*-"$2"/dkms.conf; do
  [ -e "$settings" ] || continue
  folder=$(basename "$(dirname "$settings")")
  name=${folder%-"$2"}
  case $1 in
    build)
      [ -e "/var/lib/dkms/$name/$2/source" ] || dkms add -m "$name" -v "$2"
      dkms install --force -m "$name" -v "$2" -k "$3"
      ;;
    again) [ ! -e "/var/lib/dkms/$name/$2/$3" ] || dkms remove -m "$name" -v "$2" -k "$3" ;;
  esac
done
