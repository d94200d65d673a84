"""Reads a machine's disk from outside, as root, without being led out of it.

Root of a machine can put anything on its disk: links to this computer's files, pipes that nobody writes to, endless
files. So no file is opened by its path on this computer, and nothing on the disk is executed or written.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

from gpuprep.sim import kernelcalls

MOST_NAMES = 100_000
MOST_DEPTH = 16


class Disk:
    """The files below a folder, seen as by a process whose root directory it is. To be used in a `with`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._fd = os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)

    def __enter__(self) -> Disk:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _: TracebackType | None
    ) -> None:
        os.close(self._fd)

    def read(self, path: str, most: int) -> bytes | None:
        """A regular file's first `most` bytes; None where there is none, or something else."""
        with self.file(path) as file:
            if file is None:
                return None
            content = bytearray()
            while len(content) < most and (block := os.read(file, min(most - len(content), 1 << 20))):
                content += block
            return bytes(content)

    @contextlib.contextmanager
    def file(self, path: str) -> Iterator[int | None]:
        """The descriptor of a regular file, open for reading; None where there is none, or something else."""
        fd = self._open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
        try:
            yield fd if fd is not None and stat.S_ISREG(os.fstat(fd).st_mode) else None
        finally:
            if fd is not None:
                os.close(fd)

    def names(self, path: str) -> list[str]:
        """The names in a folder, sorted; none where there is no folder. At most MOST_NAMES."""
        return [entry.name for entry in self._entries(path)]

    def files(self, path: str) -> list[str]:
        """Those of them that are regular files."""
        return [entry.name for entry in self._entries(path) if entry.is_file]

    def walk(self, path: str) -> Iterator[str]:
        """The paths of everything below a folder that is no folder itself. Links to folders are not followed."""
        waiting, seen = [(path, 0)], 0
        while waiting:
            folder, depth = waiting.pop()
            for entry in self._entries(folder):
                seen += 1
                if seen > MOST_NAMES:
                    return
                if not entry.is_folder:
                    yield f"{folder}/{entry.name}"
                elif depth < MOST_DEPTH:
                    waiting.append((f"{folder}/{entry.name}", depth + 1))

    def _entries(self, path: str) -> list[_Entry]:
        fd = self._open(path, os.O_RDONLY | os.O_DIRECTORY)
        if fd is None:
            return []
        try:
            entries = []
            with os.scandir(fd) as listing:
                for entry in listing:
                    entries.append(_Entry(entry))
                    if len(entries) >= MOST_NAMES:
                        break
            return sorted(entries, key=lambda entry: entry.name)
        finally:
            os.close(fd)

    def _open(self, path: str, flags: int) -> int | None:
        try:
            return kernelcalls.open_below(self._fd, path, flags)
        except OSError as error:
            if error.errno in kernelcalls.CANNOT:
                raise
            return None  # not there, a loop of links, a socket, a mount of something else


class _Entry:
    __slots__ = ("is_file", "is_folder", "name")

    def __init__(self, entry: os.DirEntry[str]) -> None:
        self.name = entry.name
        self.is_file = entry.is_file(follow_symlinks=False)
        self.is_folder = entry.is_dir(follow_symlinks=False)
