"""Host keys: a known one is wanted, a new one is taken only on the user's word, a changed one never."""

from __future__ import annotations

import hmac
from collections.abc import Iterator
from pathlib import Path

import paramiko

from gpuprep.errors import HostKeyRefused

USER_FILE = Path("~/.ssh/known_hosts")
SYSTEM_FILE = Path("/etc/ssh/ssh_known_hosts")


def load(client: paramiko.SSHClient, host: str, port: int, user_file: Path, *, with_system: bool) -> None:
    """Teach `client` the host's keys of `user_file` and, unless that one was named on purpose, of the system's.

    The host's alone: paramiko's own reader compares each line with all before it, for every host of a fleet.
    """
    name = host if port == paramiko.client.SSH_PORT else f"[{host}]:{port}"  # as paramiko looks it up
    for path in [SYSTEM_FILE, user_file] if with_system else [user_file]:
        if path.is_file():
            for key in _known(path, name):
                known = client.get_host_keys()
                if key.get_name() not in (known.lookup(name) or ()):  # of two keys of one type the first counts
                    known.add(name, key.get_name(), key)


def _known(path: Path, name: str) -> Iterator[paramiko.PKey]:
    """What a known_hosts file has for `name`, in the clear or hashed. Raises InvalidHostKey for a key that is torn."""
    for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
        if not line.strip():
            continue
        names, *rest = line.split(maxsplit=1)
        if rest and any(_is(name, each) for each in names.split(",")):
            entry = paramiko.hostkeys.HostKeyEntry.from_line(line.strip(), number)
            if entry is not None:  # else of a type that paramiko does not know
                yield entry.key


def _is(name: str, noted: str) -> bool:
    if not noted.startswith("|1|"):
        return noted == name
    try:
        return hmac.compare_digest(paramiko.HostKeys.hash_host(name, noted), noted)
    except (ValueError, AssertionError):  # a salt that is none
        return False


class KnownHostsPolicy(paramiko.MissingHostKeyPolicy):  # type: ignore[misc]  # paramiko ships no types
    """What happens when a host shows a key of which known_hosts has none: refusal, or with `accept_new` a new line."""

    def __init__(self, where: str, known_hosts: Path, *, accept_new: bool) -> None:
        self.where = where
        self.known_hosts = known_hosts
        self.accept_new = accept_new

    def missing_host_key(self, client: paramiko.SSHClient, hostname: str, key: paramiko.PKey) -> None:
        if not self.accept_new:
            raise HostKeyRefused(
                f"{self.where}: the host key is not known: {key.get_name()} {key.fingerprint}",
                "compare this fingerprint with the one of the machine's console; if they are equal, run again with"
                f" --accept-new-host-key, which adds it to {self.known_hosts}",
                where=self.where,
            )
        _append(self.known_hosts, f"{hostname} {key.get_name()} {key.get_base64()}\n")
        client.get_host_keys().add(hostname, key.get_name(), key)


def changed(where: str, hostname: str, shown: paramiko.PKey, known: paramiko.PKey, known_hosts: Path) -> HostKeyRefused:
    """The refusal of a host that shows another key than the one that is known: never overridden by an option."""
    return HostKeyRefused(
        f"{where}: THE HOST KEY HAS CHANGED: known {known.get_name()} {known.fingerprint},"
        f" shown {shown.get_name()} {shown.fingerprint}; somebody may be listening in, or the machine was replaced",
        "only if you know that the machine was rebuilt: remove the old key with"
        f" `ssh-keygen -f {known_hosts} -R '{hostname}'`, then run again with --accept-new-host-key",
        where=where,
    )


def _append(path: Path, line: str) -> None:
    """One write in append mode, so that several runs at once do not tear each other's lines."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with path.open("ab+") as file:
        file.seek(0, 2)
        if file.tell() > 0:
            file.seek(-1, 2)
            if file.read(1) != b"\n":
                line = "\n" + line
        file.write(line.encode())
