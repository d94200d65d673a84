"""What unprovision leaves: a machine as it was. The whole state is compared with a machine that gpuprep never saw."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import finished
import pytest
from compilequickly import compile_quickly
from machines import GPUPREP, Finished, fresh, gpuprep, inside, must
from waiting import until

pytestmark = pytest.mark.e2e

# Packages with marks and holds; kinds, modes, owners and sums of files; units; accounts; modules. Not: what each boot,
# each machine and each package manager writes anew, and copies that useradd and groupadd keep of the files before.
STATE = r"""
export LC_ALL=C
if command -v dpkg-query >/dev/null; then
  dpkg-query -W -f 'package ${Package}:${Architecture} ${Version} ${Status}\n'
  apt-mark showmanual | sed 's/^/manual /'; apt-mark showhold | sed 's/^/hold /'
else
  rpm -qa --qf 'package %{NAME} %{EVR}.%{ARCH}\n'
  sed 's/^/lock /' /etc/dnf/plugins/versionlock.list 2>/dev/null
fi
places="/etc /usr/local /opt /usr/lib/systemd /usr/lib/modprobe.d /boot /usr/share/dkms /usr/src /var/lib/dkms
  /var/lib/gpuprep /var/cache/gpuprep /usr/lib/modules /root"
find $places -xdev \( -type f -o -type l -o -type d \) -printf 'file %y %m %u:%g %p %l\n' 2>/dev/null
find /etc /usr/local /opt /usr/lib/systemd /usr/share/dkms -xdev -type f -exec sha256sum {} + 2>/dev/null |
  sed 's/^/sum /'
systemctl list-unit-files --no-legend --plain --no-pager | awk '$2 != "transient" {print "unit " $1 " " $2}'
getent passwd | sed 's/^/user /'; getent group | sed 's/^/group /'; lsmod | awk '{print "module " $1}'
"""
# What differs between two machines of one image.
OWN_OF_A_MACHINE = (
    "/etc/hostname", "/etc/hosts", "/etc/machine-id", "/etc/ssh/", "/etc/passwd-", "/etc/group-", "/etc/shadow-",
    "/etc/gshadow-", "/etc/subuid-", "/etc/subgid-", "/root/.", "/etc/ld.so.cache", "/etc/.updated",
)  # fmt: skip


def state(machine: str) -> set[str]:
    lines = inside(machine, STATE, check=False).stdout.splitlines()
    assert len(lines) > 500, lines[-5:]
    return {line for line in lines if not any(path in line for path in OWN_OF_A_MACHINE)}


def taken_back(machine: str, bare: set[str]) -> None:
    left = state(machine)
    assert (sorted(left - bare), sorted(bare - left)) == ([], [])


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
@pytest.mark.parametrize("os_name", ["ubuntu2404", "rocky9"])
def test_other_systems_are_as_they_were_and_can_be_provisioned_again(os_name: str) -> None:
    with fresh(f"e2e-undo-{os_name}", os_name, ["t4"]) as machine:
        before, wish = state(machine), ("provision", f"sim:{machine}", "--profile", "t4", "--skip", "codec")
        must(*wish, "--no-validate")
        must("unprovision", f"sim:{machine}", "--yes", "--only", "cuda")
        must(*wish, "--no-validate")
        must("unprovision", f"sim:{machine}", "--yes")
        taken_back(machine, before)
        must(*wish, "--no-validate")
