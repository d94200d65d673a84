"""Which of the user's keys, and which user, does a host let in? For `gpuprep init` alone.

The search is bounded: sshd ends a connection after MaxAuthTries failures (6 by default, 4 if it is hardened), and from
OpenSSH 9.8 on it refuses an address after three failed connections.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import fabric
import paramiko
from paramiko.auth_strategy import AuthStrategy

from gpuprep.catalogue import clouds
from gpuprep.errors import AuthenticationRefused, HostError
from gpuprep.paths import user_name
from gpuprep.remote import keyfiles
from gpuprep.remote.hostkeys import HostKeyUnknown, ShownKey
from gpuprep.remote.ssh import SshConnection
from gpuprep.remote.sshconfig import read_ssh_config
from gpuprep.remote.sshfailures import DEFAULT_KEYS, OTHER_USER, check_key_file, copy_id
from gpuprep.remote.transport import QUESTIONS
from gpuprep.remote.types import Target, login
from gpuprep.remote.watch import never
from gpuprep.untrusted.plaintext import command, one_line

CONNECTIONS = 3  # that may fail
OFFERS = 3  # keys that one connection shows
MOST_KEYS = CONNECTIONS * OFFERS
HOPS = 8  # hosts on the way whose keys the user may have to accept
CONNECT_SECONDS = 15.0
VERSION_LETTERS = 200  # of what sshd says of itself


@dataclass(frozen=True)
class Key:
    """One key of the user. `file` is None for a key that only the SSH agent has."""

    title: str  # "~/.ssh/id_ed25519", "alice@laptop of the SSH agent"
    file: str | None
    key: Any  # paramiko's PKey or AgentKey


@dataclass(frozen=True)
class Found:
    """The login that works: user and key."""

    target: Target  # with user and key
    user: str
    key: str  # its title
    tried: tuple[str, ...]  # what was refused before: "ubuntu with ~/.ssh/id_rsa"


@dataclass
class _Search:
    target: Target
    keys: list[Key]
    locked: list[str]  # key files that need a passphrase
    users: list[str]  # in the order in which they are tried; [] until sshd has reported on which system it is
    named: bool  # by the user: then no other one is tried
    again: tuple[str, ...]  # the words of this command, without its host and key: of the command to type next
    tried: list[str] = field(default_factory=list)

    def next(self, failures: int) -> tuple[str, list[Key]]:
        """User and keys of the next connection: each user with the first keys, then each user with the next keys.

        The user "" means the likeliest user. Raises AuthenticationRefused if no attempt is left.
        """
        chunks = [self.keys[at : at + OFFERS] for at in range(0, len(self.keys), OFFERS)]
        attempts = [(user, chunk) for chunk in chunks for user in self.users or [""]]
        if failures >= min(CONNECTIONS, len(attempts)):
            raise _refused(self)
        return attempts[failures]


def find(
    target: Target,
    accept: Callable[[ShownKey], bool],
    say: Callable[[str], None],
    stopped: Callable[[], bool] = never,
    *,
    again: Sequence[str] = ("gpuprep", "init"),
) -> Found:
    """The login of a host over SSH. `accept` is called for each unknown host key; `say` is called for each failure.
    `again` are the words of this command, without its host and key, for the commands that an error names.

    If the target or ~/.ssh/config names a user or key, only that is tried. Raises HostUnreachable,
    HostKeyRefused (a changed key, or one that was not accepted) and AuthenticationRefused with what was tried.
    """
    settings = fabric.Connection(target.address or target.name, config=read_ssh_config(target.name)).ssh_config
    named = target.user or settings.get("user")
    with contextlib.closing(paramiko.Agent()) as agent:
        keys, locked = _keys(target, settings, agent)
        search = _Search(target, keys, locked, [named] if named else [], bool(named), tuple(again))
        if not keys:
            raise _no_key(search)
        return _search(search, accept, say, stopped)


def _search(
    search: _Search, accept: Callable[[ShownKey], bool], say: Callable[[str], None], stopped: Callable[[], bool]
) -> Found:
    accepted: set[str] = set()
    failures = 0
    while True:
        connection = _Connection(search, *search.next(failures), accepted, stopped)
        try:
            with contextlib.closing(connection):
                connection.execute("true", b"", CONNECT_SECONDS)
        except HostKeyUnknown as unknown:
            if len(accepted) >= HOPS or not accept(unknown.shown):
                raise
            accepted.add(unknown.shown.fingerprint)
        except AuthenticationRefused:
            if connection.hopeless or not search.tried:  # no other user or key would help; a host on the way refused
                raise
            say(f"not let in: {search.tried[-1]}")
            failures += 1
        except HostError as error:
            other = OTHER_USER.search(error.what)
            if other is None or other[1] in search.users:
                raise
            if search.named:
                raise _other_user(search, other[1]) from error
            say(f"{connection.user} may not log in; the host says: log in as {other[1]}")
            search.tried.append(connection.user)
            search.users.insert(failures + 1, other[1])
            failures += 1
        else:
            assert connection.let_in is not None
            key = connection.let_in
            made = dataclasses.replace(search.target, user=connection.user, identity_file=key.file)
            return Found(made, connection.user, key.title, tuple(search.tried))


class _Connection(SshConnection):
    """Tries a few keys for one user. Without a user it takes the likeliest user for the version that sshd reports."""

    def __init__(
        self, search: _Search, user: str, keys: list[Key], accepted: set[str], stopped: Callable[[], bool]
    ) -> None:
        target = dataclasses.replace(search.target, identity_file=None)
        accepting = _again(search, target.login, "--accept-new-host-key")
        super().__init__(target, accepted, CONNECT_SECONDS, stopped, accepting=accepting)
        self.user = user
        self.let_in: Key | None = None
        self.hopeless = False
        self._search, self._keys = search, keys

    def _prepare(self) -> Any:
        connection = super()._prepare()
        connection.connect_kwargs["auth_strategy"] = _Strategy(self)
        return connection

    def log_in(self, transport: Any) -> None:
        """Log in, after the host's key was accepted. Raises paramiko's AuthenticationException if no key works."""
        search = self._search
        if not self.user:
            version = one_line(str(transport.remote_version), VERSION_LETTERS)
            address = search.target.address or search.target.name
            search.users = list(clouds.image_users(version, address, user_name()))
            self.user = search.users[0]
        offered: list[str] = []
        search.tried.append("")
        for key in self._keys:
            offered.append(key.title)
            search.tried[-1] = f"{self.user} with {', '.join(offered)}"
            try:
                further = transport.auth_publickey(self.user, key.key)
            except paramiko.BadAuthenticationType:  # it takes no keys at all
                self.hopeless = True
                raise
            except paramiko.AuthenticationException:
                continue
            if further:  # it takes the key, and wants more than a key
                self.hopeless = True
                raise paramiko.SSHException(QUESTIONS)
            self.let_in = key
            del search.tried[-1]
            return
        raise paramiko.AuthenticationException("none of these keys")


class _Strategy(AuthStrategy):  # type: ignore[misc]  # paramiko ships no types
    def __init__(self, connection: _Connection) -> None:
        self._connection = connection

    def authenticate(self, transport: Any) -> None:
        self._connection.log_in(transport)


# ---------------------------------------------------------------- the user's keys


def _keys(target: Target, settings: dict[str, Any], agent: Any) -> tuple[list[Key], list[str]]:
    """(keys to try, locked key files): those of ~/.ssh/config, those of the SSH agent, then ~/.ssh/id_*.

    A key file of --ssh-key, or of IdentityFile with IdentitiesOnly, is the only key.
    """
    named = [target.identity_file] if target.identity_file else list(settings.get("identityfile", []))
    alone = bool(target.identity_file) or (bool(named) and settings.get("identitiesonly", "no") == "yes")
    if target.identity_file:
        check_key_file(target)
    usual = [] if alone else [f"~/.ssh/{name}" for name in reversed(DEFAULT_KEYS)]
    held = keyfiles.of_agent(agent)
    keys: dict[str, Key] = {}
    locked: list[str] = []
    of_files: dict[str, Key] = {}
    for path in _there([*named, *usual]):
        key, fingerprint = keyfiles.of_file(path, held)
        if key is not None:
            of_files.setdefault(fingerprint, Key(_short(path), str(path), key))
        elif fingerprint != keyfiles.BROKEN:
            locked.append(str(path))
    first = [one for one in of_files.items() if one[1].file in {str(path) for path in _there(named)}]
    agents = [] if alone else [(mark, of_files.get(mark) or _of_agent(key)) for mark, key in held.items()]
    for fingerprint, one in (*first, *agents, *of_files.items()):
        keys.setdefault(fingerprint, one)
    return list(keys.values())[:MOST_KEYS], locked


def _there(files: list[str]) -> Iterator[Path]:
    for name in files:
        path = Path(name).expanduser()
        if path.is_file():
            yield path


def _of_agent(key: Any) -> Key:
    comment = one_line(str(getattr(key, "comment", "") or key.fingerprint), 80)
    return Key(f"{comment} of the SSH agent", None, key)


def _short(path: Path) -> str:
    home = Path("~").expanduser()
    return f"~/{path.relative_to(home)}" if path.is_relative_to(home) else str(path)


# ---------------------------------------------------------------- nobody is let in


def _no_key(search: _Search) -> AuthenticationRefused:
    where = search.target.name
    if search.locked:
        return AuthenticationRefused(
            f"{where}: every key is locked by a passphrase: {', '.join(search.locked)}",
            f"unlock one for this session: `{command('ssh-add', search.locked[0])}`, then run the same command again"
            " (no SSH agent? `eval $(ssh-agent)` starts one)",
            where=where,
        )
    return AuthenticationRefused(
        f"{where}: you have no SSH key: the SSH agent holds none, ~/.ssh/config names none, and ~/.ssh has no id_*",
        "name the key file that your cloud gave you: "
        f"`{command(*search.again, '--ssh-key', 'KEYFILE', about=search.target.login)}`;"
        " `ssh-keygen -t ed25519` makes a new key",
        where=where,
    )


def _refused(search: _Search) -> AuthenticationRefused:
    """The error if no login worked. Its hint tries the usual users if a user was named, else it names a user."""
    target = search.target
    address, user = target.address or target.name, search.users[0] if search.users else "USER"
    other = _again(search, login(address, None if search.named else "USER", target.port))
    advice = (
        f"`{other}` tries the usual users" if search.named else f"the cloud's console names the image's user: `{other}`"
    )
    files = [key.file for key in search.keys if key.file]
    locked = ""
    if search.locked:
        unlock = command("ssh-add", search.locked[0])
        locked = f"; locked and not tried: {', '.join(search.locked)} (`{unlock}` unlocks it)"
    left = "" if len(search.keys) < MOST_KEYS else f"; no more than {MOST_KEYS} keys are tried"
    copy = copy_id(f"{user}@{address}", target.port, files)
    return AuthenticationRefused(
        f"{target.name}: {address} refused every login. Tried: {'; '.join(search.tried)}{locked}{left}",
        f"{advice}. Another key: `--ssh-key FILE`. With a password of {user} there: `{copy}` lets your key in",
        where=target.name,
    )


def _other_user(search: _Search, user: str) -> AuthenticationRefused:
    target = search.target
    again = _again(search, login(target.address or target.name, user, target.port))
    return AuthenticationRefused(
        f"{target.name}: {search.users[0]} may not log in there; the host says: log in as {user}",
        f"`{again}`",
        where=target.name,
    )


def _again(search: _Search, login: str, *more: str) -> str:
    """This command with another login, or with more options."""
    key = search.target.identity_file
    return command(*search.again, *(["--ssh-key", key] if key else []), *more, about=login)
