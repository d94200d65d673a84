"""Arguments and results of Host."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Target:
    """One machine to work on. Empty fields are left to ~/.ssh/config and its defaults."""

    name: str  # as the user wrote it
    address: str = ""  # what to connect to; "" is the name
    port: int = 22  # 22 gives way to the Port of ~/.ssh/config
    user: str | None = None
    identity_file: str | None = None
    known_hosts: str | None = None  # a file to use in place of the user's and the system's
    local: bool = False  # this machine, without SSH
    simulated: bool = False
    mirrors: Mapping[str, str] = field(default_factory=dict)
    profile: str = ""  # of the inventory: a name, or the path of a YAML file
    refused: str = ""  # why it is not connected to, of a host among several in an inventory

    @property
    def login(self) -> str:
        """The HOST argument for this machine without an inventory: user@address:port."""
        return self.name if self.local or self.simulated else login(self.address or self.name, self.user, self.port)


def login(address: str, user: str | None = None, port: int | None = None) -> str:
    """ "debian@web1:2222", "[2001:db8::1]:2222"; port 22 is left out."""
    usual = port in (None, 22)
    host = f"[{address}]" if ":" in address and not usual else address
    return (f"{user}@" if user else "") + host + ("" if usual else f":{port}")


@dataclass(frozen=True)
class CommandResult:
    """How a command ended. Bytes that are not UTF-8 are shown as \\xNN."""

    exit_code: int
    stdout: str
    stderr: str


@dataclass(frozen=True)
class LockOwner:
    """Who works on a host: the content of its lock file."""

    user: str
    controller: str
    run_id: str
    since: str  # UTC, ISO 8601
