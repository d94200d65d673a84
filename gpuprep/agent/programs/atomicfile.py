"""Writes files completely or not at all, even if the writer is killed or the power fails.

    write(path, text)    replaces `path`: at any moment it has its old or its new content, never a part
    tidy(folder)         removes leftovers of a killed writer
    shared_folder(path)  makes a folder for files that every user may read

A new file is written beside the old file and synced before it gets the name; then the folder is synced too. All steps
use one descriptor of the folder, so the owner of the folder, or of a parent, cannot redirect root with a link.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from pathlib import Path

LEFTOVER = ".part"  # while it is written a file is .NAME.RANDOM.part
READABLE = 0o755  # a folder that all may read
FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
MOST_LINKS = 40  # as in Linux


def write(path: Path, text: str, mode: int = 0o644) -> None:
    """Replace `path`. Raises OSError (a full disk, no permission); `path` is then unchanged. Ignores the umask."""
    folder = open_folder(path.parent)
    try:
        _write(folder, path.name, text, mode)
        os.fsync(folder)  # without it a name can be lost with the power although the content is on the disk
    finally:
        os.close(folder)


def _write(folder: int, name: str, text: str, mode: int) -> None:
    temporary = f".{name}.{os.urandom(6).hex()}{LEFTOVER}"
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=folder)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="surrogateescape") as file:
            file.write(text)
            file.flush()
            os.fchmod(file.fileno(), mode)
            os.fsync(file.fileno())
        os.replace(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        os.unlink(temporary, dir_fd=folder)
        raise


def open_folder(path: Path) -> int:
    """A descriptor of the folder. On the way it follows only links that belong to root or to us. Raises OSError."""
    here = os.open("/" if path.is_absolute() else ".", FOLDER)
    rest = _names(str(path))
    links = 0
    try:
        while rest:
            name = rest.pop()
            status = os.stat(name, dir_fd=here, follow_symlinks=False)
            if not stat.S_ISLNK(status.st_mode):
                here = _into(here, name, FOLDER)
                continue
            links += 1
            if status.st_uid not in (0, os.geteuid()) or links > MOST_LINKS:
                raise OSError(errno.ELOOP, f"the link {name} on the way is another user's, or one of a loop", str(path))
            target = os.readlink(name, dir_fd=here)
            rest += _names(target)
            if target.startswith("/"):
                here = _into(here, "/", FOLDER)
        return _into(here, ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        with contextlib.suppress(OSError):
            os.close(here)
        error.filename = str(path)
        raise


def _into(here: int, name: str, flags: int) -> int:
    there = os.open(name, flags, dir_fd=here)
    os.close(here)
    return there


def _names(path: str) -> "list[str]":
    """The parts of the path in reverse order, so that pop() returns the first."""
    return [name for name in reversed(path.split("/")) if name]


def shared_folder(path: Path) -> None:
    """Make `path` with mode 0755, whatever the umask is; if it exists and is ours, add the missing rights.

    Raises OSError. More rights that an administrator gave stay, and a folder of another user is left alone.
    """
    path.mkdir(mode=0o755, parents=True, exist_ok=True)
    status = path.stat()
    if status.st_uid == os.geteuid() and status.st_mode & READABLE != READABLE:
        path.chmod(stat.S_IMODE(status.st_mode) | READABLE)


def tidy(folder: Path, name: str = "*") -> int:
    """Remove leftovers of files called `name`; returns how many. Call it only while you hold the lock."""
    leftovers = list(folder.glob(f".{name}.*{LEFTOVER}"))
    for path in leftovers:
        path.unlink()
    return len(leftovers)
