"""Several pieces of work at the same time, in threads that nobody has to wait for.

The threads of concurrent.futures are waited for when Python ends: a call that never returns (a name server that does
not answer) would keep the whole program. These are daemons.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

_Result = TypeVar("_Result")


class Pool(Generic[_Result]):
    """Each of `works` is called once, `threads` of them at a time; `results` fills by their numbers."""

    def __init__(self, works: list[Callable[[], _Result]], threads: int) -> None:
        self.results: dict[int, _Result] = {}
        self._works = deque(enumerate(works))
        self._left = len(works)
        self._broke: BaseException | None = None
        self._changed = threading.Condition()
        for number in range(max(1, min(threads, len(works)))):
            threading.Thread(target=self._work, name=f"host {number}", daemon=True).start()

    def wait(self, seconds: float | None) -> bool:
        """Whether all have ended; waits for it, at most `seconds`. Raises what ended a work that is no Exception."""
        with self._changed:
            ended = self._changed.wait_for(lambda: self._left == 0, seconds)
            if ended and self._broke is not None:
                raise self._broke
            return ended

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
