"""Which files are profiles, and what are their bytes? Unpacked where compressed; a report is exported by nsys."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, NamedTuple

from gpuprep.errors import UsageError
from gpuprep.untrusted.limits import open_regular
from gpuprep.untrusted.plaintext import one_line

READABLE = "give a .json or .json.gz of torch.profiler, or an .sqlite of nsys export"
ENOUGH = 300  # bytes that tell

# The first bytes, what they are of, and what to do.
_BEGINNINGS: tuple[tuple[bytes, str, str], ...] = (
    (b"PK\x03\x04", "a zip archive", "unpack it, and give the .json in it"),
    (b"\x28\xb5\x2f\xfd", "compressed with zstd", "unpack it (zstd -d FILE), and give the .json"),
    (b"\xfd7zXZ\x00", "compressed with xz", "unpack it (xz -d FILE), and give the .json"),
    (b"BZh", "compressed with bzip2", "unpack it (bzip2 -d FILE), and give the .json"),
    (b"\x1f\x8b", "compressed twice", "unpack it once (gunzip FILE), and give what comes out"),
    (b"\xff\xfe\x00\x00", "text in UTF-32", "convert it: iconv -f UTF-32 -t UTF-8 FILE"),
    (b"\xff\xfe", "text in UTF-16", "convert it: iconv -f UTF-16 -t UTF-8 FILE"),
    (b"\xfe\xff", "text in UTF-16", "convert it: iconv -f UTF-16 -t UTF-8 FILE"),
    (b"{\x00", "text in UTF-16", "convert it: iconv -f UTF-16LE -t UTF-8 FILE"),
    (b"\x00{", "text in UTF-16", "convert it: iconv -f UTF-16BE -t UTF-8 FILE"),
    (b"SQLite format 3\x00", "an SQLite file, compressed", "unpack it (gunzip FILE), and give the .sqlite"),
    (b"\x80\x04", "a pickle, perhaps a memory snapshot of PyTorch", "open such at pytorch.org/memory_viz"),
    (b"\x80\x05", "a pickle, perhaps a memory snapshot of PyTorch", "open such at pytorch.org/memory_viz"),
    (b"<!DOCTYPE", "a web page", READABLE),
    (b"<html", "a web page", READABLE),
    (b"version https://git-lfs", "a pointer of Git LFS", "get the file itself: git lfs pull"),
)
_EVENT = re.compile(rb'\s*\{\s*"(?:ph|cat|name|pid|tid|ts|dur)"\s*:')
_TAR = (257, b"ustar")
_OTHER = "no JSON with traceEvents"


def refusal(name: str, begin: bytes) -> UsageError:
    """The error of a file that begins with `begin` (unpacked where it was compressed) and is no trace."""
    what, todo = _what(begin)
    return UsageError(f"{name}: this is no profile that gpuprep can read: {what}", todo)


def _what(begin: bytes) -> tuple[str, str]:
    if begin[_TAR[0] :].startswith(_TAR[1]):
        return "a tar archive", "unpack it, and give the .json in it"
    if _EVENT.match(begin) and b'"ph"' in begin:
        return "one event a line (NDJSON)", "make it one list: jq -s '{traceEvents: .}' FILE > trace.json"
    return next(((what, todo) for first, what, todo in _BEGINNINGS if begin.startswith(first)), (_OTHER, READABLE))


GZIP = b"\x1f\x8b"
_COMPRESSED = 1 << 20  # bytes read at once
_STEP = 64


class Source:
    """`read(n)` gives at most n bytes, fewer at the end, b"" after it. A decompression bomb never needs more than n
    bytes of memory.

    `begin` and `end` choose a part of a file that is not compressed.
    """

    def __init__(self, path: Path, begin: int = 0, end: int | None = None) -> None:
        self._file: BinaryIO = open_regular(path)  # opening a pipe would block
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
    """The part of `data` before the damage: zlib returns nothing from a call in which it finds damage."""
    parts = bytearray()
    for place in range(0, len(data), _STEP):
        try:
            parts += inflate.decompress(data[place : place + _STEP], most)
        except zlib.error:
            break
        if len(parts) >= most:
            break
    return bytes(parts[:most])


JSON = (".json", ".json.gz")
REPORTS = (".nsys-rep", ".qdrep")
ENDINGS = (*JSON, ".sqlite", *REPORTS)
DEEPEST = 3
_MOST_FILES = 10_000  # files looked at
_PEEK = 4 << 20  # of a JSON file; a list of all ranks may stand before the events
_LIST = re.compile(rb'\s*\[\s*\{[^{}]{0,2000}"ph"\s*:')


class Found(NamedTuple):
    profiles: list[Path]
    others: list[Path]  # of a folder: called like profiles and none: JSON of something else, empty files
    too_deep: int = 0  # folders that were not opened, because they are more than DEEPEST folders below


def shown(path: Path) -> str:
    """The file's name as errors say it: a name may have line breaks in it."""
    return one_line(path.name, 200)


