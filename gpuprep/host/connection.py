"""The seam between Host and what carries it: two small protocols, spoken by local.py and ssh.py."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class RawResult:
    exit_code: int
    stdout: bytes
    stderr: bytes


class Process(Protocol):
    """A command that goes on while we talk to it. All calls raise HostError when the host is gone."""

    def send(self, data: bytes) -> None: ...

    def read_line(self, timeout: float) -> bytes:
        """One line without its end; b"" at the end of output. Raises HostError after `timeout` seconds."""

    def read_error(self) -> str:
        """What it has said on stderr so far."""

    def ended(self, timeout: float) -> bool:
        """Wait at most `timeout` seconds for the process or its connection to end."""

    def close(self) -> None:
        """End its input; the process is expected to leave by itself."""


class Connection(Protocol):
    def execute(self, command: str, stdin: bytes, timeout: float | None) -> RawResult:
        """Run `command` by a POSIX shell, feed it `stdin`, wait. Raises HostError after `timeout` seconds."""

    def start(self, command: str) -> Process: ...

    def close(self) -> None: ...
