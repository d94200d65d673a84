"""Host keys: a known key is accepted, a new key only if the user agrees, a changed key never.

The rules are those of OpenSSH with StrictHostKeyChecking=yes (its sshconnect.c), host certificates included. They are
applied here and not by a separate `ssh`: that would check a connection of its own, on which an attacker may show
another key. Not supported: KnownHostsCommand, VerifyHostKeyDNS, CheckHostIP (off since OpenSSH 8.5), keys on a security
token. Instead of StrictHostKeyChecking, gpuprep's own option counts.
"""

from __future__ import annotations

import enum
import os
import re
import shlex
import subprocess
import tempfile
import time
from base64 import b64encode
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import paramiko

from gpuprep.errors import HostKeyRefused, UsageError
from gpuprep.paths import home, user_name
from gpuprep.remote import known_hosts
from gpuprep.remote.known_hosts import AUTHORITY, PLAIN, REVOKED, Line, Unreadable, key_of
from gpuprep.remote.limits import KNOWN_HOSTS_BYTES
from gpuprep.untrusted.limits import file_bytes
from gpuprep.untrusted.plaintext import command

# ---------------------------------------------------------------- certificates of hosts

# Is the certificate of a host valid for this host? paramiko checks only the key in it; the rest is checked here.
#
# The format is that of OpenSSH's PROTOCOL.certkeys.


SUFFIX = "-cert-v01@openssh.com"
NUMBERS = {"ssh-ed25519": 1, "ssh-rsa": 2}  # strings of a public key in a certificate; 2 for the ECDSA ones
FOR_HOST = 2


@dataclass(frozen=True)
class Certificate:
    """A host certificate with a valid signature. Times are seconds since 1970."""

    authority: paramiko.PKey
    kind: int
    names: tuple[str, ...]
    begin: int
    end: int
    restricted: bool  # by a critical option; none is defined for hosts

    def invalid_reason(self, host: str, now: float | None = None) -> str:
        """Why the certificate is not valid for `host` (in small letters); "" if it is. No names in it mean any host."""
        moment = int(time.time() if now is None else now)
        if self.kind != FOR_HOST:
            return "it is not a host certificate"
        if moment < self.begin:
            return "it is not valid yet"
        if moment >= self.end:
            return "it has expired"
        if self.names and host not in self.names:
            return "it is for other names"
        return "it has a critical option" if self.restricted else ""


def certificate_of(key: paramiko.PKey) -> Certificate | None:
    """The certificate that a host sent with its key; None without a certificate, or if it is damaged or not signed."""
    if key.public_blob is None:
        return None
    blob: bytes = key.public_blob.key_blob
    message = paramiko.Message(blob)
    try:
        plain = message.get_text().removesuffix(SUFFIX)
        message.get_string()  # the nonce
        for _ in range(NUMBERS.get(plain, 2)):
            message.get_string()
        message.get_int64()  # the serial number
        kind = message.get_int()
        message.get_string()  # the key id
        names = message.get_string()
        begin, end = message.get_int64(), message.get_int64()
        critical = message.get_string()
        message.get_string()  # extensions: what is not known is passed over
        message.get_string()  # reserved
        signer = message.get_string()
        signed = message.get_so_far()
        signature = message.get_string()
        authority = paramiko.PKey.from_type_string(paramiko.Message(signer).get_text(), signer)
        # A SHA-1 signature is none for paramiko, as for OpenSSH.
        is_signed = not message.get_remainder() and authority.verify_ssh_sig(signed, paramiko.Message(signature))
        if not is_signed or authority.public_blob is not None:
            return None
        return Certificate(authority, kind, _strings(names), begin, end, bool(critical))
    except Exception:  # noqa: BLE001  whatever a host's bytes make paramiko and cryptography raise: it is no certificate
        return None


def _strings(data: bytes) -> tuple[str, ...]:
    message = paramiko.Message(data)
    strings = []
    while message.get_remainder():
        strings.append(message.get_text())
    return tuple(strings)


