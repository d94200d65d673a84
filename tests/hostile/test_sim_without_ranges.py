"""A computer where machines cannot have ids of their own: it is said, and no user of it is a machine's user."""

from __future__ import annotations

import os
import pwd
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from machines import gpuprep, inside, must

from gpuprep.sim import cgroup, ids, store

pytestmark = [pytest.mark.e2e, pytest.mark.machines]
NAME = "hostile-sim-old"
WHY = "Linux 5.10.0 is older than 5.19"


@dataclass(frozen=True)
class Old:
    said: list[str]


def up_without_ranges(name: str, *words: str) -> subprocess.CompletedProcess[str]:
    """`sim up` in a process for which this computer has no ranges."""
    program = f"""
from gpuprep.cli import main
from gpuprep.sim import mounts
mounts.why_no_ranges = lambda _folders: {WHY!r}
main(["sim", "up", {name!r}, "--gpu", "none", *{words!r}])
"""
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def machine() -> Iterator[Old]:
    gpuprep("sim", "down", NAME)
    done = up_without_ranges(NAME)
    assert done.returncode == 0, done.stderr
    yield Old(done.stderr.splitlines())
    must("sim", "down", NAME)


def test_it_is_said_before_the_boot(machine: Old) -> None:
    warnings = [line for line in machine.said if WHY in line]
    assert warnings
    assert "Its root is root of this computer" in warnings[0]
    assert machine.said.index(warnings[0]) < next(
        i for i, line in enumerate(machine.said) if line.split()[1:2] == ["booting"] or line.startswith("booting")
    )


def test_its_user_is_nobody_on_the_computer(machine: Old) -> None:
    number = int(inside(NAME, "id -u debian").stdout)
    assert machine.said
    assert number in ids.SPARE
    with pytest.raises(KeyError):
        pwd.getpwuid(number)
    owners = inside(NAME, "stat -c %u /home/debian /home/debian/.bashrc /home/debian/.ssh/authorized_keys").stdout
    assert set(owners.split()) == {str(number)}
    assert inside(NAME, "su debian -c 'sudo -n id -u'").stdout.strip() == "0"


def test_a_user_of_the_computer_does_not_enter_it(machine: Old) -> None:
    inside(NAME, "systemd-run --quiet --uid=debian --property=Type=exec sleep infinity")
    number = int(inside(NAME, "id -u debian").stdout)
    theirs = [pid for pid in cgroup.processes(store.folder(NAME)) if os.stat(f"/proc/{pid}").st_uid == number]  # noqa: PTH116
    assert machine.said
    assert theirs
    done = subprocess.run(
        ["setpriv", "--reuid=1000", "--regid=1000", "--clear-groups", "ls", f"/proc/{theirs[0]}/root/"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "Permission denied" in done.stderr


def test_two_of_them_have_two_users(machine: Old) -> None:
    assert machine.said
    assert ids.spare() != int(inside(NAME, "id -u debian").stdout)


def test_a_machine_whose_user_is_somebody_here_is_not_started() -> None:
    """It was made where machines have ranges, or by an older gpuprep."""
    gpuprep("sim", "down", f"{NAME}-2")
    must("sim", "up", f"{NAME}-2", "--gpu", "none")
    must("sim", "down", "--keep", f"{NAME}-2")
    try:
        done = up_without_ranges(f"{NAME}-2")
        assert done.returncode == 2
        assert f"would share its users with this computer: {WHY}" in done.stderr
        assert f"gpuprep sim down {NAME}-2, then up again" in done.stderr
        clone = up_without_ranges(f"{NAME}-3", "--clone-of", f"{NAME}-2")
        assert clone.returncode == 2
        assert "would share its users with this computer" in clone.stderr
    finally:
        gpuprep("sim", "down", f"{NAME}-3")
        must("sim", "down", f"{NAME}-2")
