"""Runs several pieces of work at the same time, in threads that do not keep gpuprep from ending.

Python waits for the threads of concurrent.futures when it ends: a call that never returns (a name server that does
not answer) would keep the program running. The threads here are daemons.
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

_Result = TypeVar("_Result")

# A signal that comes just before a thread begins to wait for a lock does not end that wait: Python handles it after the
# next return. On a busy computer one in thirty Ctrl-C was lost so.
LOOK_SECONDS = 0.5


class Pool(Generic[_Result]):
    """Calls each of `works` once, `threads` at a time, from the first wait() on. `results`: by place in `works`."""

    def __init__(self, works: list[Callable[[], _Result]], threads: int) -> None:
        self.results: dict[int, _Result] = {}
        self._works = deque(enumerate(works))
        self._left = len(works)
        self._broke: BaseException | None = None
        self._changed = threading.Condition()
        self._threads = max(1, min(threads, len(works)))
        self._begun = 0

    def wait(self, seconds: float | None) -> bool:
        """Wait at most `seconds`; returns whether all works have ended. Raises a BaseException that ended one of them.

        You can call it again after a KeyboardInterrupt.
        """
        while self._begun < self._threads:
            self._begun += 1
            threading.Thread(target=self._work, name=f"host {self._begun}", daemon=True).start()
        until = math.inf if seconds is None else time.monotonic() + seconds
        with self._changed:
            while self._left and (seconds_left := until - time.monotonic()) > 0:
                self._changed.wait(min(seconds_left, LOOK_SECONDS))
            if not self._left and self._broke is not None:
                raise self._broke
            return not self._left

    def _work(self) -> None:
        while True:
            try:
                number, work = self._works.popleft()
            except IndexError:
                return
            try:
                self.results[number] = work()
            except BaseException as error:  # noqa: BLE001  raised again by wait()
                self._broke = self._broke or error
            with self._changed:
                self._left -= 1
                self._changed.notify_all()
