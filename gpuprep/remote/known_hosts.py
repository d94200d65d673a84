"""Which lines of known_hosts files are about a host? Read as OpenSSH reads them (its hostfile.c and match.c).

The names of a line are a hash of one name, or a list of patterns; a negated pattern has priority over all others.
Not read with paramiko's HostKeys, which supports no patterns, no @cert-authority and no @revoked.
"""

from __future__ import annotations

import base64
import hmac
import io
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import paramiko

from gpuprep.errors import UsageError
from gpuprep.remote.limits import KNOWN_HOSTS_BYTES

PLAIN, REVOKED, AUTHORITY = "", "@revoked", "@cert-authority"  # markers of a line
LONGEST_PATTERN = 1022  # letters; OpenSSH passes over a list with a longer one
SALT_BYTES = 20


@dataclass(frozen=True)
class Line:
    file: Path
    marker: str  # PLAIN, REVOKED or AUTHORITY
    key: paramiko.PKey


class Unreadable(UsageError):
    """The file exists, but the system refuses to read it."""


def find(files: Sequence[Path], names: Sequence[str]) -> tuple[dict[str, list[Line]], Unreadable | None]:
    """The lines of `files` about each of `names` (in small letters), and the first file that could not be read.

    OpenSSH ignores a file that cannot be read, so it matters only if no other file has the key. Raises UsageError for a
    path that is not a regular file, or for a file that is too large.
    """
    by_name: dict[str, list[Line]] = {name: [] for name in names}
    unreadable = None
    for path in files:
        try:
            text = _text(path)
        except Unreadable as error:
            unreadable = unreadable or error
            continue
        for marker, patterns, kind, blob in _lines(text, names):
            about = [name for name in by_name if matches(name, patterns)]
            if about and (key := key_of(kind, blob)):
                for name in about:
                    by_name[name].append(Line(path, marker, key))
    return by_name, unreadable


def _lines(text: str, names: Sequence[str]) -> Iterator[tuple[str, str, str, str]]:
    """(marker, names, type, key) of each line that may be about one of `names`. Incomplete lines are skipped."""
    for line in io.StringIO(text, newline="\n"):
        # Each host of a fleet has its line, and each host is looked up: lines of other hosts are not taken apart.
        small = line.lower()
        if not any(name in small for name in names) and not any(sign in small for sign in "|*?"):
            continue
        # A line ends at a NUL, as a string of C does, and only blanks and tabs divide it.
        fields = [part for part in re.split(r"[ \t]+", line.partition("\0")[0].rstrip("\r\n")) if part]
        if not fields or fields[0].startswith("#"):
            continue
        marker = fields.pop(0) if fields[0].startswith("@") else PLAIN
        if len(fields) < 3 or marker not in (PLAIN, REVOKED, AUTHORITY):
            continue
        yield marker, fields[0], fields[1], fields[2]


def _text(path: Path) -> str:
    """The file's text; "" if it does not exist or is /dev/null, which means no file. Raises UsageError, Unreadable."""
    try:
        if not path.exists() or path == Path(os.devnull):
            return ""
        if not path.is_file():
            raise UsageError(f"{path} is no regular file", "name a file of host keys, or remove it")
        with path.open("rb") as file:
            data = file.read(KNOWN_HOSTS_BYTES + 1)
    except OSError as error:
        raise Unreadable(f"{path}: {error.strerror}", "make it readable, or remove it") from error
    if len(data) > KNOWN_HOSTS_BYTES:
        raise UsageError(
            f"{path} holds more than {KNOWN_HOSTS_BYTES >> 20} MiB", "remove the lines of hosts that are gone"
        )
    return data.decode(errors="replace")


def key_of(kind: str, blob: str) -> paramiko.PKey | None:
    """The key of a line; None if it is damaged or of a type unknown to paramiko: OpenSSH skips such a line, too."""
    try:
        entry = paramiko.hostkeys.HostKeyEntry.from_line(f"host {kind} {blob}")
    except (paramiko.SSHException, paramiko.hostkeys.InvalidHostKey, ValueError):
        return None
    key = entry.key if entry is not None else None
    # paramiko takes a key with more behind it, and one of another type than the line says.
    return key if key is not None and key.get_name() == kind and key.get_base64() == blob else None


def matches(name: str, names: str) -> bool:
    """Whether the names of a line (a hash or a list of patterns) match the host `name` (in small letters)."""
    if names.startswith("|"):
        return _hashed(name, names)
    names = names.lower()
    if name not in names and "*" not in names and "?" not in names:
        return False
    fitting = False
    for pattern in names.split(","):
        if len(pattern) > LONGEST_PATTERN:
            return False
        negated = pattern.startswith("!")
        if fits(name, pattern[negated:]):
            if negated:
                return False
            fitting = True
    return fitting


def fits(name: str, pattern: str) -> bool:
    """Whether `name` matches a pattern with `*` and `?`, in at most len(name) x len(pattern) steps."""
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
    digest = base64.b64encode(hmac.digest(salt, name.encode(), "sha1"))
    return len(salt) == SALT_BYTES and hmac.compare_digest(digest, parts[3].encode())
