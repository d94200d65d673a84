"""Host keys: a known one is wanted, a new one is taken only on the user's word, a changed one never."""

from __future__ import annotations

import hmac
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

import paramiko

from gpuprep.errors import HostKeyRefused

USER_FILE = Path("~/.ssh/known_hosts")
SYSTEM_FILE = Path("/etc/ssh/ssh_known_hosts")


def load(client: paramiko.SSHClient, host: str, port: int, user_file: Path, *, with_system: bool) -> frozenset[str]:
    """Teach `client` the host's keys of `user_file` and, unless that one was named on purpose, of the system's.

    The host's alone: paramiko's own reader compares each line with all before it, for every host of a fleet. Gives the
    keys (base64) that a line revokes: of whichever hosts, for a key that was stolen is nobody's.
    """
    name = host if port == paramiko.client.SSH_PORT else f"[{host}]:{port}"  # as paramiko looks it up
    files = [SYSTEM_FILE, user_file] if with_system else [user_file]
    lines = [fields for path in files if path.is_file() for fields in _lines(path)]
    revoked = frozenset(fields[3] for fields in lines if fields[0] == "@revoked" and len(fields) > 3)
    known = client.get_host_keys()
    for fields in lines:
        if any(_is(name, noted) for noted in fields[0].split(",")):
            key = _key(fields)
            # Of two keys of one type the first counts.
            if key and key.get_base64() not in revoked and key.get_name() not in (known.lookup(name) or ()):
                known.add(name, key.get_name(), key)
    return revoked


def _lines(path: Path) -> Iterator[list[str]]:
    """The fields of each line of a known_hosts file: names, type and key, after a marker such as @revoked."""
    for line in path.read_text(errors="replace").split("\n"):
        fields = line.split()
        if len(fields) > 2 and not fields[0].startswith("#"):
            yield fields


def _key(fields: Sequence[str]) -> paramiko.PKey | None:
    """None where it is torn, or of a type that paramiko does not know: such a line is passed over, as OpenSSH does."""
    try:
        entry = paramiko.hostkeys.HostKeyEntry.from_line(" ".join(fields[:3]))
    except (paramiko.SSHException, paramiko.hostkeys.InvalidHostKey, ValueError):
        return None
    return entry.key if entry is not None else None


def _is(name: str, noted: str) -> bool:
    if not noted.startswith("|1|"):
        return noted == name
    try:
        return hmac.compare_digest(paramiko.HostKeys.hash_host(name, noted).encode(), noted.encode())
    except (ValueError, IndexError, AssertionError):  # a salt that is none
        return False


class KnownHostsPolicy(paramiko.MissingHostKeyPolicy):  # type: ignore[misc]  # paramiko ships no types
    """What happens when a host shows a key of which known_hosts has none: refusal, or with `accept_new` a new line."""

    def __init__(self, where: str, known_hosts: Path, *, accept_new: bool, revoked: Collection[str] = ()) -> None:
        self.where = where
        self.known_hosts = known_hosts
        self.accept_new = accept_new
        self.revoked = revoked

    def missing_host_key(self, client: paramiko.SSHClient, hostname: str, key: paramiko.PKey) -> None:
        if key.get_base64() in self.revoked:
            raise HostKeyRefused(
                f"{self.where}: THE HOST KEY IS REVOKED: {key.get_name()} {key.fingerprint}; who has it may be anybody",
                f"`@revoked` in {self.known_hosts} or {SYSTEM_FILE} names it; give the machine a new key",
                where=self.where,
            )
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
