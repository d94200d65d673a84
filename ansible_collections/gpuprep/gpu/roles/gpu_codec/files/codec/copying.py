"""Copies files of another user to a new folder of root: plain files and folders only, limited in number and size."""

from __future__ import annotations

import lzma
import os
import stat
import tarfile
from pathlib import Path
from typing import IO

from parts import Refused
from state import FILE_NAME, MANIFEST_FILES

MOST_BYTES = 1 << 30
MOST_FILES = MANIFEST_FILES
DEEPEST = 8
BLOCK = 1 << 20
# Of one read: tarfile reads a long name or an extended header whole, of whatever length the archive says.
MOST_AT_ONCE = 1 << 24
FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class Budget:
    """What may still come, of files and of bytes."""

    def __init__(self) -> None:
        self.files, self.bytes = MOST_FILES, MOST_BYTES

    def take(self, name: str, files: int = 0, size: int = 0) -> None:
        self.files -= files
        self.bytes -= size
        if self.files < 0:
            raise Refused(f"a build of more than {MOST_FILES} files and folders is none (at {name!a:.80})")
        if self.bytes < 0:
            raise Refused(f"a build of more than {MOST_BYTES} bytes is none (at {name!a:.80})")


def copy_out(root: Path, steps: tuple[str, ...], target: Path, owner: int) -> float:
    """Copy root/steps to the empty folder `target`; returns when the newest file in it was written (Unix time).

    `root` is ours. Below it everything may be a trap of the user `owner`: each name is opened from its folder's
    descriptor and no link is followed; files of anybody else (a hard link to /etc/shadow) are refused.
    """
    folder = os.open(root, FOLDER)
    shown = root
    try:
        if os.fstat(folder).st_uid != os.geteuid():
            raise Refused(f"{root} belongs to another user (id {os.fstat(folder).st_uid})")
        for step in steps:
            shown /= step
            below = entered(folder, step, shown)
            os.close(folder)
            folder = below
        return copy_folder(folder, shown, target, owner, Budget(), DEEPEST)
    finally:
        os.close(folder)


def entered(folder: int, name: str, shown: Path) -> int:
    try:
        return os.open(name, FOLDER, dir_fd=folder)
    except OSError as error:
        raise Refused(f"{str(shown)!a:.300} is no folder: {error.strerror}") from error


def copy_folder(folder: int, shown: Path, target: Path, owner: int, budget: Budget, deeper: int) -> float:
    newest = 0.0
    with os.scandir(folder) as entries:
        for entry in entries:
            name, here = entry.name, shown / entry.name
            budget.take(str(here), files=1)
            if not FILE_NAME.fullmatch(name) or name in (".", "..") or deeper == 0:
                raise Refused(f"{str(here)!a:.300} has no place in a build")
            if entry.is_dir(follow_symlinks=False):
                below = entered(folder, name, here)
                try:
                    newest = max(newest, copy_folder(below, here, target / name, owner, budget, deeper - 1))
                finally:
                    os.close(below)
            else:
                newest = max(newest, copy_file(folder, name, here, target / name, owner, budget))
    return newest


def copy_file(folder: int, name: str, shown: Path, target: Path, owner: int, budget: Budget) -> float:
    try:
        descriptor = os.open(name, FILE, dir_fd=folder)
    except OSError as error:
        raise Refused(f"{str(shown)!a:.300} has no place in a build: {error.strerror}") from error
    with os.fdopen(descriptor, "rb") as source:
        info = os.fstat(descriptor)
        if not stat.S_ISREG(info.st_mode) or info.st_uid != owner:
            raise Refused(f"{str(shown)!a:.300} has no place in a build: it is no plain file of the user that built")
        write(source, target, bool(info.st_mode & 0o100), str(shown), budget)
    return info.st_mtime


def write(source: IO[bytes], target: Path, executable: bool, shown: str, budget: Budget) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)  # a folder without a file is not made
    with target.open("xb") as copy:
        for block in iter(lambda: source.read(BLOCK), b""):
            budget.take(shown, size=len(block))
            copy.write(block)
    target.chmod(0o755 if executable else 0o644)


# ---------------------------------------------------------------- archives


class Measured:
    """The inside of an .xz, which may not be longer than a build is, nor be read whole at once."""

    def __init__(self, stream: lzma.LZMAFile, name: str) -> None:
        self._stream, self._name = stream, name

    def read(self, size: int = -1) -> bytes:
        if not 0 <= size <= MOST_AT_ONCE:
            raise Refused(f"{self._name} holds a header of {size} bytes")
        self._within(self._stream.tell() + size)
        return self._stream.read(size)

    def seek(self, position: int) -> int:
        self._within(position)
        return self._stream.seek(position)

    def tell(self) -> int:
        return self._stream.tell()

    def _within(self, position: int) -> None:
        if position > MOST_BYTES + MOST_AT_ONCE:
            raise Refused(f"{self._name} unpacks to more than {MOST_BYTES} bytes")


def unpack(archive: Path, folder: Path) -> None:
    """Plain files below the empty `folder` only; no name twice."""
    budget = Budget()
    with lzma.open(archive) as stream, tarfile.open(fileobj=Measured(stream, str(archive)), mode="r:") as tar:
        for member in tar:
            budget.take(member.name, files=1)
            parts = member.name.split("/")
            known = FILE_NAME.fullmatch(member.name) and ".." not in parts and "." not in parts
            if not known or len(parts) > DEEPEST or member.issparse() or not (member.isreg() or member.isdir()):
                raise Refused(f"{archive} holds {member.name!a:.200}, which has no place in a build")
            content = tar.extractfile(member) if member.isreg() else None
            if content is None:
                continue
            try:
                write(content, folder / member.name, bool(member.mode & 0o100), member.name, budget)
            except (FileExistsError, NotADirectoryError) as error:
                raise Refused(f"{archive} holds {member.name!a:.200} twice") from error
