"""The fields of a kernel module, read from its file: modinfo's output without modinfo.

Module and modinfo of the machine come from the machine's disk; neither may run with this computer's rights.
"""

from __future__ import annotations

import gzip
import lzma
import struct
import subprocess
import zlib
from typing import IO

MOST_BYTES = 512 << 20
_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")  # Elf64_Ehdr
_SECTION = struct.Struct("<IIQQQQIIQQ")  # Elf64_Shdr


def read(file: IO[bytes], name: str) -> dict[str, str]:
    """The fields of a module's .modinfo; raises ValueError where the file is no kernel module."""
    try:
        return fields(_unpacked(file, name))
    except (lzma.LZMAError, zlib.error, EOFError, OSError, OverflowError, struct.error) as error:
        raise ValueError(str(error) or type(error).__name__) from None


def _unpacked(file: IO[bytes], name: str) -> bytes:
    if name.endswith(".xz"):
        data = lzma.LZMADecompressor(memlimit=MOST_BYTES).decompress(file.read(MOST_BYTES), MOST_BYTES + 1)
    elif name.endswith(".gz"):
        data = gzip.GzipFile(fileobj=file).read(MOST_BYTES + 1)
    elif name.endswith(".zst"):
        data = _zstandard(file)
    else:
        data = file.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise ValueError(f"more than {MOST_BYTES >> 20} MiB")
    return data


def _zstandard(file: IO[bytes]) -> bytes:
    """By this computer's zstd: Python has it from 3.14 on."""
    process = subprocess.Popen(
        ["zstd", "--decompress", "--stdout", "--quiet"], stdin=file, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert process.stdout is not None
    data = process.stdout.read(MOST_BYTES + 1)
    process.stdout.close()  # ends a zstd that has more to say
    process.wait()
    return data


def fields(data: bytes) -> dict[str, str]:
    """The first value of each field of the section .modinfo of an ELF file of 64 bits; raises ValueError for others."""
    if data[:6] != b"\x7fELF\x02\x01":
        raise ValueError("no ELF file of 64 bits")
    header = _HEADER.unpack_from(data)
    table, size, count, names_at = header[6], header[11], header[12], header[13]
    sections = [_SECTION.unpack_from(data, table + number * size) for number in range(count)]
    if names_at >= count:
        raise ValueError("no section names")
    names = data[sections[names_at][4] :][: sections[names_at][5]]
    for section in sections:
        start = section[0]
        if names[start : names.find(b"\0", start)] == b".modinfo":
            return _pairs(data[section[4] :][: section[5]])
    raise ValueError("no section .modinfo")


def _pairs(text: bytes) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for entry in text.split(b"\0"):
        key, equals, value = entry.decode("utf-8", "replace").partition("=")
        if equals:
            pairs.setdefault(key, value)
    return pairs
