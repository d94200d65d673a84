"""Folders of simulated VMs: files that can be made again are in the cache, machines in the state folder."""

from __future__ import annotations

import contextlib
import fcntl
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from gpuprep import paths

Progress = Callable[[str], None]


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
def locked(file: Path, waits: Callable[[], None] = lambda: None) -> Iterator[None]:
    """One process at a time. The others wait; each calls `waits` first."""
    with file.open("w") as opened:
        try:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            waits()
            fcntl.flock(opened, fcntl.LOCK_EX)
        yield


def made(path: Path, name: str, what: str, make: Callable[[Path], None], progress: Progress = lambda _: None) -> Path:
    """The folder `path`, made now by `make` if it is not there; its parent folder is there.

    It gets its name only when it is complete. What a killed process left of an earlier one of this `name` is removed:
    of this alone, because another process may be making one whose name begins in the same way.
    """
    if path.is_dir():
        return path
    with locked(path.parent / f".{name}.lock", lambda: progress(f"waiting for another command, which makes {what}")):
        for abandoned in path.parent.glob(f".making-{name}~*"):
            remove(abandoned)
        if path.is_dir():
            return path
        progress(f"making {what}; this is done once")
        making = Path(tempfile.mkdtemp(prefix=f".making-{name}~", dir=path.parent))
        try:
            make(making / "root")
            (making / "root").rename(path)
        finally:
            remove(making)
    return path


def remove(path: Path) -> None:
    """Removes a folder. A build that was killed can leave mounts below it: they are unmounted, never emptied."""
    # By hand: psutil believes /etc/mtab where that is a file, and may so miss one.
    mounts = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    for mount in sorted((m for m in mounts if m.startswith(f"{path}/")), reverse=True):
        subprocess.run(["umount", "--lazy", mount], check=False, capture_output=True)
    shutil.rmtree(path, ignore_errors=True)
