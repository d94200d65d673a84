"""Host keys: a known one is wanted, a new one is taken only on the user's word, a changed one never.

known_hosts files are read as OpenSSH reads them (its hostfile.c and match.c): names are lists of patterns of which a
negated one counts before all others, or a hash of one name; a key counts if any line has it. Stricter than OpenSSH in
two things: a key that any line revokes is nobody's, and a host of which only keys of other types are known has changed.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import paramiko

from gpuprep.errors import HostKeyRefused, UsageError
from gpuprep.remote.limits import KNOWN_HOSTS_BYTES

USER_FILE = Path("~/.ssh/known_hosts")
SYSTEM_FILE = Path("/etc/ssh/ssh_known_hosts")
REVOKED, AUTHORITY = "@revoked", "@cert-authority"
LONGEST_PATTERN = 1022  # letters; OpenSSH passes over a list with a longer one
SALT_BYTES = 20


@dataclass
class Known:
    """What known_hosts files say of one host. Keys are paramiko's; of `revoked` the base64."""

    keys: list[paramiko.PKey] = field(default_factory=list)
    without_port: list[paramiko.PKey] = field(default_factory=list)  # noted for the name alone, though a port is asked
    revoked: set[str] = field(default_factory=set)  # of whichever hosts: a key that was stolen is nobody's
    authority: bool = False  # a certificate of the host would do, if paramiko could check one

    @property
    def types(self) -> frozenset[str]:
        return frozenset(key.get_name() for key in self.keys)


def load(host: str, port: int, user_file: Path, *, with_system: bool) -> Known:
    """What `user_file` and, unless that one was named on purpose, the system's say of `host`.

    Raises UsageError for a file that cannot be read.
    """
    host = host.lower()
    name = noted_name(host, port)
    known = Known()
    for path in [SYSTEM_FILE, user_file] if with_system else [user_file]:
        for marker, names, kind, blob in _lines(path):
            if marker == REVOKED:
                known.revoked.add(blob)
            elif matches(name, names):
                known.authority |= marker == AUTHORITY
                known.keys += [] if marker else _key(kind, blob)
            elif name != host and not marker and matches(host, names):
                known.without_port += _key(kind, blob)
    return known


def noted_name(host: str, port: int) -> str:
    return host if port == paramiko.client.SSH_PORT else f"[{host}]:{port}"


def _lines(path: Path) -> Iterator[tuple[str, str, str, str]]:
    """Of each line: a marker such as @revoked or "", the names, the type and the key. Torn ones are passed over."""
    for line in _text(path).split("\n"):
        if not line:
            continue
        # A line ends at a NUL, as a string of C does, and only blanks and tabs divide it.
        fields = [part for part in re.split(r"[ \t]+", line.partition("\0")[0].rstrip("\r")) if part]
        if not fields or fields[0].startswith("#"):
            continue
        marker = fields.pop(0) if fields[0].startswith("@") else ""
        if len(fields) < 3 or marker not in ("", REVOKED, AUTHORITY):
            continue
        yield marker, fields[0], fields[1], fields[2]


def _text(path: Path) -> str:
    """ "" where there is no such file."""
    try:
        if not path.exists():
            return ""
        if not path.is_file():
            raise UsageError(f"{path} is no regular file", "name a file of host keys, or remove it")
        with path.open("rb") as file:
            data = file.read(KNOWN_HOSTS_BYTES + 1)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}", "make it readable, or remove it") from error
    if len(data) > KNOWN_HOSTS_BYTES:
        raise UsageError(
            f"{path} holds more than {KNOWN_HOSTS_BYTES >> 20} MiB", "remove the lines of hosts that are gone"
        )
    return data.decode(errors="replace")


