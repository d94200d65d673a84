"""This machine as a host: subprocesses of /bin/sh."""

from __future__ import annotations

import contextlib
import os
import select
import selectors
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from typing import IO

from gpuprep.errors import HostError
from gpuprep.remote.connection import (
    Errors,
    Lines,
    Process,
    RawResult,
    Tail,
    all_of_it,
    output_too_large,
    took_too_long,
)
from gpuprep.remote.limits import (
    COMMAND_SECONDS,
    ERROR_BYTES,
    FAREWELL_SECONDS,
    OUTPUT_BYTES,
    STOP_SECONDS,
    STOPPED_SECONDS,
)
from gpuprep.remote.watch import LOOK_SECONDS, interrupted, never

SHELL = "/bin/sh"
FAREWELL = FAREWELL_SECONDS  # a killed command that sudo made root's, or that the kernel holds, may never be gone
CHUNK = 65536


def _started(command: str, stderr: int | IO[bytes]) -> subprocess.Popen[bytes]:
    pipe = subprocess.PIPE
    return subprocess.Popen(
        [SHELL, "-c", command], stdin=pipe, stdout=pipe, stderr=stderr, bufsize=0, start_new_session=True
    )


class LocalConnection:
    """A Connection. Each command gets its own session, so Ctrl-C and time-outs end exactly that command."""

    def __init__(self, where: str, stopped: Callable[[], bool] = never) -> None:
        self.where = where
        self._stopped = stopped

    def execute(
        self,
        command: str,
        stdin: bytes,
        timeout: float = COMMAND_SECONDS,
        *,
        most: int = OUTPUT_BYTES,
        errors: Errors = all_of_it,
    ) -> RawResult:
        process = _started(command, subprocess.PIPE)
        try:
            talk = _Talk(process, stdin, most, errors)
            deadline = time.monotonic() + timeout
            stop_at = float("inf")
            while not talk.over:
                now = time.monotonic()
                if self._stopped():
                    stop_at = min(stop_at, now + STOP_SECONDS)
                if now >= min(deadline, stop_at):
                    raise TimeoutError
                talk.step(min(LOOK_SECONDS, deadline - now))
                if len(talk.stdout) > most:
                    raise output_too_large(self.where, command, most)
            process.wait(max(deadline - time.monotonic(), 0))
            _close_pipes(process)
        except (TimeoutError, subprocess.TimeoutExpired):
            stopped = self._stopped()
            ended = _give_up(process, STOPPED_SECONDS if stopped else FAREWELL)
            if stopped:
                raise interrupted(self.where) from None
            raise took_too_long(
                self.where,
                command,
                timeout,
                "" if ended else f"; it could not be ended and still runs (see `ps -s {process.pid}`)",
            ) from None
        except BaseException:
            _give_up(process)
            raise
        return RawResult(process.returncode, bytes(talk.stdout), talk.stderr.bytes())

    def start(self, command: str) -> Process:
        return LocalProcess(command, self.where)

    def host_key(self) -> str:
        return ""

    def close(self) -> None:
        pass


class _Talk:
    """Writes a process's input and reads both its outputs in steps, within the limits of memory."""

    def __init__(self, process: subprocess.Popen[bytes], stdin: bytes, most: int, errors: Errors) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        self.stdout, self.stderr = bytearray(), Tail()
        self._input, self._stdin = memoryview(stdin), process.stdin
        self._most = most
        self._errors = errors
        self._open = {process.stdout: self.stdout.extend, process.stderr: self._complain}
        self._selector = selectors.DefaultSelector()
        for pipe in (process.stdin, process.stdout, process.stderr):
            os.set_blocking(pipe.fileno(), False)
        for output in self._open:
            self._selector.register(output, selectors.EVENT_READ)
        self._selector.register(process.stdin, selectors.EVENT_WRITE)

    @property
    def over(self) -> bool:
        """Whether both outputs have ended."""
        return not self._open

    def step(self, seconds: float) -> None:
        for key, _ in self._selector.select(seconds):
            if key.fileobj is self._stdin:
                self._feed()
                continue
            chunk = os.read(key.fd, CHUNK)
            for pipe in [pipe for pipe in self._open if pipe is key.fileobj]:
                if chunk:
                    self._open[pipe](chunk)
                else:
                    self._selector.unregister(pipe)
                    del self._open[pipe]
        if self.over:
            self._selector.close()

    def _complain(self, piece: bytes) -> None:
        self.stderr.add(self._errors(piece))

    def _feed(self) -> None:
        try:
            self._input = self._input[os.write(self._stdin.fileno(), self._input[:CHUNK]) :]
        except BlockingIOError:  # the pipe has room, but for less than one write
            return
        except BrokenPipeError:  # the command did not want all of it
            self._input = self._input[:0]
        if not self._input:
            self._selector.unregister(self._stdin)
            with contextlib.suppress(BrokenPipeError):
                self._stdin.close()


class LocalProcess:
    """A Process. If gpuprep dies in any way, the kernel closes the input of the command and it ends."""

    def __init__(self, command: str, where: str) -> None:
        self.where = where
        self._stderr: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed in close()
        self._process = _started(command, self._stderr)
        self._lines = Lines(self._receive, where)

    def send(self, data: bytes) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(data)
        except (BrokenPipeError, ValueError) as error:
            raise HostError("a command ended before its input was read", where=self.where) from error

    def read_line(self, timeout: float) -> bytes:
        return self._lines.read(timeout)

    def _receive(self, timeout: float) -> bytes:
        assert self._process.stdout is not None
        if not select.select([self._process.stdout], [], [], timeout)[0]:
            raise TimeoutError
        return os.read(self._process.stdout.fileno(), CHUNK)

    def read_error(self) -> str:
        size = self._stderr.seek(0, os.SEEK_END)
        self._stderr.seek(max(size - ERROR_BYTES, 0))
        return self._stderr.read(ERROR_BYTES).decode(errors="backslashreplace")

    def ended(self, timeout: float) -> bool:
        try:
            self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            return False
        return True

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(FAREWELL)
        except subprocess.TimeoutExpired:
            _give_up(self._process)
        self._process.stdout.close()
        self._stderr.close()


def _give_up(process: subprocess.Popen[bytes], farewell: float | None = None) -> bool:
    """Kill the command and its children, close its pipes. Waits at most `farewell` s; returns whether it is gone."""
    with contextlib.suppress(ProcessLookupError, PermissionError):  # a user may not kill what sudo runs
        os.killpg(process.pid, signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(FAREWELL if farewell is None else farewell)
    _close_pipes(process)
    return process.returncode is not None


def _close_pipes(process: subprocess.Popen[bytes]) -> None:
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None:
            with contextlib.suppress(BrokenPipeError):  # input that was not read
                pipe.close()
