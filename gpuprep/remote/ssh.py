"""A host over SSH: fabric for ~/.ssh/config, aliases and jump hosts; paramiko's channels for bytes in and out."""

from __future__ import annotations

import contextlib
import functools
import logging
import socket
import threading
import warnings
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from gpuprep.errors import GpuprepError, HostError, HostUnreachable
from gpuprep.remote.connection import Errors, Process, RawResult, all_of_it, took_too_long
from gpuprep.remote.limits import COMMAND_SECONDS, CONNECT_TIMES, GRACE_SECONDS, OUTPUT_BYTES, TOLD_LETTERS
from gpuprep.remote.lock import HEARTBEAT_LIMIT
from gpuprep.remote.types import Target, login
from gpuprep.remote.watch import never, within
from gpuprep.untrusted.plaintext import one_line

with warnings.catch_warnings():  # paramiko names ciphers that cryptography has moved; nothing a user can change
    warnings.filterwarnings("ignore", module="paramiko")
    warnings.filterwarnings("ignore", message=".*TripleDES.*")
    import fabric
    import paramiko
    from paramiko.auth_strategy import AuthStrategy

    from gpuprep.remote import hostkeys, keyfiles, transport
    from gpuprep.remote.sshchannel import GONE, Marked, SshProcess, converse, lost
    from gpuprep.remote.sshconfig import read_ssh_config
    from gpuprep.remote.sshfailures import check_key_file, explain, no_answer
    from gpuprep.remote.transport import QUESTIONS

# Without a handler Python prints paramiko's tracebacks of a failed connection to the user's stderr.
logging.getLogger("paramiko").addHandler(logging.NullHandler())

KEEPALIVE_SECONDS = 15
# After this long without an answer the kernel gives a connection up; the default is a quarter of an hour.
UNANSWERED_MILLISECONDS = 60_000
# The kernel hears only the next machine: a jump host or a proxy still answers when the host behind it is gone. After
# this long the host has given our lock away, so nothing of ours should go on there.
SILENT_SECONDS = float(HEARTBEAT_LIMIT)


