"""Why a connection failed: paramiko's and the kernel's errors in plain words."""

from __future__ import annotations

import contextlib
import errno
import re
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import paramiko

from gpuprep.errors import AuthenticationRefused, GpuprepError, HostError, HostUnreachable
from gpuprep.remote import keyfiles
from gpuprep.remote.limits import TOLD_LETTERS
from gpuprep.remote.transport import QUESTIONS, NoAnswer
from gpuprep.remote.types import Target, login
from gpuprep.untrusted.plaintext import command, one_line

DEFAULT_KEYS = ("id_rsa", "id_ecdsa", "id_ed25519")
NETWORK_WORDS = {
    errno.ECONNREFUSED: ("refuses connections on port {port}", "is sshd running there, and is this its port?"),
    errno.EHOSTUNREACH: ("cannot be reached: no route to {host}", "check the address, the network and the firewall"),
    errno.ENETUNREACH: ("cannot be reached: no network leads to {host}", "check your network or VPN"),
    errno.ETIMEDOUT: ("does not answer on {host} port {port}", "is the machine up, and does a firewall allow SSH?"),
    errno.ECONNRESET: ("closed the connection at once", "sshd there may be overloaded or refuse your address"),
}
# What images of clouds say to root, whom they let in for nothing else (cloud-init).
OTHER_USER = re.compile(r'login as the user \\?"([a-z_][a-z0-9_-]{0,30})\\?"')
TIMED_OUT = ("No existing session", "Timeout opening channel")  # as paramiko says it


def no_answer(where: str, connection: Any, seconds: float) -> HostUnreachable:
    return HostUnreachable(
        f"{where}: no answer from {connection.host} port {connection.port} within {seconds:g} s",
        NETWORK_WORDS[errno.ETIMEDOUT][1],
        where=where,
    )


def check_key_file(target: Target) -> None:
    """Raises AuthenticationRefused if the key file that the target names holds no private key."""
    path = Path(target.identity_file or "").expanduser()
    other = _other_keys(target)
    if not path.is_file():
        what = f"there is no key file {path}"
    elif (mark := keyfiles.fingerprint(path)) or (why := _no_private_key(path)) is None:
        if mark and not _is_held(mark):
            raise AuthenticationRefused(
                f"{target.name}: {path} is a key on a security token, and the SSH agent does not hold it",
                f"`{command('ssh-add', str(path))}`, then run the same command again (no SSH agent? `eval $(ssh-agent)`"
                " starts one)",
                where=target.name,
            )
        return
    else:
        what = f"{path} is no private SSH key: {why}"
        private = path.with_suffix("")
        if path.suffix == ".pub" and private.is_file():
            what, other = f"{path} is the public half of a key", f"name the private half: `--ssh-key {private}`"
    raise AuthenticationRefused(f"{target.name}: {what}", other, where=target.name)


def _is_held(mark: str) -> bool:
    """Whether the SSH agent has the key with this fingerprint."""
    with contextlib.closing(paramiko.Agent()) as agent:
        return mark in keyfiles.of_agent(agent)


def _no_private_key(path: Path) -> str | None:
    """Why a file is not a private key; None if it is one, also a locked one."""
    try:
        paramiko.PKey.from_path(path)
    except keyfiles.LOCKED:
        return None
    except OSError as error:
        return error.strerror or "it cannot be read"
    except Exception as error:  # noqa: BLE001  whatever a file that is no key makes paramiko and its libraries raise
        return one_line(str(error) or type(error).__name__, TOLD_LETTERS)
    return None


def _other_keys(target: Target) -> str:
    folder = Path("~/.ssh").expanduser()
    files = [folder / name for name in DEFAULT_KEYS] + [path.with_suffix("") for path in sorted(folder.glob("*.pub"))]
    private = [str(path) for path in dict.fromkeys(files) if path.is_file()]
    named = f"you have {', '.join(private[:5])}" if private else "~/.ssh has no key: `ssh-keygen -t ed25519` makes one"
    return f"{named}; `{_init(target)}` finds the one that {target.address or target.name} takes"


