"""The seam between Host and its transport: two small protocols, implemented by local.py and ssh.py."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from gpuprep.errors import HostError, TookTooLong
from gpuprep.remote.limits import ERROR_BYTES, LINE_BYTES, MIB

Errors = Callable[[bytes], bytes]


def all_of_it(piece: bytes) -> bytes:
    return piece


@dataclass(frozen=True)
class RawResult:
    exit_code: int
    stdout: bytes
    stderr: bytes


class Process(Protocol):
    """A running command whose input and output we use. All calls raise HostError if the connection is lost."""

    def send(self, data: bytes) -> None: ...

    def read_line(self, timeout: float) -> bytes:
        """One line without its end; b"" at the end of output.

        Raises HostError after `timeout` seconds in all, and for a line longer than limits.LINE_BYTES.
        """

    def read_error(self) -> str:
        """The command's stderr so far; only the end of a long text."""

    def ended(self, timeout: float) -> bool:
        """Wait at most `timeout` seconds for the process or its connection to end; returns whether it ended."""

    def close(self) -> None:
        """Close the command's input; the command should then end by itself."""


class Connection(Protocol):
    def execute(
        self, command: str, stdin: bytes, timeout: float, *, most: int = ..., errors: Errors = ...
    ) -> RawResult:
        """Run `command` by a POSIX shell, feed it `stdin`, wait.

        Raises HostError after `timeout` seconds, and at once after more than `most` bytes of output; Interrupted
        shortly after the user stopped the run. Of stderr the last limits.ERROR_BYTES are kept; `errors` is handed each
        piece of it as it comes, in any thread, and returns what is kept of it.
        """

    def start(self, command: str) -> Process: ...

    def host_key(self) -> str:
        """Fingerprint of the host's SSH key, "SHA256:..."; "" before the first command and without SSH."""

    def close(self) -> None: ...


class Tail:
    """Keeps the last `most` of the added bytes, and counts the bytes before them."""

    def __init__(self, most: int = ERROR_BYTES) -> None:
        self._most, self._dropped = most, 0
        self._kept = bytearray()

    def add(self, chunk: bytes) -> None:
        self._kept += chunk
        if len(self._kept) > 2 * self._most:
            self._cut()

    def bytes(self) -> bytes:
        """The kept bytes; if earlier bytes were dropped, a first line says how many."""
        self._cut()
        note = f"[gpuprep: {self._dropped} bytes of this output are left out]\n".encode() if self._dropped else b""
        return note + bytes(self._kept)

    def _cut(self) -> None:
        more = len(self._kept) - self._most
        if more > 0:
            del self._kept[:more]
            self._dropped += more


def took_too_long(where: str, command: str, timeout: float, more: str = "") -> TookTooLong:
    return TookTooLong(
        f"{where}: a command took longer than {timeout:g} s: {command:.120}",
        f"look at what the machine is busy with, then run again{more}",
        where=where,
    )


def output_too_large(where: str, command: str, most: int) -> HostError:
    size = f"{most / MIB:g} MiB" if most >= MIB else f"{most} bytes"
    return HostError(
        f"{where}: a command printed more than {size}, and was ended: {command:.120}",
        "no command of gpuprep prints so much: check which program answers on the host",
        where=where,
    )


# ---------------------------------------------------------------- lines of a running command

# Reads lines of a running command, with a limit of length and time.


class Lines:
    """`receive(seconds)` gives the next bytes, b"" at the end; it raises TimeoutError if none come in time."""

    def __init__(self, receive: Callable[[float], bytes], where: str, most: int = LINE_BYTES) -> None:
        self._receive, self._where, self._most = receive, where, most
        self._unread = bytearray()

    def read(self, timeout: float) -> bytes:
        """One line without its end; at the end of output the rest, then b"". Raises HostError."""
        deadline = time.monotonic() + timeout
        looked = 0
        while (end := self._unread.find(b"\n", looked)) < 0:
            looked = len(self._unread)
            if looked > self._most:
                break
            remaining = deadline - time.monotonic()
            try:
                # Checked after each byte: a host that always sends one byte more must time out, too.
                if remaining <= 0:
                    raise TimeoutError
                chunk = self._receive(remaining)
            except TimeoutError:
                raise HostError(
                    f"{self._where}: a command did not answer within {timeout:g} s",
                    "look at what the machine is busy with, then run again",
                    where=self._where,
                ) from None
            if not chunk:
                end = looked
                break
            self._unread += chunk
        if not 0 <= end <= self._most:
            raise HostError(
                f"{self._where}: a command printed a line of more than {self._most >> 10} KiB",
                "this is no answer of gpuprep: check which program answers on the host",
                where=self._where,
            )
        line = bytes(self._unread[:end])
        del self._unread[: end + 1]
        return line
