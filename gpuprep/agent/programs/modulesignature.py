"""Splits a kernel module into the module and the signature that `sign-file` appended, in the kernel's own format.

    module, signature (PKCS#7), 12 bytes with the signature's kind and length, "~Module signature appended~\\n"

A module may be compressed; the signature is inside. The module is written to a file, because it may have 100 MiB.
"""

from __future__ import annotations

import gzip
import lzma
import os
import struct
from pathlib import Path
from typing import IO, BinaryIO, Optional, Union

from gpuprep.agent.programs import children
from gpuprep.agent.programs.run import SEARCH_PATH
from gpuprep.records import Missing
from gpuprep.untrusted.limits import MIB, open_regular

MARK = b"~Module signature appended~\n"
INFO = struct.Struct(">5B3sI")  # struct module_signature: algorithm, hash, kind, name and key lengths, padding, length
PKCS7 = 2  # the only kind that a kernel since 4.3 takes
MOST_MODULE = 256 * MIB
MOST_SIGNATURE = 64 * 1024
CHUNK = MIB
UNPACKED = 8  # times as large as packed, about
ZSTD_SECONDS = 60


class Broken(ValueError):
    """A signature that the kernel could not read either; the text says why."""


def room(path: Path) -> int:
    """About how many MiB the unpacked module needs. Raises OSError."""
    packed = path.suffix in (".xz", ".gz", ".zst")
    return 16 + min(path.stat().st_size * (UNPACKED if packed else 1), MOST_MODULE) // MIB


def split(path: Path, target: Path) -> Union[bytes, Missing, None]:
    """Write the module without its signature to `target`. Returns the signature; None if there is none; or Missing.

    Raises Broken, and OSError if the disk is full.
    """
    failed = unpack(path, target)
    if failed is not None:
        return failed
    with target.open("r+b") as file:
        size = file.seek(0, os.SEEK_END)
        if _at(file, size - len(MARK), len(MARK)) != MARK:
            return None
        end = size - len(MARK) - INFO.size
        if end < 0:
            raise Broken("the file is shorter than the end of a signature")
        algorithm, digest, kind, name, key, padding, length = INFO.unpack(_at(file, end, INFO.size))
        if kind != PKCS7 or algorithm or digest or name or key or any(padding):
            raise Broken("it is of a kind that kernels do not take")
        if not 0 < length <= min(end - 1, MOST_SIGNATURE):
            raise Broken(f"it says that it has {length} bytes, in a module of {end}")
        signature = _at(file, end - length, length)
        file.truncate(end - length)
        return signature


def unpack(path: Path, target: Path) -> Optional[Missing]:
    """Write the unpacked module to `target`; returns None, or Missing with the reason of a failure."""
    try:
        if path.suffix == ".zst":
            return _by_zstd(path, target)
        with open_regular(path) as packed:
            if path.suffix == ".xz":
                return _copy(lzma.open(packed), target, path)
            if path.suffix == ".gz":
                return _copy(gzip.open(packed), target, path)
            return _copy(packed, target, path)
    except (lzma.LZMAError, EOFError, gzip.BadGzipFile) as error:
        return Missing("unparsable", f"{path} cannot be unpacked: {error}")
    except PermissionError as error:
        return Missing("no_permission", str(error))
    except FileNotFoundError as error:
        return Missing("command_failed", str(error))


def _copy(source: "IO[bytes] | lzma.LZMAFile | gzip.GzipFile", target: Path, path: Path) -> Optional[Missing]:
    left = MOST_MODULE
    with target.open("wb") as file:
        while True:
            chunk = source.read(CHUNK)
            if not chunk:
                return None
            left -= len(chunk)
            if left < 0:
                return Missing("impossible", f"{path} is larger than {MOST_MODULE // MIB} MiB")
            file.write(chunk)


def _by_zstd(path: Path, target: Path) -> Optional[Missing]:
    """Unpack with the program zstd, which Python lacks before 3.14. Stops at the size limit, so a bomb is harmless."""
    import subprocess
    import threading

    try:
        process = children.start(
            ["zstd", "-dcq", "--", str(path)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, env={"PATH": SEARCH_PATH, "LC_ALL": "C"},
        )  # fmt: skip
    except FileNotFoundError:
        return Missing("command_not_found", "zstd, which unpacks the module")
    except OSError as error:
        return Missing("command_failed", f"zstd: {error}")
    clock = threading.Timer(ZSTD_SECONDS, process.kill)
    clock.start()
    try:
        assert process.stdout is not None
        failed = _copy(process.stdout, target, path)
        if failed is None and process.wait() != 0:
            failed = Missing("command_failed", f"zstd: {path} cannot be unpacked")
    finally:
        clock.cancel()
        children.end(process)
        if process.stdout is not None:
            process.stdout.close()
    return failed


def _at(file: BinaryIO, position: int, length: int) -> bytes:
    if position < 0:
        return b""
    file.seek(position)
    return file.read(length)
