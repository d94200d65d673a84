"""What unprovision leaves: a machine as it was. The whole state is compared with a machine that gpuprep never saw."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import finished
import pytest
from compilequickly import compile_quickly
from machines import GPUPREP, Finished, fresh, gpuprep, inside, must, started_again
from waiting import until

pytestmark = pytest.mark.e2e

# Packages with marks, holds and repositories; kinds, modes, owners and sums of all files; units and whether they run;
# accounts; modules, the kernel's command line and its settings.
STATE = r"""
export LC_ALL=C
if command -v dpkg-query >/dev/null; then
  dpkg-query -W -f 'package ${Package}:${Architecture} ${Version} ${Status}\n'
  apt-mark showmanual | sed 's/^/manual /'; apt-mark showhold | sed 's/^/hold /'
  dpkg-divert --list; dpkg-statoverride --list; dpkg --print-foreign-architectures
else
  rpm -qa --qf 'package %{NAME} %{EVR}.%{ARCH}\n'
  for what in 'repolist --all' 'module list --enabled'; do dnf -q --cacheonly $what 2>/dev/null | sed 's/^/dnf /'; done
fi
find / -xdev \( -path /proc -o -path /sys -o -path /dev -o -path /run -o -path /tmp -o -path /var/tmp \) -prune -o \
  -printf 'file %y %m %u:%g %p %l\n' -type f -exec sha256sum {} + 2>/dev/null
systemctl list-unit-files --no-legend --plain --no-pager | awk '$2 != "transient" {print "unit " $1 " " $2}'
systemctl list-units --no-legend --plain --no-pager --type service,timer,socket,mount --state running,waiting,mounted |
  awk '{print "runs " $1}'
getent passwd | sed 's/^/user /'; getent group | sed 's/^/group /'; lsmod | awk '{print "module " $1}'
sed 's/^/cmdline /' /proc/cmdline
sysctl kernel.yama kernel.dmesg_restrict kernel.perf_event_paranoid kernel.modules_disabled vm.nr_hugepages 2>/dev/null
"""
# What each machine, boot, session and package manager writes anew: docs/unprovision.md.
OF_ITS_OWN = re.compile(
    # of the machine and its boots
    r" /etc/(hostname|hosts|machine-id|ssh/|ld\.so\.cache|\.updated)| /var/(lib/(systemd|dbus)|log|cache/ldconfig)\b"
    r"|^runs (session|user|run-|systemd-(hostnamed|timedated|localed)|.*-ask-password)| /boot/initr\S+$"
    # of the simulator: its programs, and the key by which it logs in
    r"| /usr/lib/gpuprep-sim\b| /var/\.updated|/\.ssh/authorized_keys ?$"
    # copies that useradd and groupadd keep of the files before
    r"| /etc/(passwd|group|shadow|gshadow|subuid|subgid)-"
    # of the package manager: its database and its history, caches and lists
    r"| /var/lib/(apt|dpkg|rpm|dnf|ucf|selinux)\b| /var/cache/(apt|dnf|debconf|man)\b| /usr/lib/sysimage/"
    # depmod's index and the folder of the kernels' headers: packages of simulated kernels have neither
    r"|/modules\.[a-z.]+ ?$| /usr/src/kernels $"
    # of the shell and of sudo
    r"| /(root|home/\w+)/\.(bash_history|sudo_as_admin_successful) ?$"
)


def state(machine: str) -> set[str]:
    lines = inside(machine, STATE, check=False).stdout.splitlines()
    assert len(lines) > 5000, lines[-5:]
    return {line for line in lines if not OF_ITS_OWN.search(line)}


def taken_back(machine: str, bare: set[str]) -> None:
    left = state(machine)
    assert (sorted(left - bare), sorted(bare - left)) == ([], [])


# A runtime of containers with settings of somebody, and the folder of the node exporter: what gpuprep writes into.
OF_USERS = r"""
printf '#!/bin/sh\nexec sleep infinity\n' >/usr/bin/dockerd && chmod 755 /usr/bin/dockerd
printf '[Service]\nExecStart=/usr/bin/dockerd\nExecReload=/bin/true\n[Install]\nWantedBy=multi-user.target\n' \
  >/etc/systemd/system/docker.service