class SshConnection:
    """A Connection. Connects when first used, and again if the connection was lost between two commands."""

    def __init__(
        self,
        target: Target,
        accept_new_host_key: bool | Collection[str],
        connect_timeout: float,
        stopped: Callable[[], bool] = never,
        *,
        accepting: str = "",
    ) -> None:
        """`accept_new_host_key`: True for any unknown key, or the fingerprints of the keys to accept.

        `accepting` is the command that errors name to accept a host key; "" means `gpuprep plan`.
        """
        self.where = target.name
        self._target = target
        self._accept_new = accept_new_host_key
        self._accepting = accepting
        self._timeout = connect_timeout
        self._stopped = stopped
        self._fabric: Any = None
        self._connecting = threading.RLock()

    def execute(
        self,
        command: str,
        stdin: bytes,
        timeout: float = COMMAND_SECONDS,
        *,
        most: int = OUTPUT_BYTES,
        errors: Errors = all_of_it,
    ) -> RawResult:
        connection, channel, marked = self._open_channel(command)
        cut = functools.partial(transport.cut, connection)
        # Its time is over twice: first the channel is closed, and where even that cannot be sent, the connection is.
        late = functools.partial(took_too_long, self.where, command, timeout)
        try:
            with within(timeout + GRACE_SECONDS, cut, self._stopped, self.where, late):
                channel.settimeout(timeout)
                status, raw = converse(channel, marked, stdin, timeout, most, self.where, cut, errors)
        except GONE as error:
            raise lost(self.where, command) from error
        # -1 is "no status": a signal ended the command, after a proper end of its output, or the connection is lost.
        if status < 0 and not (channel.eof_received and _is_connected(connection)):
            raise lost(self.where, command)
        if not marked.begun:
            raise marked.never_began(raw.stderr)
        return raw

    def start(self, command: str) -> Process:
        connection, channel, marked = self._open_channel(command)
        return SshProcess(channel, marked, self.where, functools.partial(transport.cut, connection))

    def host_key(self) -> str:
        """Fingerprint of the last hop's key: it is in known_hosts, and the host proved that it has the private key."""
        with self._connecting:
            if not _is_connected(self._fabric):
                return ""
            fingerprint: str = self._fabric.transport.get_remote_server_key().fingerprint
            return fingerprint

    def close(self) -> None:
        with self._connecting:
            if self._fabric is not None:
                transport.cut(self._fabric)
                _close(self._fabric)
                self._fabric = None

    def _open_channel(self, command: str) -> tuple[Any, paramiko.Channel, Marked]:
        """(connection, a channel of it, the command started on the channel)."""
        with self._connecting:
            if not _is_connected(self._fabric):
                self.close()
                self._fabric = self._connect()
            connection = self._fabric
        marked = Marked(command, self.where, connection.user)
        try:
            with self._in_time(connection, 1):
                channel = connection.transport.open_session(timeout=self._timeout)
                channel.exec_command(marked.for_shell())
        except GpuprepError:
            raise
        except paramiko.ChannelException as error:  # the connection is there, and sshd opens no session on it
            raise HostError(
                f"{self.where}: its sshd refuses one more session on this connection",
                "gpuprep needs several at a time: set `MaxSessions 10` (the default) where `sudo grep -rni maxsessions"
                " /etc/ssh` shows a smaller one, `sudo systemctl reload ssh` (Red Hat: sshd), then run again",
                where=self.where,
            ) from error
        except Exception as error:  # paramiko hands on whatever the host's bytes made its own thread raise
            raise HostUnreachable(
                f"{self.where}: the connection was lost: {one_line(str(error), TOLD_LETTERS)}",
                "check that the machine is up, then run again",
                where=self.where,
            ) from error
        return connection, channel, marked

    def _in_time(self, connection: Any, times: int) -> contextlib.AbstractContextManager[None]:
        """Limit a step to `times` connect time-outs; for steps without a time-out, or with one for each part only."""
        seconds = max(self._timeout, 1) * times
        late = functools.partial(no_answer, self.where, connection, seconds)
        return within(seconds, functools.partial(transport.cut, connection), self._stopped, self.where, late)

    def _connect(self) -> Any:
        target = self._target
        connection = self._prepare()
        gateway = connection.gateway
        hops = [connection]
        while isinstance(gateway, fabric.Connection):  # fabric would accept any key of a jump host
            hops.append(gateway)
            gateway = gateway.gateway
        for hop in hops:
            known = hostkeys.load(_asked(hop, target.known_hosts if hop is connection else None))
            named = (target.login, target.identity_file)
            if hop is not connection:
                named = (login(hop.original_host, None, hop.port), None)
            accepting = self._accepting or hostkeys.accept_by(*named)
            policy = hostkeys.KnownHostsPolicy(self.where, known, accept_new=self._accept_new, accepting=accepting)
            hop.client.set_missing_host_key_policy(policy)
            # OpenSSH passes over the IdentityFile of a configuration that does not exist; paramiko falls over it.
            files = hop.connect_kwargs.get("key_filename", [])
            hop.connect_kwargs["key_filename"] = [name for name in files if Path(name).expanduser().is_file()]
            hop.connect_kwargs["transport_factory"] = functools.partial(transport.Transport, known.algorithms())
            hop.connect_timeout = int(max(self._timeout, 1))
        try:
            with self._in_time(connection, CONNECT_TIMES * len(hops)):
                connection.open()
        except BaseException as error:
            explained = self._explain(error, connection)
            transport.cut(connection)
            _close(connection)
            if explained is None:
                raise
            raise explained from error
        threading.Thread(target=self._keep_alive, args=(connection,), name="keepalive", daemon=True).start()
        wire = hops[-1].transport.sock  # with jump hosts, the first of them holds it
        if isinstance(wire, socket.socket):
            wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNANSWERED_MILLISECONDS)
            # As ssh does. Otherwise a command's second packet waits for the answer to the first: 40 ms a command.
            wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection

    def _keep_alive(self, connection: Any) -> None:
        """Ask sshd for an answer again and again, as ssh's ServerAliveInterval; end a connection that gives none."""
        ssh = connection.transport
        cut = functools.partial(transport.cut, connection)
        while ssh.is_active():
            ssh.join(KEEPALIVE_SECONDS)  # it is the thread that reads: its end is the connection's
            late = functools.partial(no_answer, self.where, connection, SILENT_SECONDS)
            with contextlib.suppress(GpuprepError, *GONE), within(SILENT_SECONDS, cut, never, self.where, late):
                ssh.global_request("keepalive@openssh.com", wait=True)

    def _prepare(self) -> Any:
        target = self._target
        if target.identity_file:
            check_key_file(target)
        connection = fabric.Connection(
            target.address or target.name,
            user=target.user,
            port=None if target.port == 22 else target.port,
            config=read_ssh_config(self.where),
            connect_kwargs={
                "banner_timeout": self._timeout,
                "auth_timeout": self._timeout,
                "channel_timeout": self._timeout,
            },
        )
        if target.identity_file:
            path = Path(target.identity_file).expanduser()
            connection.connect_kwargs["auth_strategy"] = _NamedKey(connection.user, path)
        return connection

    def _explain(self, error: BaseException, connection: Any) -> GpuprepError | None:
        return explain(error, connection, self.where, self._timeout, self._target)


class _NamedKey(AuthStrategy):  # type: ignore[misc]  # paramiko ships no types
    """Logs in with the key file that the user named, and with no other key: as OpenSSH's IdentitiesOnly."""

    def __init__(self, user: str, path: Path) -> None:
        self._user, self._path = user, path

    def authenticate(self, transport: Any) -> None:
        with contextlib.closing(paramiko.Agent()) as agent:
            key, _ = keyfiles.of_file(self._path, keyfiles.of_agent(agent))
            if key is None:  # check_key_file has refused a file that is no key
                raise paramiko.PasswordRequiredException("Private key file is encrypted")
            if transport.auth_publickey(self._user, key):  # it wants more than a key
                raise paramiko.AuthenticationException(QUESTIONS)


def _asked(hop: Any, named: str | None) -> hostkeys.Asked:
    """How to look up the key of one hop: by the options of this hop alone, as OpenSSH does for a jump host."""
    return hostkeys.asked(hop.host, hop.port, hop.ssh_config, user=hop.user, original=hop.original_host, named=named)


def _is_connected(connection: Any) -> bool:
    return connection is not None and connection.transport is not None and connection.transport.is_active()


def _close(connection: Any) -> None:
    """Close a connection, also a half-open one, whose thread fabric's own close would leave running."""
    connection.client.close()
    gateway = connection.gateway
    if isinstance(gateway, fabric.Connection):
        _close(gateway)
    elif gateway is not None and hasattr(gateway, "close"):
        gateway.close()
