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


class LocalConnection:
    """Speaks Connection. A session of its own for each command keeps Ctrl-C and time-outs tidy."""

    def __init__(self, where: str) -> None:
        self.where = where

    def execute(self, command: str, stdin: bytes, timeout: float | None) -> RawResult:
        with subprocess.Popen(
            [SHELL, "-c", command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        ) as process:
            try:
                stdout, stderr = process.communicate(stdin, timeout)
            except subprocess.TimeoutExpired:
                _kill_session(process)
                raise HostError(
                    f"a command took longer than {timeout:g} s: {command:.120}",
                    "look at what the machine is busy with, then run again",
                    where=self.where,
                ) from None
            except BaseException:
                _kill_session(process)
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
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            _kill_session(self._process)
        self._process.stdout.close()
        self._stderr.close()


def _kill_session(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
