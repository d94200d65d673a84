"""The machine that a session provisions from nothing, and a clone of its finished disk for all workers to clone again.

The worker that asks first makes it, under a lock; the others wait, and read what it wrote.
"""

from __future__ import annotations

import dataclasses
import fcntl
import json
import os
from collections.abc import Iterator
from pathlib import Path

from machines import Done, Finished, compile_quickly, flags, gpuprep, must, up

MACHINE, OS, PROFILE = "e2e-t4", "debian13", "t4"
DISK = "e2e-finished"
KEEP = os.environ.get("GPUPREP_E2E_KEEP") == "1"
WRITTEN = "finished.json"


def provision(machine: str, os_name: str, profile: str, gpus: list[str]) -> Finished:
    """A machine from nothing; with KEEP, from where an earlier session left it."""
    if KEEP:
        must("sim", "up", machine, "--os", os_name, *flags(gpus))
    else:
        up(machine, os_name, gpus, first=True)
    compile_quickly(machine)
    wish = ["provision", f"sim:{machine}", "--profile", profile]
    foreseen = must(*wish, "--check", "--deep", "--json", first=True)
    return Finished(machine, profile, must(*wish, timeout=3600, first=True), foreseen)


def once(shared: Path) -> Finished:
    """The T4 on Debian 13, made by the first who asks; `shared` is a folder of all workers of this session."""
    with (shared / "finished.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        written = shared / WRITTEN
        if not written.exists():
            written.write_text(json.dumps(_made()))
        text = json.loads(written.read_text())
    assert "failed" not in text, text["failed"]
    return Finished(MACHINE, PROFILE, Done(**text["run"]), Done(**text["foreseen"]))


def _made() -> dict[str, object]:
    try:
        made = provision(MACHINE, OS, PROFILE, ["t4"])
        gpuprep("sim", "down", DISK)
        must("sim", "down", "--keep", MACHINE)
        must("sim", "up", DISK, "--clone-of", MACHINE)
        must("sim", "down", "--keep", DISK)
        must("sim", "up", MACHINE)
    except AssertionError as error:  # told to every worker, so that none tries the same for a quarter of an hour
        return {"failed": str(error)}
    return {"run": dataclasses.asdict(made.run), "foreseen": dataclasses.asdict(made.checked())}


def clone(machine: str, profile: str, gpus: list[str]) -> Iterator[Finished]:
    """A copy of the finished disk with other GPUs, brought to their profile and validated whole."""
    gpuprep("sim", "down", machine)
    must("sim", "up", machine, "--clone-of", DISK, *flags(gpus))
    wish = (f"sim:{machine}", "--profile", profile)
    run = must("provision", *wish, "--no-validate")
    yield Finished(machine, profile, run, validated=must("validate", *wish, "--json"))
    gpuprep("sim", "down", machine)


def drop() -> None:
    """At the end of a session: the disk that its workers cloned."""
    if not KEEP and DISK in gpuprep("sim", "list").stdout.split():
        gpuprep("sim", "down", DISK)