def _key(kind: str, blob: str) -> list[paramiko.PKey]:
    """Nothing where it is torn, or of a type that paramiko does not know: OpenSSH passes such a line over, too."""
    try:
        entry = paramiko.hostkeys.HostKeyEntry.from_line(f"host {kind} {blob}")
    except (paramiko.SSHException, paramiko.hostkeys.InvalidHostKey, ValueError):
        return []
    key = entry.key if entry is not None else None
    # paramiko takes a key with more behind it, and one of another type than the line says.
    return [key] if key is not None and key.get_name() == kind and key.get_base64() == blob else []


def matches(name: str, names: str) -> bool:
    """Whether the first field of a line, a hash or a list of patterns, means the host `name` (in small letters)."""
    if names.startswith("|"):
        return _hashed(name, names)
    names = names.lower()
    if name not in names and "*" not in names and "?" not in names:
        return False
    found = False
    for pattern in names.split(","):
        if len(pattern) > LONGEST_PATTERN:
            return False
        negated = pattern.startswith("!")
        if _fits(name, pattern[negated:]):
            if negated:
                return False
            found = True
    return found


def _fits(name: str, pattern: str) -> bool:
    """`*` and `?` alone are special. Each step goes on in one of the two: no pattern takes long."""
    i = at = resume = 0
    star = -1  # where in the pattern the last star is
    while i < len(name):
        if at < len(pattern) and pattern[at] == "*":
            star, resume = at, i
            at += 1
        elif at < len(pattern) and pattern[at] in (name[i], "?"):
            at += 1
            i += 1
        elif star >= 0:  # the last star takes one letter more
            resume += 1
            at, i = star + 1, resume
        else:
            return False
    return all(letter == "*" for letter in pattern[at:])


def _hashed(name: str, noted: str) -> bool:
    parts = noted.split("|")
    if len(parts) != 4 or parts[1] != "1":
        return False
    try:
        salt = base64.b64decode(parts[2], validate=True)
    except ValueError:
        return False
    digest = base64.b64encode(hmac.new(salt, name.encode(), hashlib.sha1).digest())
    return len(salt) == SALT_BYTES and hmac.compare_digest(digest, parts[3].encode())


class KnownHostsPolicy(paramiko.MissingHostKeyPolicy):  # type: ignore[misc]  # paramiko ships no types
    """The one judge of a host's key: paramiko is taught no keys, so it asks for each.

    One that is not known is refused, or with `accept_new` becomes a new line.
    """

    def __init__(self, where: str, known_hosts: Path, known: Known, *, accept_new: bool) -> None:
        self.where = where
        self.known_hosts = known_hosts
        self.known = known
        self.accept_new = accept_new

    def missing_host_key(self, _client: paramiko.SSHClient, hostname: str, key: paramiko.PKey) -> None:
        """Returns for a key that counts. Raises HostKeyRefused."""
        known, shown = self.known, f"{key.get_name()} {key.fingerprint}"
        if key.get_base64() in known.revoked:
            raise HostKeyRefused(
                f"{self.where}: THE HOST KEY IS REVOKED: {shown}; who has it may be anybody",
                f"`@revoked` in {self.known_hosts} or {SYSTEM_FILE} names it; give the machine a new key",
                where=self.where,
            )
        if key in known.keys:
            return
        if known.keys:
            same = [one for one in known.keys if one.get_name() == key.get_name()]
            raise changed(self.where, hostname, key, (same or known.keys)[0], self.known_hosts)
        if key in known.without_port:
            return
        if not self.accept_new:
            by_authority = (
                " (its line is one of a certificate authority, and gpuprep cannot check host certificates)"
                if known.authority
                else ""
            )
            raise HostKeyRefused(
                f"{self.where}: the host key is not known: {shown}{by_authority}",
                "compare this fingerprint with the one of the machine's console; if they are equal, run again with"
                f" --accept-new-host-key, which adds it to {self.known_hosts}",
                where=self.where,
            )
        _append(self.known_hosts, f"{hostname.lower()} {key.get_name()} {key.get_base64()}\n")


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