# ---------------------------------------------------------------- revoked keys

# Is a host key in the file of the ssh_config option RevokedHostKeys? Follows OpenSSH's sshkey_check_revoked. The file
# is a list of public keys, or a KRL (key revocation list, `ssh-keygen -k`), which `ssh-keygen -Q` reads.

KRL = b"SSHKRL\n\0"
SECONDS = 30.0


def is_revoked(path: Path, key: paramiko.PKey, certificate: Certificate | None) -> bool:
    """Whether the key, its certificate or the authority that signed it is revoked.

    Raises UsageError if the file cannot be read completely: `ssh` then connects to no host.
    """
    if path == Path(os.devnull):  # people name none by it
        return False
    try:
        data = file_bytes(path, KNOWN_HOSTS_BYTES)
    except OSError as error:
        raise _unusable(path, error.strerror or str(error)) from error
    if data.startswith(KRL):
        return _in_krl(path, key)
    revoked = _listed(path, data.decode(errors="replace"))
    return key in revoked or (certificate is not None and certificate.authority in revoked)


def _listed(path: Path, text: str) -> list[paramiko.PKey]:
    keys = []
    for number, line in enumerate(text.splitlines(), 1):
        fields = line.split()
        if not fields or fields[0].startswith("#"):
            continue
        key = key_of(fields[0], fields[1]) if len(fields) > 1 else None
        if key is None:
            raise _unusable(path, f"line {number} is no public key")
        keys.append(key)
    return keys


def _in_krl(path: Path, key: paramiko.PKey) -> bool:
    shown = key.public_blob
    text = f"{key.get_name()} {key.get_base64()}"
    if shown is not None:
        text = f"{shown.key_type} {b64encode(shown.key_blob).decode()}"
    with tempfile.NamedTemporaryFile("w", suffix=".pub") as file:
        file.write(f"{text}\n")
        file.flush()
        command = ["ssh-keygen", "-Q", "-f", str(path), file.name]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
        except (OSError, subprocess.SubprocessError) as error:
            raise _unusable(path, f"ssh-keygen did not read it: {error}") from error
    if done.returncode == 0:
        return False
    if done.stdout.rstrip().endswith(": REVOKED"):
        return True
    raise _unusable(path, f"ssh-keygen did not read it: {done.stderr.strip()[-300:]}")


def _unusable(path: Path, why: str) -> UsageError:
    return UsageError(
        f"{path}: the revoked host keys cannot be read: {why}",
        "repair the file, or take RevokedHostKeys out of your SSH configuration; `ssh` refuses every host until then",
    )


# ---------------------------------------------------------------- host keys

USER_FILES = "~/.ssh/known_hosts ~/.ssh/known_hosts2"
SYSTEM_FILES = "/etc/ssh/ssh_known_hosts /etc/ssh/ssh_known_hosts2"
_NISTP = tuple(f"ecdsa-sha2-nistp{bits}" for bits in (256, 384, 521))
_PLAIN = ("ssh-ed25519", *_NISTP, "rsa-sha2-512", "rsa-sha2-256")
ALGORITHMS = (*(name + SUFFIX for name in _PLAIN), *_PLAIN)  # OpenSSH's own order, of those that paramiko has
_FITTED = [name + more for name in (*_PLAIN[:-2], *reversed(_PLAIN[-2:])) for more in ("", SUFFIX)]  # of `ssh -Q`
UNFIT_FOR_A_LINE = re.compile(r"[@?*#\[\]|'\"\\\s]")  # in a name: it would mean other hosts, or none
_TOKEN = re.compile(r"%(.)|\$\{(\w+)\}")


@dataclass(frozen=True)
class Asked:
    """How OpenSSH looks up a host in its files, by the options of the connection."""

    host: str  # its HostKeyAlias, name or address, in small letters: what a certificate must name
    port: int | None  # None: a HostKeyAlias is looked for without a port
    files: tuple[Path, ...]  # a new key goes into the first; none: nowhere
    algorithms: tuple[str, ...] = ALGORITHMS
    revoked: Path | None = None  # RevokedHostKeys

    @property
    def names(self) -> tuple[str, ...]:
        """Names to look up in known_hosts. The second is used if the first is not found."""
        return (self.host,) if self.port in (None, 22) else (f"[{self.host}]:{self.port}", self.host)


