"""The bytes of a profile in pieces, plain or gzip. A file that was cut gives what it has; `torn` says so then."""

from __future__ import annotations

import zlib
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

from gpuprep.untrusted.limits import open_regular

GZIP = b"\x1f\x8b"
_COMPRESSED = 1 << 20  # bytes read at once
_STEP = 64


class Source:
    """`read(n)` gives at most n bytes, fewer at the end, b"" after it. A bomb cannot pass n bytes of memory.

    `begin` and `end` choose a part of a file that is not compressed.
    """

    def __init__(self, path: Path, begin: int = 0, end: int | None = None) -> None:
        self._file: BinaryIO = open_regular(path)  # a pipe would be waited for
        self._left = end - begin if end is not None else None
        self.torn = False
        self.garbage = False  # bytes after the end of the gzip data, or damaged gzip data
        magic = self._file.read(2)
        self._file.seek(begin)
        self._inflate = zlib.decompressobj(31) if magic == GZIP else None
        self._waiting = b""  # compressed bytes that the last call did not need

    def __enter__(self) -> Source:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._file.close()

    def read(self, most: int) -> bytes:
        if self._inflate is None:
            got = self._file.read(most if self._left is None else min(most, self._left))
            if self._left is not None:
                self._left -= len(got)
            return got
        parts: list[bytes] = []
        missing = most
        while missing and self._inflate is not None:
            got = self._more(missing)
            parts.append(got)
            missing -= len(got)
        return b"".join(parts)

    def _more(self, most: int) -> bytes:
        """Up to `most` bytes; may be none although more follow. At the end `_inflate` becomes None."""
        inflate = self._inflate
        assert inflate is not None
        data = self._waiting or self._file.read(_COMPRESSED)
        if not data and not inflate.eof:
            # zlib may hold bytes that the last call had no room for.
            rest = inflate.decompress(b"", most)
            if rest:
                return rest
            self.torn = True
            return self._end()
        before = inflate.copy()
        try:
            got = inflate.decompress(data, most)
        except zlib.error:
            self.garbage = True
            self._end()
            return _until_damage(before, data, most)
        self._waiting = inflate.unconsumed_tail
        if inflate.eof:
            self._next_member(inflate.unused_data)
        return got

    def _next_member(self, rest: bytes) -> None:
        """gzip files may be joined; zeros may follow as padding."""
        rest = (rest or self._file.read(_COMPRESSED)).lstrip(b"\0")
        if rest[:2] == GZIP or (len(rest) == 1 and rest == GZIP[:1]):
            self._inflate, self._waiting = zlib.decompressobj(31), rest
        else:
            self.garbage = self.garbage or bool(rest)
            self._end()

    def _end(self) -> bytes:
        self._inflate = None
        self._file.seek(0, 2)  # read() finds nothing more
        return b""


def _until_damage(inflate: zlib._Decompress, data: bytes, most: int) -> bytes:
    """What can be had of `data` before its damage: zlib gives nothing of a call in which it finds some."""
    parts = bytearray()
    for place in range(0, len(data), _STEP):
        try:
            parts += inflate.decompress(data[place : place + _STEP], most)
        except zlib.error:
            break
        if len(parts) >= most:
            break
    return bytes(parts[:most])
