"""Ends any wait in an SSH library or the kernel, at a deadline or when the user stops the run.

with within(30, cut, stopped, where, late):      # late() is the error after the deadline
    ...                                          # anything that `cut` makes return or fail
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from gpuprep.errors import GpuprepError, Interrupted
from gpuprep.remote.limits import STOP_SECONDS

LOOK_SECONDS = 0.25  # between two checks whether the user stopped the run


def never() -> bool:
    return False


def interrupted(where: str, more: str = "") -> Interrupted:
    return Interrupted(f"{where}: interrupted{more}", "run the same command again", where=where)


@contextmanager
def within(
    seconds: float, cut: Callable[[], None], stopped: Callable[[], bool], where: str, late: Callable[[], GpuprepError]
) -> Iterator[None]:
    """Run the body. After `seconds`, or when the user stops the run, call `cut` repeatedly until the body ends.

    Raises late() or Interrupted instead of the exception that the cut caused in the body.
    """
    watch = _Watch(seconds, cut, stopped)
    watch.start()
    try:
        yield
    except Exception as error:
        watch.end()
        if watch.over:
            raise _why(watch, where, late) from error
        raise
    finally:
        watch.end()
    if watch.over:
        raise _why(watch, where, late)


def _why(watch: _Watch, where: str, late: Callable[[], GpuprepError]) -> GpuprepError:
    return interrupted(where) if watch.over == "stopped" else late()


class _Watch(threading.Thread):
    def __init__(self, seconds: float, cut: Callable[[], None], stopped: Callable[[], bool]) -> None:
        super().__init__(name="deadline", daemon=True)
        self.over = ""  # why it was cut: "late" or "stopped"
        self._reason = "late"
        self._ends = time.monotonic() + seconds
        self._cut, self._stopped = cut, stopped
        self._done = threading.Event()

    def end(self) -> None:
        self._done.set()

    def run(self) -> None:
        while not self._done.wait(min(LOOK_SECONDS, max(self._ends - time.monotonic(), 0.01))):
            now = time.monotonic()
            if not self.over and self._stopped() and self._ends > now + STOP_SECONDS:
                self._ends, self._reason = now + STOP_SECONDS, "stopped"
            if now >= self._ends:
                self.over = self._reason
                self._ends = now + LOOK_SECONDS  # what had not begun yet at this cut is cut next time
                self._cut()
