"""A program on a terminal of its own: what it writes to stderr is read as a terminal would, with pyte."""

from __future__ import annotations

import fcntl
import io
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType

import pyte

SECONDS = 600.0  # ends a hang
INTERRUPT = b"\x03"


class Screen:
    """What stands on a terminal, and what went out at its top."""

    def __init__(self, columns: int = 80, lines: int = 24) -> None:
        self._screen = pyte.HistoryScreen(columns, lines, history=5000, ratio=0.5)
        self._screen.set_mode(pyte.modes.LNM)  # as the line discipline of a terminal: a newline begins a line
        self._stream = pyte.ByteStream(self._screen)
        self.raw = b""

    def feed(self, data: bytes) -> None:
        self.raw += data
        self._stream.feed(data)

    @property
    def rows(self) -> list[str]:
        return [row.rstrip() for row in self._screen.display]

    @property
    def shown(self) -> list[str]:
        """The rows that have something on them."""
        return [row for row in self.rows if row]

    @property
    def everything(self) -> list[str]:
        """The same with all that was scrolled away, oldest first."""
        columns = range(self._screen.columns)
        gone = ["".join(line[column].data for column in columns).rstrip() for line in self._screen.history.top]
        return [row for row in gone if row] + self.shown

    @property
    def cursor_hidden(self) -> bool:
        return bool(self._screen.cursor.hidden)


class Program:
    """`python -c program`, its stdin and stderr a terminal; stdout is a file, or with `all_of_it` the terminal, too."""

    def __init__(
        self,
        program: str,
        out: Path,
        env: Mapping[str, str],
        *,
        columns: int = 80,
        lines: int = 24,
        all_of_it: bool = False,
    ) -> None:
        self.screen = Screen(columns, lines)
        self._out = out
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        kept = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "COLUMNS", "LINES")}
        with out.open("wb") as file:
            self._process = subprocess.Popen(
                ["setsid", "--ctty", sys.executable, "-c", program],
                stdin=theirs,
                stdout=theirs if all_of_it else file,
                stderr=theirs,
                env={**kept, "TERM": "xterm-256color", **env},
            )
        os.close(theirs)

    def __enter__(self) -> Program:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait(SECONDS)
        os.close(self._ours)

    def until(self, there: Callable[[Screen], bool]) -> Screen:
        """Read until `there` says yes. Fails where the program ends before, or after SECONDS."""
        deadline = time.monotonic() + SECONDS
        while not there(self.screen):
            assert self._read(deadline), "\n".join(["it ended, and this was its screen:", *self.screen.everything])
        return self.screen

    def end(self) -> tuple[int, str, Screen]:
        """Exit code, stdout and the screen when it has ended."""
        deadline = time.monotonic() + SECONDS
        while self._read(deadline):
            pass
        return self._process.wait(SECONDS), self._out.read_text(), self.screen

    def type(self, letters: bytes) -> None:
        os.write(self._ours, letters)

    def _read(self, deadline: float) -> bool:
        ready, _, _ = select.select([self._ours], [], [], max(0.0, deadline - time.monotonic()))
        assert ready, "\n".join(["nothing more came, and this was the screen:", *self.screen.everything])
        try:
            data = os.read(self._ours, 1 << 16)
        except OSError:  # EIO: the last of those that had the terminal has closed it
            return False
        self.screen.feed(data)
        return bool(data)


class Terminal(io.StringIO):
    """A stream that says it is a terminal, or is one no more."""

    gone = False

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return "utf-8"

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        if self.gone:
            raise OSError(5, "Input/output error")
        return super().write(text)
