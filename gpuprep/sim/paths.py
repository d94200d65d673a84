"""Folders of simulated VMs: files that can be made again are in the cache, machines in the state folder."""

from __future__ import annotations

import contextlib
import fcntl
from collections.abc import Iterator
from pathlib import Path

from gpuprep import paths


def cache_dir() -> Path:
    """Bases, downloaded packages and compiled stand-ins; may be deleted at any time while no machine runs."""
    return paths.cache_dir() / "sim"


def state_dir() -> Path:
    """Machines: one folder each under `machines/`, frozen disks under `layers/`."""
    return paths.state_dir() / "sim"


def private(folder: Path) -> Path:
    """Makes a folder that only its owner enters: the disks below have programs that run as root, chosen by machines."""
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)
    return folder


@contextlib.contextmanager
def locked(file: Path) -> Iterator[None]:
    """One process at a time; the others wait."""
    with file.open("w") as opened:
        fcntl.flock(opened, fcntl.LOCK_EX)
        yield
