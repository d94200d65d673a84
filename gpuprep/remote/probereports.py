"""Reads the progress reports of a probe from the stderr of its command (agent/probereports.py writes them).

They come from a host, so each report is limited in size. Every other line stays a part of stderr.
"""

from __future__ import annotations

import copy
import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gpuprep.agent.probereports import MARK, MEASURED
from gpuprep.remote.limits import (
    DOING_A_SECOND,
    DOING_BYTES,
    DOING_LETTERS,
    MEASURED_BYTES,
    MEASURED_DEPTH,
    MEASURED_IN_ALL,
    MEASURED_VALUES,
)
from gpuprep.untrusted.limits import PART_DEPTH, json_document
from gpuprep.untrusted.plaintext import one_line

MOST = 1_000_000


@dataclass(frozen=True)
class Doing:
    """`what` is at work; `done` of `of` pieces have ended; a piece is called `unit`. `of` 0: the number is unknown."""

    what: str
    done: int = 0
    of: int = 0
    unit: str = ""


class SoFar:
    """The values that a probe has reported so far. Filled in one thread, read in any thread."""

    def __init__(self) -> None:
        self._values: dict[str, Any] = {}
        self._bytes = self._count = 0
        self._lock = threading.Lock()

    def values(self) -> dict[str, Any]:
        """A copy of the values as unchecked JSON values; {} if nothing was measured."""
        with self._lock:
            return copy.deepcopy(self._values)

    def take(self, text: bytes) -> bool:
        """Keep the value in `text`; False if `text` is no valid report. A value beyond the limits is dropped (True)."""
        try:
            part = json_document(text.decode(), PART_DEPTH - MEASURED_DEPTH)
        except (ValueError, RecursionError):
            return False
        at = part.get("at") if isinstance(part, dict) else None
        if not isinstance(at, list) or not 0 < len(at) <= MEASURED_DEPTH or "value" not in part:
            return False
        with self._lock:
            self._bytes += len(text)
            self._count += text.count(b",") + text.count(b"[") + text.count(b"{")
            if self._bytes > MEASURED_IN_ALL or self._count > MEASURED_VALUES:
                return True
            return _put(self._values, at, part["value"])


def _put(place: Any, at: list[Any], value: Any) -> bool:
    """Put `value` at the path `at`, and make missing objects and lists on the way; False for an impossible path."""
    key, *further = at
    if further:
        inner = _inner(place, key)
        made = inner is None
        inner = ({} if isinstance(further[0], str) else []) if made else inner
        return _put(inner, further, value) and (not made or _put(place, [key], inner))
    if isinstance(place, dict) and isinstance(key, str):
        place[key] = value
    elif isinstance(place, list) and type(key) is int and 0 <= key <= len(place):
        place[key : key + 1] = [value]
    else:
        return False
    return True


def _inner(place: Any, key: Any) -> Any:
    """The value at `key`; None if there is no value yet."""
    if isinstance(place, dict) and isinstance(key, str):
        return place.get(key)
    return place[key] if isinstance(place, list) and type(key) is int and 0 <= key < len(place) else None


class ProbeReports:
    """`take` each piece of stderr; returns the piece without reports. Their content goes to `heard` and `so_far`."""

    def __init__(self, heard: Callable[[Doing], None], so_far: SoFar | None = None) -> None:
        self._heard, self._so_far = heard, so_far or SoFar()
        self._line: bytearray | None = bytearray()  # the line that may be one of these, so far; None: it is not
        self._second, self._heard_in_it = 0, 0

    def take(self, chunk: bytes) -> bytes:
        left = bytearray()
        for piece in chunk.splitlines(keepends=True):
            if self._line is None:
                left += piece
            else:
                self._line += piece
                if not self._is_one(self._line):
                    left += self._line
                    self._line = None
                elif piece.endswith(b"\n"):
                    left += self._take(bytes(self._line))
            if piece.endswith(b"\n"):
                self._line = bytearray()
        return bytes(left)

    @staticmethod
    def _is_one(line: bytearray) -> bool:
        """Whether a line is a report, or may become one when the rest arrives; checks only its beginning."""
        ended = line.endswith(b"\n")
        return any(
            len(line) <= most and (line.startswith(mark) or (not ended and mark.startswith(bytes(line[: len(mark)]))))
            for mark, most in ((MARK.encode(), DOING_BYTES), (MEASURED.encode(), MEASURED_BYTES))
        )

    def _take(self, line: bytes) -> bytes:
        """Handle a line: b"" for a report, the line itself for any other line."""
        if line.startswith(MEASURED.encode()):
            return b"" if self._so_far.take(line[len(MEASURED) :]) else line
        progress = doing(line[len(MARK) :])
        if progress is None:
            return line
        second = int(time.monotonic())
        self._heard_in_it = self._heard_in_it + 1 if second == self._second else 1
        self._second = second
        if self._heard_in_it <= DOING_A_SECOND:
            self._heard(progress)
        return b""


def doing(text: bytes) -> Doing | None:
    """The report of progress in `text`; None if `text` has another form."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(document, dict):
        return None
    words = [document.get(key) for key in ("what", "unit")]
    numbers = [document.get(key) for key in ("done", "of")]
    if not all(isinstance(word, str) for word in words):
        return None
    if not all(type(number) is int and 0 <= number <= MOST for number in numbers):
        return None
    what, unit = (one_line(str(word), DOING_LETTERS) for word in words)
    done, of = (int(str(number)) for number in numbers)
    return Doing(what, min(done, of), of, unit)
