"""Ctrl-C and SIGTERM: the first one ends a command in order, the second one at once.

In order: KeyboardInterrupt in the main thread. What runs on hosts is ended and records are written (workflows/runs.py).
At once: the process is gone. Hosts notice that the connection is closed, and end what ran there (agent/children.py,
provisioning/keeper.py, remote/lockprogram.py).
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)
INTERRUPTED = 130
# timeout(1) and some wrappers signal a program and then its process group: that is one wish, not two.
ONE_WISH_SECONDS = 0.3
LAST_WORDS = b"Interrupted twice: ended at once. Nothing more is recorded; hosts end what ran there by themselves.\n"


class Stopping:
    """`install` makes the two signals ours. `tidy` are done before the process ends at once: a terminal in order."""

    def __init__(self) -> None:
        self._first: float | None = None
        self._tidy: list[Callable[[], None]] = []

    def install(self) -> None:
        """Signals that somebody ignores for us stay ignored, as SIGINT of a shell's background job."""
        self._first = None
        for number in SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:
                with contextlib.suppress(ValueError):  # not in the main thread: whoever started us handles signals
                    signal.signal(number, self._signalled)

    @contextlib.contextmanager
    def tidying(self, what: Callable[[], None]) -> Iterator[None]:
        self._tidy.append(what)
        try:
            yield
        finally:
            self._tidy.remove(what)

    def _signalled(self, _number: int, _frame: FrameType | None) -> None:
        now = time.monotonic()
        if self._first is None:
            self._first = now
            raise KeyboardInterrupt
        if now - self._first >= ONE_WISH_SECONDS:
            self.at_once()

    def at_once(self) -> None:
        """Never returns."""
        try:
            for what in self._tidy:
                with contextlib.suppress(Exception):
                    what()
            with contextlib.suppress(OSError):
                os.write(2, LAST_WORDS)
        finally:
            os._exit(INTERRUPTED)


STOPPING = Stopping()