def look(path: Path) -> Found:
    """`path` itself where it is a file, else the profiles in it and below it, by name. UsageError without one.

    It opens each JSON file of a folder: look once. An .nsys-rep whose export stands beside it is passed over.
    """
    if not path.is_dir():
        if not path.exists():
            raise UsageError(f"{shown(path)}: no such file or folder")
        return Found([path], [])
    made = Found([], [])
    files, too_deep = _files(path)
    for entry in files:
        (made.profiles if is_profile(entry) else made.others).append(entry)
    exports = {entry.with_suffix("") for entry in made.profiles if entry.suffix == ".sqlite"}
    profiles = [entry for entry in made.profiles if entry.suffix not in REPORTS or entry.with_suffix("") not in exports]
    if not profiles:
        hint = f"profiles end in {', '.join(ENDINGS)}"
        if too_deep:
            hint += f"; of folders inside folders, only {DEEPEST} levels are searched: name the folder of one run"
        raise UsageError(f"{shown(path)}: no profile in this folder", hint)
    return Found(profiles, made.others, too_deep)


def find(path: Path) -> list[Path]:
    """The profiles of look()."""
    return look(path).profiles


def _files(folder: Path) -> tuple[list[Path], int]:
    """Files with an ending of profiles, at most DEEPEST folders below, and how many folders are deeper.

    Links to folders are not followed.
    """
    paths: list[Path] = []
    too_deep = 0
    for place, folders, files in os.walk(folder):
        here = Path(place)
        if len(here.relative_to(folder).parts) >= DEEPEST:
            too_deep += len(folders)
            folders.clear()
        folders.sort()
        paths += [here / name for name in sorted(files) if name.endswith(ENDINGS)]
        if len(paths) > _MOST_FILES:
            raise UsageError(
                f"{shown(folder)}: more than {_MOST_FILES} files that could be profiles; give a folder of one run"
            )
    return [entry for entry in paths if entry.is_file()], too_deep


def is_profile(path: Path) -> bool:
    """Whether it looks like one by its begin; what is no JSON, or cannot be read, is reported when it is opened."""
    if not path.name.endswith(JSON):
        return True
    try:
        with Source(path) as source:
            begin = source.read(_PEEK)
    except OSError:
        return True
    return b'"traceEvents"' in begin or bool(_LIST.match(begin))


_SECONDS = 3600
# Where NVIDIA's packages put it without a link in PATH.
PLACES = (
    "/opt/nvidia/nsight-systems*/*/bin/nsys",
    "/opt/nvidia/nsight-systems*/*/target-linux-*/nsys",
    "/usr/local/cuda*/bin/nsys",
)


@contextmanager
def exported(report: Path) -> Iterator[Path]:
    """The export in a folder of its own, which is removed afterwards. UsageError without nsys, or when it fails."""
    nsys = nsys_program()
    if not nsys:
        raise UsageError(
            f"{shown(report)}: a report of Nsight Systems; only nsys can open it, and it is not installed here",
            "where nsys is installed: nsys export --type sqlite --lazy=false FILE.nsys-rep, then give the .sqlite",
        )
    with tempfile.TemporaryDirectory(prefix="gpuprep-nsys-") as folder:
        target = Path(folder) / "export.sqlite"
        command = [nsys, "export", "--type", "sqlite", "--output", str(target), str(report.resolve())]
        try:
            done = subprocess.run(
                command,
                capture_output=True,
                text=True,
                errors="replace",
                stdin=subprocess.DEVNULL,
                timeout=_SECONDS,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise UsageError(f"{shown(report)}: nsys export did not end: {one_line(str(error))}") from error
        if done.returncode or not target.is_file():
            words = one_line((done.stderr or done.stdout)[-2000:], 300)
            raise UsageError(f"{shown(report)}: nsys export failed (exit {done.returncode}): {words}")
        yield target


def nsys_program() -> str:
    """Path of nsys, "" where there is none; the newest where there are several outside of PATH."""
    if on_path := shutil.which("nsys"):
        return on_path
    others = [str(path) for pattern in PLACES for path in Path("/").glob(pattern.lstrip("/"))]
    return max(others, default="")
