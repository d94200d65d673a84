"""A machine in use is not restarted and its clocks stay: a program on its GPU, and one that comes late.

On a clone of the finished T4, with ECC as the change that needs a restart.
"""

from __future__ import annotations

from collections.abc import Iterator

import finished
import pytest
from machines import Finished, gpuprep, inside, must, only, playing

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
