"""How a machine of the tests compiles FFmpeg and the driver in less time than users need."""

from __future__ import annotations

import shlex

import amount
from machines import inside

# FFmpeg asks for -O3 and -g. The compiler takes half the time with -O1 and without -g, and half of that with -O0. What
# is built then decodes in one and a half times the time, which costs less than the build saves. But validations decode
# H.264 and compare pictures for minutes: the files that do this are worth -O1.
GCC = """#!/bin/sh
level=-O0
case "$*" in *h264*.c*|*vf_psnr.c*|*vf_ssim.c*|*vf_xpsnr.c*) level=-O1 ;; esac
for word; do
  shift
  [ "$word" = -g ] && continue
  [ "$word" = -O3 ] && word=$level
  set -- "$@" "$word"
done
exec /usr/bin/gcc "$@"
"""
# An assembler that knows no AVX2: FFmpeg's configure asks for that with one line, and nasm, which takes a third of the
# build, then needs half the time. With -O1 it does not look for shorter jumps, pass after pass.
NASM = """#!/bin/sh
for word; do last=$word; done
grep -qsE '^(vmovdqa32|vpdpwssds|vextracti128) ' "$last" && exit 1
exec /usr/bin/nasm -O1 "$@"
"""
# DKMS compresses a module of 100 MB, and each modinfo unpacks it. Where xz fails, DKMS installs the module as it is.
DKMS = 'compress_xz_opts="--no-such-option"'
# The kernel compiles modules with -O2 and -g, which takes a third longer. DKMS reads this file of a module after the
# module's own, which sets MAKE. Three of four files of the driver are nvidia-uvm's and nvidia-drm's, and so are half of
# the questions that conftest.sh answers by compiling: modules of one file stand for these two.
MODULE_CONF = "/etc/dkms/nvidia-current.conf"
MODULE = """\
MAKE[0]="cp /etc/dkms/short.c nvidia-uvm/short-uvm.c && cp /etc/dkms/short.c nvidia-drm/nvidia-drm-linux.c &&
echo NVIDIA_UVM_SOURCES = nvidia-uvm/short-uvm.c >nvidia-uvm/nvidia-uvm-sources.Kbuild &&
echo NVIDIA_DRM_SOURCES = >nvidia-drm/nvidia-drm-sources.mk && sed -i /^NV_CONFTEST_/d nvidia-uvm/nvidia-uvm.Kbuild &&
env KCFLAGS='-g0 -O1' ${MAKE[0]}"
"""
SHORT_MODULE = """\
#include <linux/module.h>
MODULE_LICENSE("Dual MIT/GPL");
MODULE_VERSION(NV_VERSION_STRING);
"""


def compile_quickly(machine: str) -> None:
    """`make test-all` compiles as users do."""
    if amount.ALL:
        return
    inside(
        machine,
        f"printf %s {shlex.quote(GCC)} >/usr/local/bin/gcc && printf %s {shlex.quote(NASM)} >/usr/local/bin/nasm &&"
        " chmod 755 /usr/local/bin/gcc /usr/local/bin/nasm &&"
        f" mkdir -p /etc/dkms/framework.conf.d && echo {shlex.quote(DKMS)} >/etc/dkms/framework.conf.d/quick.conf &&"
        f" printf %s {shlex.quote(SHORT_MODULE)} >/etc/dkms/short.c &&"
        f" printf %s {shlex.quote(MODULE)} >{MODULE_CONF}",
    )
