"""What the end-to-end tests share: the installed gpuprep, and machines that were provisioned by it once."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any

from waiting import until

from gpuprep.errors import SimError
from gpuprep.sim import inside as sim_inside

# What changes the state of a machine is seen by its facts, and by the two probes that measure no speed.
UNMEASURED = ("--only", "toolkit,codec")
GPUPREP = str(Path(sys.executable).parent / "gpuprep")
# A host is as it was when no file but these changed.
LEFT_OUT = (
    r"^/(proc|sys|run|dev|tmp|var/log|var/tmp|var/lib/systemd|var/lib/sudo|home/[a-z]+/\.sudo_as|root/before)"
    r"|^/var/lib/(rpm/rpmdb|dnf/history)\.sqlite-shm$"  # each reader of these databases writes it
)
# The machine that compiles FFmpeg for the others, by its name (test_codec.py).
CODEC_BUILDER = "e2e-codec-first"
BOOT = "cat /proc/sys/kernel/random/boot_id; systemctl is-system-running"


@dataclass(frozen=True)
class Done:
    """A finished command of gpuprep; `text` is what a person saw, results and progress together."""

    exit_code: int
    stdout: str
    stderr: str

    @property
    def text(self) -> str:
        return self.stdout + self.stderr

    def json(self) -> Any:
        return json.loads(self.stdout)


@dataclass(frozen=True)
class Finished:
    """A machine that `gpuprep provision` finished, and what it printed."""

    machine: str
    profile: str
    run: Done
    foreseen: Done | None = None  # what --check --deep had printed before, of a machine from nothing
    apt_log: str = ""  # apt's history of that run
    validated: Done | None = None  # the whole validation after it, of a copy

    @property
    def host(self) -> str:
        return f"sim:{self.machine}"

    def made_by(self) -> dict[str, Any]:
        """The record of the run that made the machine, by the id that the run printed."""
        (made,) = set(re.findall(r"gpuprep report (\d{8}\S+)", self.run.text))
        record: dict[str, Any] = must("report", made, "--format", "json").json()
        assert record["run_id"] == made
        return record

    def checked(self) -> Done:
        assert self.foreseen, "only a machine from nothing was checked before"
        return self.foreseen


def gpuprep(*arguments: str, environment: dict[str, str] | None = None, first: bool = False) -> Done:
    """Run the installed gpuprep as a user would, from a directory that is not the source tree.

    `first`: others wait for it, so its programs come before theirs. Where that is not allowed, `nice` goes on without.
    """
    return run([*(["nice", "-n", "-10"] if first else []), GPUPREP, *arguments], environment)


def run(command: Sequence[str], environment: dict[str, str] | None = None) -> Done:
    process = subprocess.run(
        command,
        capture_output=True,
        text=True,
        cwd="/",
        env={**os.environ, **(environment or {})},
        stdin=subprocess.DEVNULL,
        check=False,
    )
    return Done(process.returncode, process.stdout, process.stderr)


def must(*arguments: str, exit_code: int = 0, first: bool = False) -> Done:
    return ended(gpuprep(*arguments, first=first), arguments, exit_code)


def ended(done: Done, arguments: Sequence[str], exit_code: int = 0) -> Done:
    assert done.exit_code == exit_code, f"gpuprep {' '.join(arguments)}: exit {done.exit_code}\n{done.text[-6000:]}"
    return done


def inside(machine: str, command: str, *, check: bool = True) -> Done:
    """`command` as root inside a simulated machine: `gpuprep sim exec` (test_sim.py) without the start of a program."""
    try:
        line = sim_inside.command(machine, ["sh", "-c", command])
    except SimError as error:
        done = Done(2, "", error.what)
    else:
        with Path(os.devnull).open("rb") as nothing, TemporaryFile() as out, TemporaryFile() as err:
            code = sim_inside.ended(line, streams=(nothing, out, err))
            done = Done(code, *(_text(file) for file in (out, err)))
    assert not check or done.exit_code == 0, f"{machine}: {command}: exit {done.exit_code}\n{done.text[-4000:]}"
    return done


def boot_of(machine: str) -> str:
    """The boot's id where the machine is up; "" while it is not."""
    said = inside(machine, BOOT, check=False).stdout.split()
    return said[0] if said[1:] in (["running"], ["degraded"]) else ""


def started_again(machine: str, command: str) -> None:
    was = boot_of(machine)
    inside(machine, command, check=False)
    until(lambda: boot_of(machine) not in ("", was), "the machine is up again", 300)


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode("utf-8", "replace")


def changed_files(machine: str) -> list[str]:
    """What is newer than /root/before there, without what any login and any program writes."""
    command = "find / -xdev -type f -newer /root/before 2>/dev/null"
    return inside(machine, f"{command} | grep -vE '{LEFT_OUT}' || true").stdout.split()


def only(done: Done) -> dict[str, Any]:
    (run,) = done.json()["runs"]
    assert isinstance(run, dict)
    return run


def open_findings(run: dict[str, Any]) -> set[str]:
    return {f"{f['subject']}.{f['property']}" for f in run["findings"] if f["status"] not in ("PASS", "SKIP")}


def flags(gpus: Sequence[str]) -> list[str]:
    return [word for gpu in gpus for word in ("--gpu", gpu)]


def up(machine: str, os_name: str, gpus: Sequence[str], *, first: bool = False) -> str:
    """A fresh machine of that name: one left over by an earlier run is taken down first. `first`: as in gpuprep()."""
    gpuprep("sim", "down", machine)
    must("sim", "up", machine, "--os", os_name, *flags(gpus), first=first)
    return machine


@contextmanager
def fresh(machine: str, os_name: str, gpus: Sequence[str]) -> Iterator[str]:
    """The same for a `with`: it is taken down at the end, also where a test or the rest of a fixture fails."""
    try:
        yield up(machine, os_name, gpus)
    finally:
        gpuprep("sim", "down", machine)


@contextmanager
def playing(machine: Finished, kind: str) -> Iterator[None]:
    """The fault of this kind, while the tests look: one of `gpuprep sim fault --list`."""
    must("sim", "fault", machine.machine, kind)
    try:
        yield
    finally:
        must("sim", "fault", machine.machine, kind, "--clear")
