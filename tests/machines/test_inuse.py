"""A machine in use is not restarted and its clocks stay: a program on its GPU, and one that comes late.

On a clone of the finished T4, with ECC as the change that needs a restart.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import finished
import pytest
from machines import Finished, fresh, gpuprep, inside, must, only, playing
from waiting import until

from gpuprep import sim

pytestmark = pytest.mark.e2e

NAME = "e2e-inuse"


@pytest.fixture(scope="module")
def machine(from_nothing: Finished, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Finished, str]]:
    """The clone, and a profile that wishes other ECC than it has."""
    folder = tmp_path_factory.mktemp("wish")
    for ecc in ("disabled", "enabled"):
        (folder / f"{ecc}.yml").write_text(f"extends: t4\ntuning: {{ecc: {ecc}}}\n")
    with finished.clone(finished.disk(), NAME, from_nothing.profile, ["t4"], validate=False) as copy:
        yield copy, f"{folder}/disabled.yml"


def boot() -> str:
    return inside(NAME, "cat /proc/sys/kernel/random/boot_id").stdout


def test_a_program_on_the_gpu_hinders_a_restart_and_a_change_of_clocks(machine: tuple[Finished, str]) -> None:
    copy, wish = machine
    before = boot()
    with playing(copy, "other_process"):
        plan = must("tune", copy.host, "--profile", wish, "--check")
        assert "would restart the machine and change its GPUs; in use by python3 (process " in " ".join(
            plan.stdout.split()
        )
        done = gpuprep("tune", copy.host, "--profile", wish)
        assert done.exit_code == 2, done.text
        assert (
            f"sim:{NAME}: refused, because it would restart the machine and change its GPUs: in use by python3"
            in done.text
        )
        done = gpuprep("tune", copy.host, "--profile", wish, "--when-busy", "wait", "--wait-minutes", "1")
        assert done.exit_code == 2, done.text
        assert "refused after 1 minute" in done.text
        inside(NAME, "nvidia-smi -rac")
        done = gpuprep("drift", copy.host, "--profile", copy.profile, "--fix")
        assert done.exit_code == 2, done.text
        assert "refused, because it would change its GPUs: in use by python3" in done.text
    assert boot() == before
    must("drift", copy.host, "--profile", copy.profile, "--fix")


def test_go_restarts_and_says_over_whom(machine: tuple[Finished, str]) -> None:
    copy, wish = machine
    before = boot()
    must("sim", "fault", NAME, "other_process")
    record = only(must("tune", copy.host, "--profile", wish, "--when-busy", "go", "--json"))
    assert boot() != before
    (said,) = [note for note in record["history"]["notes"] if "--when-busy go" in note]
    assert "in use by python3" in said


def test_who_comes_while_the_driver_is_installed_is_seen_before_the_restart(machine: tuple[Finished, str]) -> None:
    """The machine has no device files of NVIDIA's, so a plain file is opened in the place of one."""
    copy, wish = machine
    before = boot()
    late = "systemd-run --quiet --collect --unit=e2e-late sh -c 'exec sleep infinity 3</dev/nvidia-uvm'"
    inside(NAME, f"touch /dev/nvidia-uvm && {late}")
    done = gpuprep("tune", copy.host, "--profile", wish.replace("disabled", "enabled"))
    assert done.exit_code == 4, done.text
    assert "because it is in use: sleep (process " in done.text
    assert boot() == before
    inside(NAME, "systemctl stop e2e-late; rm -f /dev/nvidia-uvm")
    must("tune", copy.host, "--profile", wish.replace("disabled", "enabled"))
    assert boot() != before


@pytest.mark.parametrize("os_name", ["debian13", "rocky9"])
def test_who_has_a_terminal_is_seen_and_an_idle_connection_is_not(os_name: str, tmp_path: Path) -> None:
    """logind has the terminal's name on neither system as it is: one has no utmp, and one keeps what is closed."""
    with fresh(f"e2e-inuse-{os_name}", os_name, ["t4"]) as bare:
        where, shared = sim.target(bare), ("-o", f"ControlPath={tmp_path}/shared")
        login = (
            "ssh", "-tt", "-F", "none", "-o", "BatchMode=yes", "-o", f"UserKnownHostsFile={where.known_hosts}",
            "-i", str(where.identity_file), "-p", str(where.port), "-o", "ControlMaster=auto", "-o",
            "ControlPersist=yes", *shared, f"{where.user}@{where.address}",
        )  # fmt: skip

        def plan() -> str:
            return " ".join(must("plan", f"sim:{bare}", "--profile", "t4").stdout.split())

        with subprocess.Popen([*login, "echo here; exec cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as at:
            try:
                assert at.stdout
                assert at.stdout.readline().strip() == b"here"
                assert "in use by debian on pts/0 since" in plan()
            finally:
                at.terminate()
        try:
            until(lambda: "cat" not in inside(bare, "ps -eo comm").stdout.split(), "the shell has ended")
            subprocess.run(["ssh", "-O", "check", *shared, "x"], check=True)
            assert "in use" not in plan()
        finally:
            subprocess.run(["ssh", "-O", "exit", *shared, "x"], check=True)