def explain(
    error: BaseException, connection: Any, where: str, timeout: float, target: Target | None = None
) -> GpuprepError | None:
    """gpuprep's error for `error`; None for errors that do not come from the connection, such as Ctrl-C.

    paramiko passes on any exception that the host's data caused in its thread: any exception may come from the host.
    """
    if isinstance(error, GpuprepError):
        return error
    text = one_line(str(error) or type(error).__name__, TOLD_LETTERS)
    if isinstance(error, socket.gaierror):
        return HostUnreachable(
            f"{where}: the name {connection.host} does not resolve",
            "check the spelling; is it in ~/.ssh/config, /etc/hosts or DNS?",
            where=where,
        )
    if isinstance(error, paramiko.ssh_exception.NoValidConnectionsError):
        codes: Sequence[int] = [cause.errno or 0 for cause in error.errors.values()]
        return _network(codes[0], connection, where, text)
    late = (
        isinstance(error, (TimeoutError, NoAnswer))
        or isinstance(error.__context__, TimeoutError)  # of a banner that never came paramiko says "error reading"
        or (isinstance(error, OSError) and error.errno == errno.ETIMEDOUT)
    )
    if late or (isinstance(error, paramiko.SSHException) and any(words in str(error) for words in TIMED_OUT)):
        return no_answer(where, connection, timeout)
    if isinstance(error, OSError):
        return _network(error.errno or 0, connection, where, text)
    if isinstance(error, Exception):
        transport = connection.client.get_transport()
        keys_agreed = isinstance(error, (paramiko.SSHException, EOFError)) and transport and transport.initial_kex_done
        if keys_agreed or isinstance(error, paramiko.AuthenticationException):
            return _authentication(error, connection, where, text, target or Target(where))
        return HostUnreachable(
            f"{where}: {connection.host} port {connection.port} answers, but not as an SSH server should: {text}",
            "is this the port of sshd? An sshd that is overloaded or that blocks your address hangs up, too"
            " (MaxStartups, PerSourcePenalties); `ssh -v` shows how far it comes",
            where=where,
        )
    return None


def _network(code: int, connection: Any, where: str, text: str) -> HostError:
    what, hint = NETWORK_WORDS.get(code, (f"cannot be reached: {text}", "check the address and the network"))
    words = {"host": connection.host, "port": connection.port}
    return HostUnreachable(f"{where}: {connection.host} {what.format(**words)}", hint, where=where)


def _authentication(
    error: BaseException, connection: Any, where: str, text: str, target: Target
) -> AuthenticationRefused:
    user = connection.user
    files = [str(Path(name).expanduser()) for name in connection.connect_kwargs.get("key_filename", [])]
    if target.identity_file:
        files = [str(Path(target.identity_file).expanduser())]
    else:
        files += [str(path) for name in DEFAULT_KEYS if (path := Path("~/.ssh").expanduser() / name).is_file()]
    if isinstance(error, paramiko.PasswordRequiredException):
        locked = next((name for name in files if is_locked(name)), files[0] if files else "KEYFILE")
        return AuthenticationRefused(
            f"{where}: the key {locked} is locked by a passphrase",
            f"unlock it for this session: `{command('ssh-add', locked)}`, then run your command again"
            " (no SSH agent? `eval $(ssh-agent)` starts one)",
            where=where,
        )
    if QUESTIONS in text:
        return AuthenticationRefused(
            f"{where}: {connection.host} asks {user} questions after the key"
            " (keyboard-interactive, as for a second factor)",
            f"allow {user} in with a key alone there: gpuprep answers no questions of a host",
            where=where,
        )
    if isinstance(error, paramiko.BadAuthenticationType):
        allowed = one_line(", ".join(map(str, error.allowed_types)), TOLD_LETTERS)
        return AuthenticationRefused(
            f"{where}: {connection.host} accepts no key login, only {allowed or 'other means'}",
            "allow keys there: `PubkeyAuthentication yes` in /etc/ssh/sshd_config, then `systemctl reload ssh`"
            " (sshd on Red Hat's systems)",
            where=where,
        )
    tried = ", ".join(dict.fromkeys(files)) or "no key file"
    agent_keys = 0 if target.identity_file else len(paramiko.Agent().get_keys())
    if target.identity_file:
        tried += " alone, which you named"
    elif agent_keys:
        tried += f" and {agent_keys} of the SSH agent"
    return AuthenticationRefused(
        f"{where}: {connection.host} does not let {user} in (tried {tried})",
        f"`{_init(target)}` tries the usual users and your keys (one key: --ssh-key FILE); or, with the password of"
        f" {user}, `{copy_id(f'{user}@{connection.host}', connection.port, files)}` lets your key in",
        where=where,
    )


def is_locked(name: str) -> bool:
    """Whether a private key needs a passphrase."""
    try:
        paramiko.PKey.from_path(name)
    except keyfiles.LOCKED:
        return True
    except Exception:  # noqa: BLE001  whatever a broken key file makes paramiko raise
        return False
    return False


def copy_id(login: str, port: int | None, files: Sequence[str]) -> str:
    """The command that copies the user's key to the host with a password. `login` is USER@HOST.

    ssh-copy-id needs the public half of a key. If there is only the private half, the command first writes the public.
    """
    public = next((f"{name}.pub" for name in files if Path(f"{name}.pub").is_file()), "")
    before = ""
    if not public and files:
        public = f"{files[0]}.pub"
        before = f"{command('ssh-keygen', '-y', '-f', files[0])} > {command(public)} && "
    words = ["ssh-copy-id", *(["-i", public] if public else [])]
    words += ["-p", str(port)] if port not in (None, 22) else []
    return before + command(*words, login)


def _init(target: Target) -> str:
    """`gpuprep init` for this host, without the user, because the user may be the error."""
    return command("gpuprep", "init", about=login(target.address or target.name, None, target.port))