def asked(host: str, port: int, settings: Mapping[str, str], *, user: str, original: str, named: str | None) -> Asked:
    """How to look up `host`, by the `settings` of an ssh_config (keys in small letters). The user calls it `original`.

    `named` is a file that replaces all others. Raises UsageError for settings without a valid file or algorithm.
    """
    alias = settings.get("hostkeyalias", "")
    tokens = {"%": "%", "d": str(home()), "h": host, "k": alias or original, "n": original}
    tokens |= {"p": str(port), "r": user, "u": user_name()}
    files = [named or settings.get("userknownhostsfile", USER_FILES)]
    files += [] if named else [settings.get("globalknownhostsfile", SYSTEM_FILES)]
    paths = [path for text in files for path in _paths(text, tokens)] if not named else [Path(named).expanduser()]
    algorithms = _algorithms(settings.get("hostkeyalgorithms", ""))
    revoked = settings.get("revokedhostkeys", "none").strip('"')  # Debian 12's OpenSSH knows no tokens in it
    revoked_file = Path(revoked).expanduser() if revoked.lower() != "none" else None
    return Asked((alias or host).lower(), None if alias else port, tuple(paths), algorithms, revoked_file)


def _paths(text: str, tokens: Mapping[str, str]) -> list[Path]:
    def value(match: re.Match[str]) -> str:
        token, variable = match.groups()
        try:
            return tokens[token] if token else os.environ[variable]
        except KeyError:
            raise UsageError(f"{text}, the name of a known_hosts file: {match[0]} is not known") from None

    try:
        words = shlex.split(text)
    except ValueError as error:
        raise UsageError(f"{text}: not the names of known_hosts files: {error}") from error
    return [Path(_TOKEN.sub(value, word)).expanduser() for word in words if word.lower() != "none"]


def _algorithms(setting: str) -> tuple[str, ...]:
    """The algorithms of HostKeyAlgorithms, a list of patterns: `+` adds to the default, `-` removes, `^` puts first.

    Raises UsageError if no algorithm is left.
    """
    sign, patterns = (setting[0], setting[1:]) if setting[:1] in ("+", "-", "^") else ("", setting)
    named = [name for pattern in patterns.split(",") for name in _FITTED if known_hosts.fits(name, pattern)]
    rest = [name for name in ALGORITHMS if name not in named]
    chosen = {"": named, "+": ALGORITHMS, "-": rest, "^": [*named, *rest]}[sign] if setting else ALGORITHMS
    if not chosen:
        raise UsageError(
            f"HostKeyAlgorithms {setting}: gpuprep supports none of them", f"it supports {', '.join(_PLAIN)}"
        )
    return tuple(dict.fromkeys(chosen))


class Verdict(enum.Enum):
    ACCEPTED = enum.auto()
    UNKNOWN = enum.auto()
    CHANGED = enum.auto()
    REVOKED = enum.auto()


