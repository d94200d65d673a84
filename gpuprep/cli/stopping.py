"""Ctrl-C and SIGTERM: the first one ends a command in order, the second one at once.

In order: KeyboardInterrupt in the main thread. What runs on hosts is ended and records are written (workflows/runs.py).
At once: the process is gone. Hosts notice that the connection is closed, and end what ran there
(agent/programs/children.py, provisioning/keeper.py, remote/lockprogram.py).
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

SIGNALS = (signal.SIGINT, signal.SIGTERM)
INTERRUPTED = 130
# timeout(1) and some wrappers signal a program and then its process group: that is one wish, not two.
ONE_WISH_SECONDS = 0.3
AGAIN_SECONDS = 0.05
LAST_WORDS = b"Interrupted twice: ended at once. Nothing more is recorded; hosts end what ran there by themselves.\n"


class Stopping:
    """Handles SIGINT and SIGTERM after `install`. What `tidying` names is called before the process ends at once."""

    def __init__(self) -> None:
        self._first: float | None = None
        self._number: int = signal.SIGINT
        self._tidy: list[Callable[[], None]] = []
        self._otherwise = sys.unraisablehook

    def install(self) -> None:
        """Handle both signals, except one that our parent set to be ignored, such as SIGINT of a background job."""
        self._first = None
        if sys.unraisablehook != self._dropped:
            self._otherwise, sys.unraisablehook = sys.unraisablehook, self._dropped
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

    def _signalled(self, number: int, _frame: FrameType | None) -> None:
        now = time.monotonic()
        if self._first is None:
            self._first, self._number = now, number
            raise KeyboardInterrupt
        if now - self._first >= ONE_WISH_SECONDS:
            self.at_once()

    def _dropped(self, args: UnraisableHookArgs) -> None:
        """Raise an interrupt again that Python dropped because it came while an object was destroyed."""
        if self._first is None or not issubclass(args.exc_type, KeyboardInterrupt):
            self._otherwise(args)
            return
        self._first = None
        main = threading.main_thread().ident
        assert main is not None  # a thread that runs has one
        again = threading.Timer(AGAIN_SECONDS, signal.pthread_kill, (main, self._number))
        again.daemon = True
        again.start()

    def at_once(self) -> None:
        """Call all of `tidying` and end the process. Never returns."""
        try:
            for what in self._tidy:
                with contextlib.suppress(Exception):
                    what()
            with contextlib.suppress(OSError):
                os.write(2, LAST_WORDS)
        finally:
            os._exit(INTERRUPTED)


STOPPING = Stopping()
