"""A next boot that would lose the GPU: FAIL before the restart, repaired by --fix, then restarted for real.

The files of the boot loader are those of a Debian 13 and of a Rocky Linux 9 (tests/support/boottrees.py); the simulated
machine starts the kernel that they name. The modules are built by DKMS on the machine, from a source of one file.
"""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import boottrees
import pytest
from machines import fresh, gpuprep, inside, must

pytestmark = pytest.mark.e2e

PROFILE = """\
extends: base
description: the next boot
driver: {{source: nvidia, version: "{version}"}}
cuda: {{version: none}}
cudnn: {{version: none}}
codec: {{ffmpeg: none}}
extras: {{tools: []}}
"""
# A kernel that came this night: its image, initramfs and headers are there, and no module.
NEWER = """\
here=$(uname -r); new={new}
cp /boot/vmlinuz-$here /boot/vmlinuz-$new; cp /boot/config-$here /boot/config-$new || :
mkdir -p /lib/modules/$new && cp -a $(readlink -f /lib/modules/$here/build) /usr/src/$new
ln -sfn /usr/src/$new /lib/modules/$new/build
grep -rlZ --include=utsrelease.h --include=kernel.release "$here" /usr/src/$new | xargs -0r sed -i "s/$here/$new/"
touch /lib/modules/$new/modules.order /lib/modules/$new/modules.builtin; depmod $new
{initramfs}
"""


def put(machine: str, files: boottrees.Files) -> None:
    for path, content in files.items():
        text = base64.b64encode(content if isinstance(content, bytes) else content.encode()).decode()
        inside(machine, f"mkdir -p $(dirname {path}) && echo {text} | base64 -d >{path}")


def drift(machine: str, wish: str, *more: str) -> dict[str, dict[str, Any]]:
    """The findings on kernels and the driver that are problems."""
    (run,) = gpuprep("drift", f"sim:{machine}", "--profile", wish, "--json", *more).json()["runs"]
    open_ = [one for one in run["findings"] if one["status"] in ("FAIL", "WARN", "UNKNOWN")]
    return {f"{one['subject']}.{one['property']}": one for one in open_ if one["subject"] in ("kernel", "driver")}


def is_lost_repaired_and_restarted(machine: str, wish: str, new: str) -> None:
    lost = drift(machine, wish)
    assert lost["driver.next_boot_module"]["status"] == "FAIL"
    assert new in lost["driver.next_boot_module"]["reason"]
    assert "suits you" not in str(lost)
    fixed = drift(machine, wish, "--fix")
    assert "driver.next_boot_module" not in fixed
    assert fixed["kernel.next_boot"]["status"] == "WARN"
    must("sim", "down", "--keep", machine)
    must("sim", "up", machine)
    assert inside(machine, "uname -r").stdout.strip() == new
    assert "NVRM version" in inside(machine, "cat /proc/driver/nvidia/version").stdout
    assert drift(machine, wish) == {}


def is_not_restarted(machine: str, wish: Path, here: str) -> None:
    """gpuprep's own restart, for options of the module, is refused where the next boot would lose the GPU."""
    menu = (boottrees.CASES / "debian13-flat.cfg").read_text().replace(boottrees.NEW, here)
    put(machine, {"/boot/grub/grub.cfg": menu.replace(" ro console", " ro module_blacklist=nvidia console")})
    assert drift(machine, str(wish))["driver.next_boot_options"]["status"] == "FAIL"
    inside(machine, "cp /etc/modprobe.d/gpuprep-nvidia.conf /root/; cat /proc/uptime")
    other = wish.with_name("other.yml")
    other.write_text(wish.read_text() + "tuning: {profiling_counters: restricted}\n")
    refused = gpuprep("provision", f"sim:{machine}", "--profile", str(other), "--only", "driver")
    said = " ".join(refused.text.split())
    assert refused.exit_code == 4, said
    assert "The machine was not restarted" in said
    assert "sudo sed -i s/module_blacklist=nvidia//" in said
    inside(machine, "mv /root/gpuprep-nvidia.conf /etc/modprobe.d/")


def test_a_kernel_of_debian_without_a_module(tmp_path: Path) -> None:
    wish = tmp_path / "wish.yml"
    wish.write_text(PROFILE.format(version="595"))
    with fresh("e2e-nextboot-debian13", "debian13", ["t4"]) as machine:
        must("provision", f"sim:{machine}", "--profile", str(wish), "--only", "driver")
        here = inside(machine, "uname -r").stdout.strip()
        is_not_restarted(machine, wish, here)
        new = here.replace("6.12.", "6.12.9")
        inside(machine, NEWER.format(new=new, initramfs=f"update-initramfs -c -k {new}"))
        menu = (boottrees.CASES / "debian13.cfg").read_text().replace(boottrees.OLD, "@HERE@")
        menu = menu.replace(boottrees.NEW, new).replace("@HERE@", here)  # which may be that case's newest
        put(machine, {"/boot/grub/grub.cfg": menu, "/boot/grub/grubenv": boottrees.environment(saved_entry="1>2")})
        assert drift(machine, str(wish)) == {
            "driver.fallback_module": drift(machine, str(wish))["driver.fallback_module"]
        }
        put(machine, {"/boot/grub/grubenv": boottrees.environment(saved_entry="0")})
        is_lost_repaired_and_restarted(machine, str(wish), new)


def test_a_kernel_of_rocky_without_a_module(tmp_path: Path) -> None:
    wish = tmp_path / "wish.yml"
    wish.write_text(PROFILE.format(version="580"))
    with fresh("e2e-nextboot-rocky9", "rocky9", ["t4"]) as machine:
        must("provision", f"sim:{machine}", "--profile", str(wish), "--only", "driver")
        here = inside(machine, "uname -r").stdout.strip()
        new = here.replace("5.14.0-", "5.14.0-9")
        inside(machine, NEWER.format(new=new, initramfs=f"dracut /boot/initramfs-{new}.img {new}"))
        put(machine, {path: text for path, text in boottrees.rocky(here, new).items() if not path.startswith("/boot/vm")
                      and not path.endswith(".img")})  # fmt: skip
        is_lost_repaired_and_restarted(machine, str(wish), new)