@dataclass(frozen=True)
class Known:
    """The entries of known_hosts files for one host."""

    asked: Asked
    lines: Sequence[Line]
    without_port: Known | None = None  # the same of its name alone, where the name has a port
    unreadable: Unreadable | None = None  # a file that was passed over

    def of(self, marker: str) -> list[paramiko.PKey]:
        return [line.key for line in self.lines if line.marker == marker]

    def verdict(self, key: paramiko.PKey, certificate: Certificate | None) -> Verdict:
        """The verdict on a host's key. If its certificate is not valid, the key is judged like a key without one."""
        for marker, shown in ((AUTHORITY, certificate and certificate.authority), (PLAIN, key)):
            if shown is None:
                continue
            keys = self.of(marker)
            if not {key, shown}.isdisjoint(self.of(REVOKED)):
                return Verdict.REVOKED
            if shown not in keys:
                if (marker or not keys) and self._without_port(key, certificate) == Verdict.ACCEPTED:
                    return Verdict.ACCEPTED
            elif shown is key or (certificate and not certificate.invalid_reason(self.asked.host)):
                return Verdict.ACCEPTED
        if self.of(PLAIN):
            return Verdict.CHANGED
        revoked = self._without_port(key, certificate) == Verdict.REVOKED
        return Verdict.REVOKED if revoked else Verdict.UNKNOWN

    def _without_port(self, key: paramiko.PKey, certificate: Certificate | None) -> Verdict:
        return self.without_port.verdict(key, certificate) if self.without_port else Verdict.UNKNOWN

    def algorithms(self) -> tuple[str, ...]:
        """The algorithms, those with a known key first, so that the host sends that key."""
        firsts = {key.get_name(): key for key in reversed(self.of(PLAIN))}  # OpenSSH uses the first key of a type
        types = firsts.keys() - {name for name, key in firsts.items() if key in self.of(REVOKED)}
        wanted = self.asked.algorithms
        if _type(wanted[0]) in types:
            return wanted
        authority = bool(self.of(AUTHORITY))
        return tuple(sorted(wanted, key=lambda name: not ((authority and SUFFIX in name) or _type(name) in types)))

    def why(self, certificate: Certificate | None) -> str:
        """Text after the fingerprint of an unknown key: why a certificate did not help; "" without an authority."""
        authorities = [*self.of(AUTHORITY), *(self.without_port.of(AUTHORITY) if self.without_port else [])]
        if not authorities:
            return ""
        if certificate is None:
            return " (a certificate authority is known for it, and the host shows no certificate)"
        known = certificate.authority in authorities
        wrong = certificate.invalid_reason(self.asked.host) if known else "it is of another authority"
        return f" (a certificate authority is known for it, and the host's certificate does not count: {wrong})"


def _type(algorithm: str) -> str:
    plain = algorithm.removesuffix(SUFFIX)
    return "ssh-rsa" if plain.startswith("rsa-sha2-") else plain


def load(asked: Asked) -> Known:
    """Read the known_hosts files. Raises UsageError for a path that is not a file of host keys."""
    names = asked.names
    lines, unreadable = known_hosts.find(asked.files, names)
    without_port = Known(asked, lines[names[1]]) if len(names) > 1 else None
    return Known(asked, lines[names[0]], without_port, unreadable)


@dataclass(frozen=True)
class ShownKey:
    """A host's key that is in no known_hosts file yet."""

    name: str  # of the host, as known_hosts files have it
    algorithm: str  # "ssh-ed25519"
    fingerprint: str  # "SHA256:...", as ssh shows it
    file: Path  # where it would be added


class HostKeyUnknown(HostKeyRefused):
    """Refused only because the key is not accepted yet: the user may accept it."""

    def __init__(self, what: str, hint: str, *, where: str, shown: ShownKey) -> None:
        super().__init__(what, hint, where=where)
        self.shown = shown


