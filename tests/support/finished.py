"""The finished T4 on Debian 13: provisioned from nothing, and a frozen copy of its disk that is kept for later runs.

`make test` clones the kept disk, and makes one where none fits. `make test-machines` always provisions anew. The disk's
name has a digest of what makes it, so that a change of the simulator, the roles or the profiles makes another one.

The worker that asks first makes it, under a lock; the others wait, and read what it wrote.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import hashlib
import json
import os
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

from compilequickly import compile_quickly
from machines import Done, Finished, flags, gpuprep, inside, must, up
from places import ROOT

from gpuprep import errors
from gpuprep.sim import prerequisites

MACHINE, OS, PROFILE = "e2e-t4", "debian13", "t4"
KEEP = os.environ.get("GPUPREP_E2E_KEEP") == "1"
WRITTEN = "finished.json"
# What makes the disk. The rest of gpuprep is brought up to date on each clone, as on any host.
SOURCES = ("gpuprep/sim", "ansible_collections", "profiles", "tests/support/compilequickly.py")
KEPT = "kept-t4-"


@cache
def disk() -> str:
    """The name of the disk that these sources make."""
    digest = hashlib.sha256()
    for folder in SOURCES:
        root = ROOT / folder
        for path in sorted(root.rglob("*") if root.is_dir() else [root]):
            if path.is_file() and "__pycache__" not in path.parts:
                digest.update(f"{path.relative_to(ROOT)}\0".encode() + path.read_bytes())
    return f"{KEPT}{digest.hexdigest()[:12]}"


def kept() -> list[str]:
    """Every disk that earlier runs kept, also those of other sources."""
    return [name for name in gpuprep("sim", "list").stdout.split() if name.startswith(KEPT)]


def said() -> str:
    """What a run of `make test` is told first: whether its machine is there."""
    try:
        prerequisites.check()
    except errors.SimError as error:
        return f"No machine in this run, so its smoke tests are skipped: {'; '.join(error.what.splitlines())}"
    if disk() in kept():
        return f"The smoke tests clone the finished T4 that an earlier run kept: {disk()}"
    return (
        "No finished T4 of these sources is kept: one is provisioned from nothing beside the other tests. On"
        " two cores this run takes about ten minutes longer. It is kept for the next run;"
        f" `gpuprep sim down {disk()}` deletes it."
    )


def provision(machine: str, os_name: str, profile: str, gpus: list[str]) -> Finished:
    """A machine from nothing; with KEEP, from where an earlier session left it."""
    if KEEP:
        must("sim", "up", machine, "--os", os_name, *flags(gpus))
    else:
        up(machine, os_name, gpus, first=True)
    compile_quickly(machine)
    wish = ["provision", f"sim:{machine}", "--profile", profile]
    foreseen = must(*wish, "--check", "--deep", "--json", first=True)
    run = must(*wish, first=True)
    return Finished(machine, profile, run, foreseen, inside(machine, "cat /var/log/apt/history.log").stdout)


def once(shared: Path) -> Finished:
    """The T4 from nothing, made by the first who asks; `shared` is a folder of all workers of this session."""
    text = _once(shared, _made)
    return Finished(MACHINE, PROFILE, Done(**text["run"]), Done(**text["foreseen"]), text["apt_log"])


def kept_disk(shared: Path) -> str:
    """The name of the kept disk, made now where there is none of these sources."""
    return str(_once(shared, _made_to_keep)["disk"])


def _once(shared: Path, make: Callable[[], dict[str, object]]) -> dict[str, Any]:
    with (shared / "finished.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        written = shared / WRITTEN
        if not written.exists():
            try:
                text = make()
            except AssertionError as error:  # told to every worker, so that none tries it again
                text = {"failed": str(error)}
            written.write_text(json.dumps(text))
        found: dict[str, Any] = json.loads(written.read_text())
    assert "failed" not in found, found["failed"]
    return found


def _made() -> dict[str, object]:
    made = provision(MACHINE, OS, PROFILE, ["t4"])
    _keep()
    must("sim", "up", MACHINE)
    runs = {"run": made.run, "foreseen": made.checked()}
    return {"apt_log": made.apt_log, **{name: dataclasses.asdict(done) for name, done in runs.items()}}


def _made_to_keep() -> dict[str, object]:
    if disk() not in kept():
        up(MACHINE, OS, ["t4"], first=True)
        compile_quickly(MACHINE)
        must("provision", f"sim:{MACHINE}", "--profile", PROFILE, "--no-validate", first=True)
        _keep()
        gpuprep("sim", "down", MACHINE)
    return {"disk": disk()}


def _keep() -> None:
    """A clone of the machine's disk stays; disks of other sources go when it is there."""
    gpuprep("sim", "down", disk())
    must("sim", "down", "--keep", MACHINE)
    must("sim", "up", disk(), "--clone-of", MACHINE)
    must("sim", "down", "--keep", disk())
    others = [name for name in kept() if name != disk()]
    if others:
        must("sim", "down", *others)


@contextlib.contextmanager
def clone(source: str, machine: str, profile: str, gpus: list[str], *, validate: bool) -> Iterator[Finished]:
    """A copy of a finished disk with other GPUs, brought to their profile; where asked for, validated whole."""
    gpuprep("sim", "down", machine)
    try:
        must("sim", "up", machine, "--clone-of", source, *flags(gpus))
        wish = (f"sim:{machine}", "--profile", profile)
        run = must("provision", *wish, "--no-validate")
        yield Finished(machine, profile, run, validated=must("validate", *wish, "--json") if validate else None)
    finally:
        gpuprep("sim", "down", machine)


if __name__ == "__main__":
    print(said(), flush=True)
