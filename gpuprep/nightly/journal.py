"""Writes one line to systemd's journal, or to a terminal. Imports nothing that could fail to load."""

from __future__ import annotations

import os
import traceback
from pathlib import Path
from typing import TextIO

from gpuprep.untrusted.plaintext import one_line

MOST_LETTERS = 4000  # of a line: journald keeps 48 KiB, a person reads less
# syslog's levels, as systemd takes them at the begin of a line
ERROR, WARNING, INFO = 3, 4, 6


def say(priority: int, text: str, stream: TextIO) -> None:
    """Write one line; for systemd's journal with its priority in front (sd-daemon(3))."""
    mark = f"<{priority}>" if _is_journal(stream) else ""
    stream.write(f"{mark}{one_line(text, MOST_LETTERS)}\n")
    stream.flush()


def where(error: BaseException) -> str:
    """ "KeyError: 'x' (driver.py:123)": the error and its place, on one line."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {error}{place}"


def _is_journal(stream: TextIO) -> bool:
    """Whether the stream is systemd's journal: JOURNAL_STREAM has its device and inode (systemd.exec(5))."""
    try:
        place = os.fstat(stream.fileno())
    except (OSError, ValueError):
        return False
    return os.environ.get("JOURNAL_STREAM") == f"{place.st_dev}:{place.st_ino}"
