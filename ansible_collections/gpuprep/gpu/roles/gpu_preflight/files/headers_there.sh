#!/bin/sh
# Is a package of kernel headers installed, or do the repositories offer it? Prints its name if so. Argument: NAME-VERSION-RELEASE.ARCH.
rpm -q "$1" || dnf -q repoquery --available "$1"