mkdir -p /etc/docker /var/lib/prometheus/node-exporter && echo '{"log-driver": "journald"}' >/etc/docker/daemon.json
systemctl daemon-reload && systemctl enable --now docker
"""
# All that gpuprep can do on a machine with one GPU. Packages of other systems are stubs: FFmpeg is not built there.
EVERYTHING = """\
extends: t4
description: everything
nccl: {version: 2.28.9}
containers: {toolkit: auto}
tuning: {power_limit_watts: 65, compute_mode: exclusive_process}
"""


@pytest.fixture
def copy(from_nothing: Finished) -> Iterator[str]:
    assert from_nothing.machine
    with finished.clone(finished.disk(), "e2e-undo", "t4", ["t4"], validate=False) as made:
        yield made.machine


@pytest.fixture(scope="module")
def bare() -> set[str]:
    with fresh("e2e-undo-bare", finished.OS, ["t4"]) as machine:
        compile_quickly(machine)
        return state(machine)


def test_a_whole_machine_is_as_it_was(copy: str, bare: set[str]) -> None:
    """Killed while packages go, and again: what the user did meanwhile stays, and nothing else."""
    host = f"sim:{copy}"
    assert gpuprep("unprovision", host).exit_code == 2  # no terminal and no --yes
    listed = must("unprovision", host, "--check", "--json").json()["runs"][0]["plan"]
    assert {step["role"] for step in listed["steps"]} >= {
        "gpu_driver",
        "gpu_agent",
        "gpu_cuda",
        "gpu_cudnn",
        "gpu_codec",
    }
    running = subprocess.Popen(
        [GPUPREP, "unprovision", host, "--yes", "-q"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/"
    )
    try:
        until(lambda: "purge" in inside(copy, "ps -eo args", check=False).stdout, "packages are removed", 300)
    finally:
        running.kill()
        running.wait()
    until(lambda: "purge" not in inside(copy, "ps -eo args", check=False).stdout, "that step has ended", 300)
    inside(copy, "touch /etc/modprobe.d/mine.conf")
    must("unprovision", host, "--yes")
    assert inside(copy, "ls /etc/modprobe.d/mine.conf && rm /etc/modprobe.d/mine.conf").exit_code == 0
    taken_back(copy, bare)
    again = must("unprovision", host, "--check", "--json").json()["runs"][0]["plan"]
    assert again["steps"] == []
    drift = gpuprep("drift", host, "--profile", "t4")
    assert drift.exit_code == 2
    assert "unprovisioned it" in drift.text


@pytest.mark.only_all
@pytest.mark.parametrize("os_name", ["debian13", "ubuntu2404", "rocky9"])
def test_all_that_gpuprep_can_do_is_taken_back_and_can_be_done_again(os_name: str, tmp_path: Path) -> None:
    profile = tmp_path / "everything.yml"
    profile.write_text(EVERYTHING)
    with fresh(f"e2e-undo-{os_name}", os_name, ["t4"]) as machine:
        inside(machine, OF_USERS)
        host, before = f"sim:{machine}", state(machine)
        wish = (host, "--profile", str(profile), *([] if os_name == "debian13" else ["--skip", "codec"]))
        must("provision", *wish, "--no-validate")
        must("drift", "schedule", host, "--profile", str(profile))
        must("unprovision", host, "--yes", "--only", "cuda")
        must("provision", *wish, "--no-validate")
        must("unprovision", host, "--yes")
        taken_back(machine, before)
        must("provision", *wish, "--no-validate")
        must("unprovision", host, "--yes")
        taken_back(machine, before)


# Debian's own driver, as somebody installs it by hand.
BY_HAND = """
sed -i 's/^Components: main$/& contrib non-free non-free-firmware/' /etc/apt/sources.list.d/debian.sources
apt-get -qq update && apt-get -y -qq install --no-install-recommends linux-headers-$(uname -r) nvidia-kernel-dkms \
  nvidia-smi libcuda1 && apt-mark hold nvidia-smi
"""


@pytest.mark.only_all
def test_a_driver_that_was_there_before_stays_as_it_was(tmp_path: Path) -> None:
    with fresh("e2e-undo-theirs", finished.OS, ["t4"]) as machine:
        compile_quickly(machine)
        host = f"sim:{machine}"
        inside(machine, BY_HAND)
        started_again(machine, "systemctl reboot")
        inside(machine, "nvidia-smi -L")
        before = state(machine)
        profile = tmp_path / "without.yml"
        parts = "cuda: {version: none}\ncudnn: {version: none}\ncodec: {ffmpeg: none}\n"
        profile.write_text(f"extends: t4\ndescription: the driver\n{parts}")
        must("provision", host, "--profile", str(profile), "--no-validate")
        must("unprovision", host, "--yes")
        taken_back(machine, before)
        assert inside(machine, "nvidia-smi -L").stdout.startswith("GPU 0")
