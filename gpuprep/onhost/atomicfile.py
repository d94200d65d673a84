"""Files that are there whole or not at all, whenever the writer is killed, and after a loss of power.

    write(path, text)    replaces `path`: its old content or its new one is there at any moment, never a part
    tidy(folder)         removes what a writer left behind that was killed in the middle
    shared_folder(path)  makes the folder of files that all may read

A new file is written beside the old one and on the disk before it takes the name; then the folder is on the disk, too.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

LEFTOVER = ".part"  # while it is written a file is .NAME.RANDOM.part
READABLE = 0o755  # a folder that all may read


def write(path: Path, text: str, mode: int = 0o644) -> None:
    """Raises OSError (a full disk, no permission); `path` is then what it was. `mode` is not narrowed by the umask."""
    temporary = path.parent / f".{path.name}.{os.urandom(6).hex()}{LEFTOVER}"
    descriptor = os.open(str(temporary), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fchmod(file.fileno(), mode)
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink()
        raise
    _sync_folder(path.parent)


def shared_folder(path: Path) -> None:
    """Make `path` with mode 0755, which a umask does not narrow; where it is there and ours, repair what one narrowed.

    Raises OSError. What an administrator opened further stays so, and a folder of another user is left alone.
    """
    path.mkdir(mode=0o755, parents=True, exist_ok=True)
    status = path.stat()
    if status.st_uid == os.geteuid() and status.st_mode & READABLE != READABLE:
        path.chmod(stat.S_IMODE(status.st_mode) | READABLE)


def tidy(folder: Path, name: str = "*") -> int:
    """How many leftovers of files called `name` were removed. Only for who alone writes there: it holds the lock."""
    found = list(folder.glob(f".{name}.*{LEFTOVER}"))
    for path in found:
        path.unlink()
    return len(found)


def _sync_folder(folder: Path) -> None:
    """Without it a name can be lost with the power although the content is on the disk."""
    descriptor = os.open(str(folder), os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
