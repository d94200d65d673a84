"""Reads lines of a running command, with a limit of length and time."""

from __future__ import annotations

import time
from collections.abc import Callable

from gpuprep.errors import HostError
from gpuprep.remote.limits import LINE_BYTES


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
