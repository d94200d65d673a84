"""A control group for each machine: two machines in one group would confuse each other's services with their own."""

from __future__ import annotations

import hashlib
import os
import signal
from pathlib import Path

MOUNT = Path("/sys/fs/cgroup")
# Of groups that a machine makes within its own: each costs memory of the kernel, and deep ones a long time to remove
LIMITS = {"cgroup.max.depth": "16", "cgroup.max.descendants": "2000"}


def has_v2() -> bool:
    """Is there a version 2 hierarchy, alone or beside version 1?"""
    return (MOUNT / "cgroup.controllers").exists() or (MOUNT / "unified/cgroup.controllers").exists()


def _hierarchies() -> list[Path]:
    if (MOUNT / "cgroup.controllers").exists():
        return [MOUNT]
    return [path for path in (MOUNT / "systemd", MOUNT / "unified") if (path / "cgroup.procs").exists()]


def paths(folder: Path) -> list[Path]:
    """The groups of a machine; the name holds a hash of its folder, which tells machines of two state folders apart."""
    digest = hashlib.sha256(str(folder).encode()).hexdigest()[:8]
    return [hierarchy / f"gpuprep-sim-{folder.name}-{digest}" for hierarchy in _hierarchies()]


def create(folder: Path) -> list[Path]:
    groups = paths(folder)
    for group in groups:
        group.mkdir(exist_ok=True)
        for limit, most in LIMITS.items():  # version 2 has them
            if (group / limit).exists():
                (group / limit).write_text(most)
    return groups


def _tree(folder: Path) -> list[Path]:
    """A machine's groups and all below them, deepest first; groups may go away while we look."""
    groups = paths(folder)
    for group in groups:  # grows: a machine nests them as deep as it likes, and a recursion would end
        try:
            with os.scandir(group) as listing:
                groups += [Path(entry.path) for entry in listing if entry.is_dir(follow_symlinks=False)]
        except OSError:
            continue
    return groups[::-1]


def processes(folder: Path) -> set[int]:
    """Every process in the machine's groups."""
    pids: set[int] = set()
    for group in _tree(folder):
        try:
            pids.update(int(line) for line in (group / "cgroup.procs").read_text().split())
        except OSError:  # the group, or its last process, went away meanwhile
            continue
    return pids


def kill(folder: Path) -> None:
    """Ends whatever is left in the machine's groups."""
    for pid in processes(folder):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


def remove(folder: Path) -> None:
    """Removes the machine's groups, deepest first. One that is still busy stays; the next down removes it."""
    for group in _tree(folder):
        try:
            group.rmdir()
        except OSError:
            continue
