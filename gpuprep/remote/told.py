"""What a probe tells of its work while it runs: lines in the stderr of its command (agent/telling.py), taken out there.

They come from a host: each is limited, and what is no such line stays what it was, a part of stderr.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass

from gpuprep.agent.telling import MARK
from gpuprep.remote.limits import DOING_A_SECOND, DOING_BYTES, DOING_LETTERS
from gpuprep.untrusted.plaintext import one_line

MOST = 1_000_000
PREFIX = MARK.encode()


@dataclass(frozen=True)
class Doing:
    """`what` is at work; `done` of `of` pieces have ended, called `unit`. `of` 0: nobody knows how many there are."""

    what: str
    done: int = 0
    of: int = 0
    unit: str = ""


class Told:
    """`take` each piece of stderr: what is left of it without those lines. `heard` gets their content."""

    def __init__(self, heard: Callable[[Doing], None]) -> None:
        self._heard = heard
        self._line: bytearray | None = bytearray()  # the line that may be one of these, so far; None: it is not
        self._second, self._heard_in_it = 0, 0

    def take(self, chunk: bytes) -> bytes:
        left = bytearray()
        for piece in chunk.splitlines(keepends=True):
            if self._line is None:
                left += piece
            else:
                self._line += piece
                if not self._is_one(bytes(self._line)):
                    left += self._line
                    self._line = None
                elif piece.endswith(b"\n"):
                    left += self._said(bytes(self._line))
            if piece.endswith(b"\n"):
                self._line = bytearray()
        return bytes(left)

    @staticmethod
    def _is_one(line: bytes) -> bool:
        begin = line[: len(PREFIX)]
        return PREFIX.startswith(begin) and len(line) <= DOING_BYTES and not (begin != PREFIX and line.endswith(b"\n"))

    def _said(self, line: bytes) -> bytes:
        """b"", or the line itself where it is none of ours."""
        found = doing(line[len(PREFIX) :])
        if found is None:
            return line
        second = int(time.monotonic())
        self._heard_in_it = self._heard_in_it + 1 if second == self._second else 1
        self._second = second
        if self._heard_in_it <= DOING_A_SECOND:
            self._heard(found)
        return b""


def doing(text: bytes) -> Doing | None:
    """None for what has not the form."""
    try:
        said = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(said, dict):
        return None
    words = [said.get(key) for key in ("what", "unit")]
    numbers = [said.get(key) for key in ("done", "of")]
    if not all(isinstance(word, str) for word in words):
        return None
    if not all(type(number) is int and 0 <= number <= MOST for number in numbers):
        return None
    what, unit = (one_line(str(word), DOING_LETTERS) for word in words)
    done, of = (int(str(number)) for number in numbers)
    return Doing(what, min(done, of), of, unit)
