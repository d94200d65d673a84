"""Reads Xids: errors that the driver wrote to the kernel log of this boot.

The journal keeps all lines of a boot. If it may not be read or has no kernel lines of this boot, the kernel's ring
buffer is read, which drops old lines. "No Xid" is a result only if a log was read.
"""

from __future__ import annotations

import os
import re
import stat
import time
from datetime import datetime, timezone
from pathlib import Path
from typing import Iterator, List, Tuple, Union

from gpuprep.agent.programs.run import run
from gpuprep.records import Missing, Str, Xid

KMSG = Path("/dev/kmsg")
JOURNALCTL = "journalctl"
JOURNALS = ("/var/log/journal", "/run/log/journal")
JOURNAL_LINE = re.compile(r"\d+\.\d+ ")  # of -o short-unix
JOURNAL_HEAD = re.compile(r"\S+ (?:\S+ )?kernel: ")  # seconds since 1970, host
# NVRM: Xid (PCI:0000:83:00): 79, pid=1234, name=python3, GPU has fallen off the bus.
# NVRM: Xid (PCI:0000:01:00 GPU-I:05): 94, pid=7194, Contained: ...     of a MIG instance
# The whole message, not a part of one: the kernel also logs names of files and programs, which any user chooses.
LINE = re.compile(r"NVRM: Xid \(PCI:([0-9a-fA-F:.]+)[^)]*\): ([0-9]{1,9}),?\s*(.*)")


def xids(simulated: bool = False) -> Union[Tuple[Xid, ...], Missing]:
    """Every Xid since boot, oldest first. Missing("no_permission") if neither log may be read.

    A simulated machine is a container: it has no kernel log, and its journal has only the Xids of simulated faults.
    """
    if journal_is_readable():
        text = _journal("-g", "NVRM: Xid")
        if isinstance(text, str):
            journal_xids = tuple(from_journal(text))
            if journal_xids or simulated or (not _complaints(text) and _has_this_kernel()):
                return journal_xids
    return from_ring_buffer(KMSG)


def _journal(*words: str) -> Union[str, Missing]:
    """Kernel lines of this boot, mixed with journalctl's error messages: its exit code is 1 both for "no such line" and
    for "cannot read". `--all`: else a message with a control character, such as in a program's name, would be printed
    as "[82B blob data]".
    """
    argv = [JOURNALCTL, "--quiet", "--all", "-k", "-b", "--no-pager", "-o", "short-unix", *words]
    return run(argv, accept=(0, 1), merge_stderr=True)


def _has_this_kernel() -> bool:
    """Whether the journal has any kernel line of this boot: the journal of another boot, machine or user has none."""
    text = _journal("-n", "1")
    return isinstance(text, str) and any(JOURNAL_LINE.match(line) for line in text.splitlines())


def _complaints(text: str) -> List[str]:
    return [line for line in text.splitlines() if line and not JOURNAL_LINE.match(line)]


def journal_is_readable() -> bool:
    files = [path for folder in JOURNALS for path in Path(folder).glob("*/system.journal")]
    return any(os.access(str(path), os.R_OK) for path in files)


def from_journal(text: str) -> List[Xid]:
    """Lines of `journalctl -o short-unix`: seconds since 1970, host, "kernel:", message."""
    xids = []
    for line in text.split("\n"):  # of a message of several lines journalctl indents all but the first
        seconds = line.split(" ", 1)[0]
        known = re.fullmatch(r"[0-9]{1,11}\.[0-9]{1,9}", seconds)
        when: Str = _utc(float(seconds)) if known else Missing("unparsable", seconds[:40])
        head = JOURNAL_HEAD.match(line)
        xids += list(_parsed(line[head.end() :] if head else line, when))
    return xids


def from_ring_buffer(path: Path = KMSG) -> Union[Tuple[Xid, ...], Missing]:
    """Xids from /dev/kmsg: "priority,number,microseconds since boot,flags;message". Reading does not remove lines."""
    try:
        if not stat.S_ISCHR(path.stat().st_mode):  # in a container it may be journald's own pipe
            return Missing("command_failed", f"{path} is no kernel log, and no journal is kept")
        descriptor = os.open(str(path), os.O_RDONLY | os.O_NONBLOCK)
    except PermissionError as error:
        return Missing("no_permission", f"neither the journal nor the kernel log may be read: {error}")
    except OSError as error:
        return Missing("command_failed", str(error))
    try:
        return tuple(from_records(list(_records(descriptor)), time.time() - time.clock_gettime(time.CLOCK_MONOTONIC)))
    except OSError as error:
        return Missing("command_failed", f"{path}: {error}")
    finally:
        os.close(descriptor)


def _records(descriptor: int) -> Iterator[str]:
    while True:
        try:
            record = os.read(descriptor, 8192)
        except BlockingIOError:
            return
        except BrokenPipeError:  # records were overwritten while we read: the next read goes on after them
            continue
        if not record:
            return
        yield record.decode(errors="replace")


def from_records(records: List[str], booted: float) -> List[Xid]:
    """Xids in kernel log records. `booted`: the moment of the kernel's clock 0, in seconds since 1970."""
    xids = []
    for record in records:
        head, _, message = record.partition(";")
        fields = head.split(",")
        if len(fields) > 2 and re.fullmatch("[0-9]{1,17}", fields[2]):
            xids += list(_parsed(message.split("\n")[0], _utc(booted + int(fields[2]) / 1e6)))
    return xids


def _parsed(message: str, when: Str) -> Iterator[Xid]:
    match = LINE.match(message)
    if match:
        address, code, text = match.groups()
        yield Xid(int(code), _address(address), text.strip(), when)


def _address(text: str) -> str:
    """ "0000:83:00" or "0000:83:00.0" ─► "0000:83:00.0"."""
    return text.lower() if "." in text else f"{text.lower()}.0"


def _utc(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, timezone.utc).isoformat(timespec="seconds")
