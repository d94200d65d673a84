"""Canonical's prebuilt kernel modules, on a machine that presents Ubuntu 24.04 and runs its kernel for AWS.

The modules of the stub archive are those of driver 580.126.20, and its newest driver is 580.173.02: they lag, as after
each upload of a driver.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from machines import fresh, gpuprep, inside, must, only, open_findings
from waiting import until

PROFILE = """\
extends: base
description: prebuilt modules of Ubuntu's own archive
driver: {{source: distribution, version: "{version}", modules: {modules}, libraries: {libraries}}}
cuda: {{version: none}}
cudnn: {{version: none}}
codec: {{ffmpeg: none}}
extras: {{tools: []}}
"""
KERNEL = "6.17.0-1019-aws"
NAME = "e2e-prebuilt"
BRINGS = "linux-modules-nvidia-580-server-open-aws"
MODULE = f"linux-modules-nvidia-580-server-open-{KERNEL}"
DRIVER = "580.126.20"

# `make test` has the role's choices in test_prebuilt.py (tests/), with a real apt on the same archive.
pytestmark = [pytest.mark.e2e, pytest.mark.only_all, pytest.mark.xdist_group("prebuilt")]


def profile(folder: Path, modules: str = "prebuilt", version: str = "auto", libraries: str = "compute") -> str:
    path = folder / f"{modules}-{version}-{libraries}.yml"
    path.write_text(PROFILE.format(modules=modules, version=version, libraries=libraries))
    return str(path)


def packages(machine: str) -> str:
    return inside(machine, "dpkg -l | awk '/^.i/ && /nvidia|linux-|gcc|dkms/ {print $2, $3}'").stdout


def restart(machine: str, *, aws: bool) -> None:
    """Into AWS's kernel, or into Debian's, for which DKMS can build."""
    before = inside(machine, "cat /proc/sys/kernel/random/boot_id; uname -r").stdout.split()
    inside(machine, "systemctl reboot", check=False)

    def is_back() -> bool:
        now = inside(machine, "cat /proc/sys/kernel/random/boot_id; uname -r", check=False).stdout.split()
        return len(now) == 2 and now != before and (now[1] == KERNEL) == aws

    until(is_back, "it did not restart")
    until(lambda: gpuprep("plan", f"sim:{machine}").exit_code in (0, 2), "the machine does not answer")


@pytest.fixture(scope="module")
def aws() -> Iterator[str]:
    with fresh(NAME, "ubuntu2404", ["t4"]) as machine:
        inside(machine, "apt-get -q update && apt-get -q -y install linux-image-aws")
        restart(machine, aws=True)
        yield machine


def test_a_driver_that_the_modules_are_not_built_for_is_refused_before_any_change(aws: str, tmp_path: Path) -> None:
    before = packages(aws)
    words = ("provision", f"sim:{aws}", "--profile", profile(tmp_path, version="580.173.02"))
    for more in ((), ("--check", "--deep")):
        refused = gpuprep(*words, *more)
        said = " ".join(refused.text.split())
        assert refused.exit_code != 0
        assert f"are built for driver {DRIVER}, and 580.173.02 is wanted" in said
        assert "The driver is unchanged" in said
        assert "driver.modules" in said
        assert packages(aws) == before


def test_with_secure_boot_and_no_enrolled_key_auto_takes_them(aws: str, tmp_path: Path) -> None:
    """A file stands in for the firmware's variable. Without prebuilt modules this machine is refused."""
    must("sim", "fault", aws, "secure_boot")
    try:
        said = gpuprep("plan", f"sim:{aws}", "--profile", profile(tmp_path, modules="auto")).text
        assert "prebuilt kernel modules: Secure Boot is on" in " ".join(said.split())
        refused = gpuprep("plan", f"sim:{aws}", "--profile", profile(tmp_path, modules="dkms"))
        assert "or driver.modules: prebuilt" in " ".join(refused.text.split())
    finally:
        inside(aws, "umount /sys/firmware")


def test_prebuilt_modules_pass_and_stay(aws: str, tmp_path: Path) -> None:
    """The first run passes, the second finds nothing to do, --deep changes nothing, and drift is silent."""
    wish = profile(tmp_path)
    host = ("provision", f"sim:{aws}", "--profile", wish)
    must(*host)
    assert only(must(*host, "--json"))["playbook"]["status"] == "not needed"
    assert only(must(*host, "--deep", "--json"))["playbook"]["changed"] == 0
    assert open_findings(only(must("drift", f"sim:{aws}", "--profile", wish, "--json"))) == set()
    assert DRIVER in inside(aws, "cat /proc/driver/nvidia/version").stdout
    assert f"/{KERNEL}/kernel/nvidia-580srv-open/" in inside(aws, "modinfo -F filename nvidia").stdout
    there = packages(aws)
    assert f"{BRINGS} " in there
    for absent in ("nvidia-dkms", "linux-headers", "gcc ", "580.173.02"):
        assert absent not in there
    held = inside(aws, "apt-mark showhold").stdout.split()
    assert "libnvidia-encode-580-server" in held
    assert not [name for name in held if name.startswith("linux-")]


def test_a_module_package_that_a_hand_removed_is_found_and_put_back(aws: str, tmp_path: Path) -> None:
    wish = profile(tmp_path)
    must("provision", f"sim:{aws}", "--profile", wish)
    inside(aws, f"apt-get -q -y remove {MODULE}")
    found = open_findings(only(gpuprep("drift", f"sim:{aws}", "--profile", wish, "--json")))
    assert {"driver.version", "driver.prebuilt"} <= found
    must("provision", f"sim:{aws}", "--profile", wish)
    assert f"{MODULE} " in packages(aws)
    # Without the package that follows the kernel nothing is missing today: the next kernel would have no module.
    inside(aws, f"apt-get -q -y remove {BRINGS}")
    found = open_findings(only(gpuprep("drift", f"sim:{aws}", "--profile", wish, "--json")))
    assert "driver.prebuilt" in found
    must("provision", f"sim:{aws}", "--profile", wish)
    assert f"{BRINGS} " in packages(aws)


def test_from_prebuilt_modules_to_dkms_and_back(aws: str, tmp_path: Path) -> None:
    """And from all libraries to computing: what gpuprep itself held for displays is not somebody else's."""
    must("provision", f"sim:{aws}", "--profile", profile(tmp_path, libraries="full"))
    assert f"libnvidia-gl-580-server {DRIVER}" in packages(aws)
    inside(aws, f"apt-get -q -y remove linux-image-aws && rm /boot/vmlinuz-{KERNEL}")
    restart(aws, aws=False)
    must("provision", f"sim:{aws}", "--profile", profile(tmp_path, modules="dkms"))
    there = packages(aws)
    assert "nvidia-dkms-580-server-open 580.173.02" in there
    for absent in ("linux-modules-nvidia", "no-dkms", DRIVER):
        assert absent not in there
    inside(aws, f"apt-get -q -y install --reinstall linux-image-aws linux-image-{KERNEL}")
    restart(aws, aws=True)
    must("provision", f"sim:{aws}", "--profile", profile(tmp_path))
    there = packages(aws)
    assert f"{BRINGS} " in there
    assert "nvidia-dkms" not in there
    assert DRIVER in inside(aws, "cat /proc/driver/nvidia/version").stdout
