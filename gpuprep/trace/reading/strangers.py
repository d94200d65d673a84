"""Recognises files that are not profiles by their first bytes, for an error message that says what to do."""

from __future__ import annotations

import re

from gpuprep.errors import UsageError

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
