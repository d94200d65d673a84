"""Why a connection failed: paramiko's and the kernel's errors in plain words."""

from __future__ import annotations

import errno
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import paramiko

from gpuprep.errors import AuthenticationRefused, GpuprepError, HostError, HostUnreachable
from gpuprep.remote.limits import TOLD_LETTERS
from gpuprep.remote.transport import QUESTIONS, NoAnswer
from gpuprep.untrusted.plaintext import one_line

DEFAULT_KEYS = ("id_rsa", "id_ecdsa", "id_ed25519")
NETWORK_WORDS = {
    errno.ECONNREFUSED: ("refuses connections on port {port}", "is sshd running there, and is this its port?"),
    errno.EHOSTUNREACH: ("cannot be reached: no route to {host}", "check the address, the network and the firewall"),
    errno.ENETUNREACH: ("cannot be reached: no network leads to {host}", "check your network or VPN"),
    errno.ETIMEDOUT: ("does not answer on {host} port {port}", "is the machine up, and does a firewall allow SSH?"),
    errno.ECONNRESET: ("closed the connection at once", "sshd there may be overloaded or refuse your address"),
}
TIMED_OUT = ("No existing session", "Timeout opening channel")  # as paramiko says it


def no_answer(where: str, connection: Any, seconds: float) -> HostUnreachable:
    return HostUnreachable(
        f"{where}: no answer from {connection.host} port {connection.port} within {seconds:g} s",
        NETWORK_WORDS[errno.ETIMEDOUT][1],
        where=where,
    )


def explain(error: BaseException, connection: Any, where: str, timeout: float) -> GpuprepError | None:
    """gpuprep's error for `error`; None for errors that do not come from the connection, such as Ctrl-C.

    paramiko raises whatever the bytes of the host made its own thread raise: any exception is the host's.
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
            return _authentication(error, connection, where, text)
        return HostUnreachable(
            f"{where}: {connection.host} port {connection.port} answers, but not as an SSH server should: {text}",
            "is this the port of sshd? One that is overloaded or has had enough of your address hangs up, too"
            " (MaxStartups, PerSourcePenalties); `ssh -v` shows how far it comes",
            where=where,
        )
    return None


def _network(code: int, connection: Any, where: str, text: str) -> HostError:
    what, hint = NETWORK_WORDS.get(code, (f"cannot be reached: {text}", "check the address and the network"))
    words = {"host": connection.host, "port": connection.port}
    return HostUnreachable(f"{where}: {connection.host} {what.format(**words)}", hint, where=where)


def _authentication(error: BaseException, connection: Any, where: str, text: str) -> AuthenticationRefused:
    user = connection.user
    files = list(connection.connect_kwargs.get("key_filename", []))
    files += [str(path) for name in DEFAULT_KEYS if (path := Path("~/.ssh").expanduser() / name).is_file()]
    if isinstance(error, paramiko.PasswordRequiredException):
        return AuthenticationRefused(
            f"{where}: the key {', '.join(files)} is locked by a passphrase",
            "unlock it first: `ssh-add KEYFILE`",
            where=where,
        )
    if QUESTIONS in text:
        return AuthenticationRefused(
            f"{where}: {connection.host} asks {user} questions after the key"
            " (keyboard-interactive, as for a second factor)",
            f"allow {user} in with a key alone there: gpuprep answers no questions of a host",
            where=where,
        )
    tried = ", ".join(dict.fromkeys(files)) or "no key file"
    agent_keys = len(paramiko.Agent().get_keys())
    if agent_keys:
        tried += f" and {agent_keys} of the SSH agent"
    return AuthenticationRefused(
        f"{where}: {connection.host} does not let {user} in (tried {tried})",
        f"is {user} the right user (user@host)? Name a key with --ssh-key, or allow yours there:"
        f" `ssh-copy-id {user}@{connection.host}`",
        where=where,
    )
