"""This machine as a host: subprocesses of /bin/sh."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import tempfile
import time
from typing import IO

from gpuprep.errors import HostError
from gpuprep.host.connection import Process, RawResult

SHELL = "/bin/sh"
FAREWELL = 5.0  # seconds for a killed command to be gone; one that sudo made root's, or the kernel holds, may never be


class LocalConnection:
    """Speaks Connection. A session of its own for each command keeps Ctrl-C and time-outs tidy."""

    def __init__(self, where: str) -> None:
        self.where = where

    def execute(self, command: str, stdin: bytes, timeout: float | None) -> RawResult:
        process = subprocess.Popen(
            [SHELL, "-c", command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        try:
            stdout, stderr = process.communicate(stdin, timeout)
        except subprocess.TimeoutExpired:
            gone = _give_up(process)
            raise HostError(
                f"a command took longer than {timeout:g} s: {command:.120}",
                "look at what the machine is busy with, then run again"
                + ("" if gone else f"; it could not be ended and still runs (see `ps -s {process.pid}`)"),
                where=self.where,
            ) from None
        except BaseException:
            _give_up(process)
            raise
        return RawResult(process.returncode, stdout, stderr)

    def start(self, command: str) -> Process:
        return LocalProcess(command, self.where)

    def close(self) -> None:
        pass


class LocalProcess:
    """Speaks Process. When we die, however hard, the kernel closes its input and it leaves."""

    def __init__(self, command: str, where: str) -> None:
        self.where = where
        self._stderr: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed in close()
        self._process = subprocess.Popen(
            [SHELL, "-c", command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            bufsize=0,
            start_new_session=True,
        )

    def send(self, data: bytes) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(data)
        except (BrokenPipeError, ValueError) as error:
            raise HostError("a command ended before its input was read", where=self.where) from error

    def read_line(self, timeout: float) -> bytes:
        assert self._process.stdout is not None
        line = b""
        deadline = time.monotonic() + timeout
        while not line.endswith(b"\n"):
            remaining = max(deadline - time.monotonic(), 0)
            if not select.select([self._process.stdout], [], [], remaining)[0]:
                raise HostError(f"a command did not answer within {timeout:g} s", where=self.where)
            byte = self._process.stdout.read(1)
            if not byte:
                break
            line += byte
        return line.rstrip(b"\n")

    def read_error(self) -> str:
        self._stderr.seek(0)
        return self._stderr.read().decode(errors="backslashreplace")

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


def _give_up(process: subprocess.Popen[bytes]) -> bool:
    """Kill the command and what it started, close its pipes. Waits FAREWELL at most; whether it is gone."""
    with contextlib.suppress(ProcessLookupError, PermissionError):  # a user may not kill what sudo runs
        os.killpg(process.pid, signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(FAREWELL)
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None:
            with contextlib.suppress(BrokenPipeError):  # input that was not read
                pipe.close()
    return process.returncode is not None
