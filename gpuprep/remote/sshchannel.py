"""One command over one SSH channel: to its end, or as a Process.

A login shell may print anything before our command begins (an echo in .bashrc). So our command first prints a secret
line, and its own output is what follows that line.
"""

from __future__ import annotations

import contextlib
import secrets
import shlex
import threading
import time
from collections.abc import Callable
from typing import Any

import paramiko

from gpuprep.errors import HostError, HostUnreachable
from gpuprep.remote.connection import Errors, Lines, RawResult, Tail, all_of_it, output_too_large, took_too_long
from gpuprep.remote.limits import (
    ERROR_BYTES,
    FAREWELL_SECONDS,
    GRACE_SECONDS,
    LINE_BYTES,
    NOISE_BYTES,
    SEND_SECONDS,
    TOLD_LETTERS,
    WINDOW_BYTES,
)
from gpuprep.remote.sshfailures import OTHER_USER
from gpuprep.remote.transport import is_flooded
from gpuprep.remote.watch import never, within
from gpuprep.untrusted.plaintext import one_line

CHUNK = 65536
CLOSE_SECONDS = FAREWELL_SECONDS + GRACE_SECONDS
GONE = (paramiko.SSHException, OSError, EOFError)


class Marked:
    """A command that prints a secret line before it begins, and the login shell's output before that line."""

    def __init__(self, command: str, where: str, user: str) -> None:
        self.command = command
        self._where, self._user = where, user
        self._mark = f"gpuprep {secrets.token_hex(16)}\n".encode()
        self._before: bytearray | None = bytearray()  # None once the mark was seen

    @property
    def begun(self) -> bool:
        return self._before is None

    def for_shell(self) -> str:
        """The command for the user's login shell, which may not be a POSIX shell."""
        marked = f"echo '{self._mark.decode().strip()}'\n{self.command}"
        return f"exec /bin/sh -c {shlex.quote(marked)}"

    def own(self, chunk: bytes) -> bytes:
        """The part of `chunk` that the command itself printed. Raises HostError if the shell's output does not end."""
        if self._before is None:
            return chunk
        looked = max(len(self._before) - len(self._mark), 0)
        self._before += chunk
        at = self._before.find(self._mark, looked)
        if at > NOISE_BYTES or (at < 0 and len(self._before) > NOISE_BYTES):
            raise self._noisy()
        if at < 0:
            return b""
        own = bytes(self._before[at + len(self._mark) :])
        self._before = None
        return own

    def never_began(self, stderr: bytes) -> HostError:
        """The error if the shell ended without running our command: a closed account, a forced command of sshd."""
        output = one_line(_text(bytes(self._before or b"") or stderr), TOLD_LETTERS)
        if other := OTHER_USER.search(output):
            return HostError(
                f'{self._where}: {self._user} may not log in there; the host says: login as the user "{other[1]}"',
                f"name HOST as {other[1]}@ADDRESS; of an inventory's host set `ansible_user: {other[1]}`",
                where=self._where,
            )
        return HostError(
            f"{self._where}: the login shell of {self._user} did not run our command"
            + (f"; its output: {output}" if output else " and printed nothing"),
            f"can {self._user} log in there and run commands? `ssh {self._user}@HOST true` shows it",
            where=self._where,
        )

    def _noisy(self) -> HostError:
        output = one_line(_text(bytes(self._before or b"")), TOLD_LETTERS)
        return HostError(
            f"{self._where}: the shell of {self._user} prints more than {NOISE_BYTES >> 10} KiB at login: {output}",
            "remove what prints it from ~/.bashrc, ~/.profile or the like",
            where=self._where,
        )


def _text(data: bytes) -> str:
    return data.decode(errors="backslashreplace")


def lost(where: str, command: str) -> HostUnreachable:
    return HostUnreachable(
        f"{where}: the connection was lost while a command ran: {command:.120}",
        "check that the machine is up, then run again",
        where=where,
    )


