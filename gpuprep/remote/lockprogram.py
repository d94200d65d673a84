"""Holds the lock of a host. Sent as text and run there by root's python3: FILE OWNER SECONDS ENDING. Standard library
alone.

The first line is the result: `held`, `busy` and the other owner as JSON text, or `refused` and the reason. The program
stays until its input says RELEASED, ends or is silent for SECONDS, and answers each heartbeat with a line. With an
empty OWNER it only looks, makes nothing, and says `free` where nobody has the lock, with the seconds since somebody had
it.
The flock decides who has it. An owner that the file still names did not
release it: ENDING, the text of leftoversprogram.py, ends what is left of that run before the new owner has the lock.

A Python that is too old for gpuprep can also run this (no future imports); it prints `old` and its version.

Only root may enter the folder (0700), so no other user can open, replace or create the file first. The program refuses
a folder or file of another user: it does not follow it, wait for it or write to it.
"""

import contextlib
import errno
import fcntl
import json
import os
import select
import stat
import subprocess
import sys
import time
from pathlib import Path

OLDEST = (3, 9)
MOST = 4096  # bytes of the other's words
RELEASED = b"released"
CAREFUL = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
# A link, a socket, a folder where a file should be, a file where a folder should be.
ANOTHER_KIND = (errno.ELOOP, errno.EISDIR, errno.ENOTDIR, errno.ENXIO)


class Refused(Exception):
    """The folder or file does not belong to root alone; the text says which, and what to do."""


def open_folder(path: Path) -> int:
    """Open the folder, or make it. If it is root's and others may enter it, close it to them."""
    with contextlib.suppress(FileExistsError):
        path.mkdir(0o700)
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | CAREFUL)
    return ours(folder, path, stat.S_IFDIR, 0o700)


def open_file(folder: int, path: Path) -> int:
    file = os.open(path.name, os.O_RDWR | os.O_CREAT | CAREFUL, 0o600, dir_fd=folder)
    return ours(file, path, stat.S_IFREG, 0o600)


def ours(opened: int, path: Path, kind: int, mode: int) -> int:
    status = os.fstat(opened)
    if stat.S_IFMT(status.st_mode) != kind:
        raise Refused(f"{path} is not the kind of file that it should be: remove it")
    if status.st_uid != os.geteuid() or (kind == stat.S_IFREG and status.st_nlink != 1):
        raise Refused(f"{path} belongs not only to root (owner: user {status.st_uid}): remove it")
    if stat.S_IMODE(status.st_mode) != mode:
        os.fchmod(opened, mode)
    return opened


def say(words: str) -> None:
    os.write(1, f"{words}\n".encode())


def was_released(seconds: float) -> bool:
    """Wait until the owner releases the lock, or dies: its input ends, or is silent for this long."""
    while select.select([0], [], [], seconds)[0]:
        said = os.read(0, MOST)
        if not said or RELEASED in said:
            return bool(said)
        say("heard")
    return False


def end_what_is_left(file: int, owner: str, ending: str) -> None:
    """End the processes of the run that the file names; not of the new owner's, which had only lost its network."""
    # Whatever the file holds, it does not keep the lock from its new owner.
    with contextlib.suppress(ValueError, TypeError, KeyError, RecursionError):
        run, mine = (str(json.loads(words)["run_id"]) for words in (os.pread(file, MOST, 0), owner))
        if run and run != mine:
            words = [sys.executable, "-I", "-S", "-c", ending, run]
            subprocess.run(words, check=False, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)


def main(path: Path, owner: str, seconds: float, ending: str) -> int:
    if not owner and not path.exists():
        say("free")
        return 0
    try:
        file = open_file(open_folder(path.parent), path)
    except Refused as refused:
        say(f"refused {refused}")
        return 3
    except OSError as error:
        wrong = " is not the kind of file that it should be: remove it;" if error.errno in ANOTHER_KIND else ":"
        say(f"refused {path}{wrong} {error.strerror}")
        return 3
    try:
        fcntl.flock(file, (fcntl.LOCK_EX if owner else fcntl.LOCK_SH) | fcntl.LOCK_NB)
    except BlockingIOError:
        say(f"busy {json.dumps(os.pread(file, MOST, 0).decode('utf-8', 'backslashreplace'))}")
        return 0
    if not owner:
        # Whoever takes or releases it writes to it.
        say(f"free {time.time() - os.fstat(file).st_mtime:.3f}")
        return 0
    end_what_is_left(file, owner, ending)
    os.ftruncate(file, 0)
    os.write(file, owner.encode("utf-8", "backslashreplace"))
    say("held")
    if was_released(seconds):
        os.ftruncate(file, 0)
    return 0


if __name__ == "__main__":
    if sys.version_info[:2] < OLDEST:
        say(f"old {sys.version.split()[0]}")
        sys.exit(3)
    sys.exit(main(Path(sys.argv[1]), sys.argv[2], float(sys.argv[3]), sys.argv[4]))
