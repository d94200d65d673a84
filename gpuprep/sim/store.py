"""A machine's folder and its description on disk; which process runs it."""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from gpuprep.errors import SimError
from gpuprep.sim import paths
from gpuprep.sim.paths import Progress

NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?")


@dataclass(frozen=True)
class Description:
    """What a machine is. `layers` are frozen disks between the base and its own, newest first."""

    name: str
    os: str
    base: str
    gpus: tuple[str, ...]
    port: int
    layers: tuple[str, ...] = ()
    nouveau: bool = True
    identity: str = ""  # what UUIDs and serial numbers are made of
    options: dict[str, Any] = field(default_factory=dict)


def machines_dir() -> Path:
    return paths.state_dir() / "machines"


def folder(name: str) -> Path:
    """The folder of a machine; raises SimError for a name that no machine can have."""
    if not NAME.fullmatch(name):
        raise SimError(
            f"{name!r} cannot be the name of a simulated VM",
            "use 1 to 40 lower-case letters, digits and dashes; begin and end with a letter or digit",
        )
    return machines_dir() / name


def names() -> list[str]:
    """Machines with a description, running or not."""
    return sorted(path.parent.name for path in machines_dir().glob("*/machine.json"))


def read(name: str) -> Description:
    """The description of a machine; raises SimError when there is none."""
    try:
        data = json.loads((folder(name) / "machine.json").read_text())
    except FileNotFoundError:
        there = ", ".join(names()) or "none"
        raise SimError(f"no simulated VM {name!r} (there: {there})", "`gpuprep sim up NAME` makes one") from None
    return Description(**{**data, "gpus": tuple(data["gpus"]), "layers": tuple(data["layers"])})


def write(description: Description) -> None:
    path = folder(description.name)
    path.mkdir(parents=True, exist_ok=True)
    write_json(path / "machine.json", asdict(description))


def write_json(path: Path, data: object) -> None:
    """Writes so that a reader sees the old or the new file, never half of one."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(json.dumps(data, indent=1, sort_keys=True) + "\n")
    temporary.rename(path)


@contextlib.contextmanager
def locked() -> Iterator[None]:
    """One `up` or `down` decides at a time; held for moments only, never while a machine boots."""
    paths.private(paths.state_dir())
    with paths.locked(paths.state_dir() / ".lock"):
        yield


@contextlib.contextmanager
def locked_machine(name: str, say: Progress) -> Iterator[None]:
    """One `up` or `down` of a machine at a time; a second one waits, and then finds what the first one made."""
    folder(name)  # the name is checked before it becomes part of a path
    locks = paths.private(paths.state_dir()) / "locks"
    locks.mkdir(exist_ok=True)
    with paths.locked(locks / name, lambda: say(f"waiting for another command on {name}")):
        yield


def started_at(pid: int) -> str:
    """The kernel's start time of a process, "" when it is gone: with it a reused process id is told apart.

    By hand: it is kept in a file, and psutil's create_time() changes when somebody sets the computer's clock.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""
    fields = stat[stat.rindex(")") + 2 :].split()
    return "" if fields[0] in "ZX" else fields[19]


def process(name: str, role: str) -> int | None:
    """The living process of a machine in a role (`supervisor` or `nspawn`), or None."""
    try:
        data = json.loads((folder(name) / f"{role}.json").read_text())
    except (FileNotFoundError, json.JSONDecodeError):
        return None
    return int(data["pid"]) if started_at(data["pid"]) == data["started"] != "" else None


def record_process(name: str, role: str, pid: int) -> None:
    write_json(folder(name) / f"{role}.json", {"pid": pid, "started": started_at(pid)})
