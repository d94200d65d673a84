"""Runs calls that may never return in a process of their own, which reports each result at once.

A copy of the agent (fork) and not another program, because an agent that was sent along has no file to start Python
with. Start it before any thread and before anything is loaded that a fork breaks (CUDA, NVML).
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import sys
import time
from types import TracebackType
from typing import Any, Callable, Dict, Iterator, Optional, Type

from gpuprep.agent.programs import children

Tell = Callable[[Dict[str, Any]], None]
FAREWELL_SECONDS = 5.0  # for a killed worker to be gone; the kernel may hold it in a call of the driver for ever


class Silent(Exception):
    """The worker sent no message for `seconds`, which is too long."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"no answer in {seconds:.0f} s")
        self.seconds = seconds


class Worker:
    """`with Worker(work) as worker: for message in worker.messages(...)`. `work(tell)` runs in a copy of the agent.

    The copy is killed at the end of the block, and by the keeper if the agent ends first. An exception in `work`
    becomes the message {"failed": "TypeError: ..."}.
    """

    def __init__(self, work: Callable[[Tell], None]) -> None:
        self._work = work
        self._ears = -1
        self.pid = 0
        self.code: Optional[int] = None  # as subprocess has it: negative for a signal; None while it is not known

    def __enter__(self) -> Worker:
        self._ears, mouth = os.pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self._ears)
            _be_worker(self._work, mouth)
        os.close(mouth)
        with contextlib.suppress(OSError):  # the copy does the same, and one of the two is first
            os.setpgid(self.pid, self.pid)
        children.adopt(self.pid)
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], traceback: Optional[TracebackType]
    ) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        self._reap()
        os.close(self._ears)

    def messages(self, *, until: float, patience: float) -> Iterator[Dict[str, Any]]:
        """Each message, until the worker ends. Raises Silent `patience` seconds after the last one, and at `until`.

        `until` is a moment of time.monotonic.
        """
        buffer, heard = b"", time.monotonic()
        while True:
            left = min(until, heard + patience) - time.monotonic()
            if left <= 0 or not select.select([self._ears], [], [], left)[0]:
                raise Silent(time.monotonic() - heard)
            data = os.read(self._ears, 65536)
            if not data:
                self._reap()
                return
            heard = time.monotonic()
            *lines, buffer = (buffer + data).split(b"\n")
            for line in lines:
                message: Dict[str, Any] = json.loads(line)
                yield message

    def _reap(self) -> None:
        """Wait for the worker's end, at most FAREWELL_SECONDS: if it hangs in the kernel, the agent must go on."""
        if self.code is not None:
            return
        with contextlib.suppress(OSError):  # a kernel before 5.3: then it is reaped only if it is gone already
            handle = os.pidfd_open(self.pid)
            try:
                select.select([handle], [], [], FAREWELL_SECONDS)
            finally:
                os.close(handle)
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        if pid:
            self.code = os.waitstatus_to_exitcode(status)
            children.release(self.pid)


def _be_worker(work: Callable[[Tell], None], mouth: int) -> None:
    """Run `work` in the copy and send its messages. Never returns."""
    code = 1
    try:
        children.be_child()
        with os.fdopen(mouth, "w", encoding="utf-8") as out:

            def tell(message: Dict[str, Any]) -> None:
                out.write(json.dumps(message) + "\n")
                out.flush()

            try:
                work(tell)
            except Exception as error:  # noqa: BLE001  nobody else would hear of it
                tell({"failed": f"{type(error).__name__}: {error}"})
        code = 0
    finally:
        os._exit(code)