def converse(
    channel: Any,
    marked: Marked,
    stdin: bytes,
    timeout: float,
    most: int,
    where: str,
    cut: Callable[[], None],
    errors: Errors = all_of_it,
) -> tuple[int, RawResult]:
    """Send the input and read the output to its end: paramiko's exit status (-1: none) and the result.

    Raises HostError if the command took too long, printed too much (then `cut` is called), or never began.
    """
    deadline = time.monotonic() + timeout
    stdout, stderr = bytearray(), Tail()
    # One thread each for what must not wait for the others: a full pipe on either side would stop all.
    feeder = threading.Thread(target=_feed, args=(channel, stdin), daemon=True)
    listener = threading.Thread(target=_drain, args=(channel, stderr, deadline, errors), daemon=True)
    feeder.start()
    listener.start()
    try:
        while chunk := _received(channel, where, marked.command, most):
            stdout += marked.own(chunk)
            if len(stdout) > most:
                cut()  # closing the channel would need the host's help
                raise output_too_large(where, marked.command, most)
            channel.settimeout(_left(deadline))
        if not channel.status_event.wait(_left(deadline)):
            raise TimeoutError
        listener.join(_left(deadline))
    except TimeoutError:
        raise took_too_long(where, marked.command, timeout) from None
    finally:
        with contextlib.suppress(*GONE):
            channel.close()
    return channel.exit_status, RawResult(channel.exit_status, bytes(stdout), stderr.bytes())


def _received(channel: Any, where: str, command: str, most: int) -> bytes:
    """The next bytes of stdout; b"" at the end. Raises HostError if the host sent too much and the connection ended."""
    try:
        chunk: bytes = channel.recv(CHUNK)
    except GONE:  # paramiko could not tell the host that there is room again
        if not is_flooded(channel):
            raise
        chunk = b""
    if not chunk and is_flooded(channel):
        raise output_too_large(where, command, min(most, WINDOW_BYTES))
    return chunk


def _left(deadline: float) -> float:
    """Seconds until the deadline. Checked before each wait: a host that sends byte by byte must not be endless."""
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


def _feed(channel: Any, stdin: bytes) -> None:
    with contextlib.suppress(*GONE):  # the command did not want all of it
        channel.sendall(stdin)
        channel.shutdown_write()


def _drain(channel: Any, into: Tail, deadline: float, errors: Errors) -> None:
    with contextlib.suppress(*GONE):
        while time.monotonic() < deadline and (chunk := channel.recv_stderr(CHUNK)):
            into.add(errors(chunk))


class SshProcess:
    """A Process. `cut` ends the connection, for a host that does not read our input."""

    def __init__(self, channel: Any, marked: Marked, where: str, cut: Callable[[], None]) -> None:
        self.where = where
        self._channel, self._marked, self._cut = channel, marked, cut
        self._lines = Lines(self._receive, where)

    def send(self, data: bytes) -> None:
        try:
            with within(SEND_SECONDS, self._cut, never, self.where, self._stuck):
                self._channel.settimeout(SEND_SECONDS)
                self._channel.sendall(data)
        except GONE as error:
            raise HostError(f"{self.where}: a command ended before its input was read", where=self.where) from error

    def read_line(self, timeout: float) -> bytes:
        with within(timeout + GRACE_SECONDS, self._cut, never, self.where, self._stuck):
            try:
                line = self._lines.read(timeout)
            except GONE as error:
                raise lost(self.where, self._marked.command) from error
        if not line and not self._marked.begun and self._channel.eof_received:
            raise self._marked.never_began(self.read_error().encode())
        return line

    def _receive(self, timeout: float) -> bytes:
        ends = time.monotonic() + timeout
        while True:
            self._channel.settimeout(_left(ends))
            chunk = self._channel.recv(min(CHUNK, LINE_BYTES))
            own = self._marked.own(chunk)
            if own or not chunk:
                return own

    def read_error(self) -> str:
        self._channel.status_event.wait(FAREWELL_SECONDS)
        stderr = Tail()
        ends = time.monotonic() + FAREWELL_SECONDS
        with contextlib.suppress(*GONE):
            while self._channel.recv_stderr_ready() and time.monotonic() < ends:
                stderr.add(self._channel.recv_stderr(min(CHUNK, ERROR_BYTES)))
        return _text(stderr.bytes())

    def ended(self, timeout: float) -> bool:
        return bool(self._channel.status_event.wait(timeout) or self._channel.closed)

    def close(self) -> None:
        with contextlib.suppress(HostError), within(CLOSE_SECONDS, self._cut, never, self.where, self._stuck):
            with contextlib.suppress(*GONE):
                self._channel.shutdown_write()
                self._channel.status_event.wait(FAREWELL_SECONDS)
            with contextlib.suppress(*GONE):
                self._channel.close()

    def _stuck(self) -> HostError:
        return HostError(
            f"{self.where}: the host does not read what is sent to it",
            "look at what the machine is busy with, then run again",
            where=self.where,
        )