class KnownHostsPolicy(paramiko.MissingHostKeyPolicy):  # type: ignore[misc]  # paramiko ships no types
    """Decides on every host key: paramiko gets no known keys, so it calls this policy for each key.

    An unknown key is refused, unless `accept_new` is True or contains its fingerprint: then it is added to the first
    file. `accepting` is the command that accepts a key of this host and changes nothing there.
    """

    def __init__(self, where: str, known: Known, *, accept_new: bool | Collection[str], accepting: str = "") -> None:
        self.where = where
        self.known = known
        self.accept_new = accept_new
        self.accepting = accepting or accept_by(where)

    def missing_host_key(self, _client: paramiko.SSHClient, _hostname: str, key: paramiko.PKey) -> None:
        """Returns if the key is accepted. Raises HostKeyRefused; UsageError if a file could not be read."""
        known, shown = self.known, f"{key.get_name()} {key.fingerprint}"
        asked, certificate = known.asked, certificate_of(key)
        if asked.revoked and is_revoked(asked.revoked, key, certificate):
            raise self._revoked(shown, f"RevokedHostKeys, {asked.revoked},")
        verdict = known.verdict(key, certificate)
        if verdict == Verdict.REVOKED:
            raise self._revoked(shown, f"`@revoked` in {' or '.join(map(str, asked.files))}")
        if verdict == Verdict.CHANGED:
            raise self._changed(key)
        if verdict == Verdict.ACCEPTED:
            return
        if known.unreadable:
            raise known.unreadable
        if not asked.files or UNFIT_FOR_A_LINE.search(asked.host):
            raise HostKeyRefused(
                f"{self.where}: the host key is not known: {shown}{known.why(certificate)}",
                f"compare this fingerprint with the one that {own_fingerprint(key.get_name())}; if they are equal, add"
                " it to a known_hosts file yourself: gpuprep has no file for this name",
                where=self.where,
            )
        if not self._accepts(key):
            raise self._unknown(key, certificate, asked.files[0])
        _append(asked.files[0], f"{asked.names[0]} {key.get_name()} {key.get_base64()}\n")

    def _accepts(self, key: paramiko.PKey) -> bool:
        return self.accept_new if isinstance(self.accept_new, bool) else key.fingerprint in self.accept_new

    def _unknown(self, key: paramiko.PKey, certificate: Certificate | None, file: Path) -> HostKeyUnknown:
        shown = ShownKey(self.known.asked.names[0], key.get_name(), key.fingerprint, file)
        return HostKeyUnknown(
            f"{self.where}: the host key is not known: {shown.algorithm} {shown.fingerprint}"
            f"{self.known.why(certificate)}",
            f"compare this fingerprint with the one that {own_fingerprint(shown.algorithm)}; if they are equal,"
            f" `{self.accepting}` adds it to {file}; then run your command again",
            where=self.where,
            shown=shown,
        )

    def _revoked(self, shown: str, by: str) -> HostKeyRefused:
        return HostKeyRefused(
            f"{self.where}: THE HOST KEY IS REVOKED: {shown}; anybody may have this key",
            f"{by} names it; give the machine a new key",
            where=self.where,
        )

    def _changed(self, shown: paramiko.PKey) -> HostKeyRefused:
        """The error for a changed host key, which no option overrides."""
        lines = [line for line in self.known.lines if line.marker == PLAIN]
        line = next((line for line in lines if line.key.get_name() == shown.get_name()), lines[0])
        return HostKeyRefused(
            f"{self.where}: THE HOST KEY HAS CHANGED: known {line.key.get_name()} {line.key.fingerprint},"
            f" shown {shown.get_name()} {shown.fingerprint}; somebody may intercept the connection, or the machine was"
            " replaced",
            "only if you know that the machine was rebuilt: remove the old key with"
            f" `{command('ssh-keygen', '-f', str(line.file), '-R', self.known.asked.names[0])}`, then accept the new"
            f" one with `{self.accepting}`",
            where=self.where,
        )


def accept_by(login: str, key_file: str | None = None) -> str:
    """The command that accepts a new key of the host `login` (user@host:port)."""
    chosen = ["--ssh-key", key_file] if key_file else []
    return command("gpuprep", "plan", *chosen, "--accept-new-host-key", about=login)


def own_fingerprint(algorithm: str) -> str:
    """How to see the fingerprint of a key of this kind on the machine itself, in words."""
    kind = next((kind for kind in ("ed25519", "ecdsa", "rsa") if kind in algorithm), "*")
    return f"`ssh-keygen -lf /etc/ssh/ssh_host_{kind}_key.pub` shows on the machine's own console"


def _append(path: Path, line: str) -> None:
    """Append a line with one write, so that several runs at once do not mix their lines."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with path.open("ab+") as file:
        file.seek(0, 2)
        if file.tell() > 0:
            file.seek(-1, 2)
            if file.read(1) != b"\n":
                line = "\n" + line
        file.write(line.encode())
