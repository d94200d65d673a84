"""A host over SSH: fabric for ~/.ssh/config, aliases and jump hosts; paramiko's channels for bytes in and out."""

from __future__ import annotations

import contextlib
import logging
import shlex
import socket
import threading
import time
import warnings
from pathlib import Path
from typing import Any

from gpuprep.errors import AuthenticationRefused, GpuprepError, HostError, HostUnreachable
from gpuprep.host.connection import Process, RawResult
from gpuprep.host.types import Target

with warnings.catch_warnings():  # paramiko names ciphers that cryptography has moved; nothing a user can change
    warnings.filterwarnings("ignore", module="paramiko")
    warnings.filterwarnings("ignore", message=".*TripleDES.*")
    import fabric
    import paramiko

    from gpuprep.host import hostkeys
    from gpuprep.host.sshconfig import read_ssh_config

# Without a handler Python prints paramiko's tracebacks of a failed connection to the user's stderr.
logging.getLogger("paramiko").addHandler(logging.NullHandler())

KEEPALIVE_SECONDS = 15
# After this long without an answer the kernel gives a connection up; the default is a quarter of an hour.
UNANSWERED_MILLISECONDS = 60_000
CHUNK = 65536


class SshConnection:
    """Speaks Connection. Connects when first used, and again when the connection was lost between two commands."""

    def __init__(self, target: Target, accept_new_host_key: bool, connect_timeout: float) -> None:
        self.where = target.name
        self._target = target
        self._accept_new = accept_new_host_key
        self._timeout = connect_timeout
        self._fabric: Any = None
        self._connecting = threading.RLock()

    def execute(self, command: str, stdin: bytes, timeout: float | None) -> RawResult:
        channel = self._open_channel(command)
        deadline = None if timeout is None else time.monotonic() + timeout
        stderr = bytearray()
        try:
            # One thread each for what must not wait for the others: a full pipe on either side would stop all.
            feeder = threading.Thread(target=_feed, args=(channel, stdin), daemon=True)
            listener = threading.Thread(target=_drain, args=(channel.recv_stderr, stderr), daemon=True)
            feeder.start()
            listener.start()
            stdout = bytearray()
            while True:
                channel.settimeout(None if deadline is None else max(deadline - time.monotonic(), 0.001))
                chunk = channel.recv(CHUNK)
                if not chunk:
                    break
                stdout += chunk
            remaining = None if deadline is None else max(deadline - time.monotonic(), 0.001)
            if not channel.status_event.wait(remaining):
                raise TimeoutError
            listener.join()
        except TimeoutError:
            raise HostError(
                f"{self.where}: a command took longer than {timeout:g} s: {command:.120}",
                "look at what the machine is busy with, then run again",
                where=self.where,
            ) from None
        finally:
            channel.close()
        status = channel.exit_status
        # -1 is "no status": either a signal ended the command, after a proper end of its output, or all is gone.
        if status < 0 and not (channel.eof_received and self._is_connected()):
            raise HostUnreachable(
                f"{self.where}: the connection was lost while a command ran: {command:.120}",
                "check that the machine is up, then run again",
                where=self.where,
            )
        return RawResult(status, bytes(stdout), bytes(stderr))

    def start(self, command: str) -> Process:
        return SshProcess(self._open_channel(command), self.where)

    def close(self) -> None:
        with self._connecting:
            if self._fabric is not None:
                _close(self._fabric)
                self._fabric = None

    def _is_connected(self) -> bool:
        connection = self._fabric
        return connection is not None and connection.transport is not None and connection.transport.is_active()

    def _open_channel(self, command: str) -> paramiko.Channel:
        with self._connecting:
            if not self._is_connected():
                self.close()
                self._fabric = self._connect()
            transport = self._fabric.transport
        try:
            channel = transport.open_session(timeout=self._timeout)
            # The user's login shell may be none that speaks POSIX.
            channel.exec_command(f"exec /bin/sh -c {shlex.quote(command)}")
        except (paramiko.SSHException, OSError, EOFError) as error:
            raise HostUnreachable(
                f"{self.where}: the connection was lost: {error}",
                "check that the machine is up, then run again",
                where=self.where,
            ) from error
        return channel

    def _connect(self) -> Any:
        target = self._target
        connection = self._prepare()
        known_hosts = self._known_hosts(connection)
        gateway = connection.gateway
        hops = [connection]
        while isinstance(gateway, fabric.Connection):  # fabric would accept any key of a jump host
            hops.append(gateway)
            gateway = gateway.gateway
        for hop in hops:
            revoked = hostkeys.load(hop.client, hop.host, hop.port, known_hosts, with_system=target.known_hosts is None)
            policy = hostkeys.KnownHostsPolicy(self.where, known_hosts, accept_new=self._accept_new, revoked=revoked)
            hop.client.set_missing_host_key_policy(policy)
            # OpenSSH passes over the IdentityFile of a configuration that does not exist; paramiko falls over it.
            files = hop.connect_kwargs.get("key_filename", [])
            hop.connect_kwargs["key_filename"] = [name for name in files if Path(name).expanduser().is_file()]
            hop.connect_timeout = int(max(self._timeout, 1))
        try:
            connection.open()
        except BaseException as error:
            explained = self._explain(error, connection, known_hosts)
            _close(connection)
            if explained is None:
                raise
            raise explained from error
        transport = connection.transport
        transport.set_keepalive(KEEPALIVE_SECONDS)
        if isinstance(transport.sock, socket.socket):
            transport.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNANSWERED_MILLISECONDS)
        return connection

    def _prepare(self) -> Any:
        target = self._target
        keys = []
        if target.identity_file:
            path = Path(target.identity_file).expanduser()
            if not path.is_file():
                raise AuthenticationRefused(
                    f"{self.where}: there is no key file {path}", "give an existing one", where=self.where
                )
            keys.append(str(path))
        return fabric.Connection(
            target.address or target.name,
            user=target.user,
            port=None if target.port == 22 else target.port,
            config=read_ssh_config(self.where),
            connect_kwargs={
                "key_filename": keys,
                "banner_timeout": self._timeout,
                "auth_timeout": self._timeout,
            },
        )

    def _known_hosts(self, connection: Any) -> Path:
        configured = connection.ssh_config.get("userknownhostsfile", "").split()
        named = self._target.known_hosts or (configured[0] if configured else str(hostkeys.USER_FILE))
        return Path(named).expanduser()

    def _explain(self, error: BaseException, connection: Any, known_hosts: Path) -> GpuprepError | None:
        from gpuprep.host.sshfailures import explain

        return explain(error, connection, self.where, known_hosts, self._timeout)


class SshProcess:
    """Speaks Process."""

    def __init__(self, channel: paramiko.Channel, where: str) -> None:
        self._channel = channel
        self.where = where

    def send(self, data: bytes) -> None:
        try:
            self._channel.sendall(data)
        except OSError as error:
            raise HostError(f"{self.where}: a command ended before its input was read", where=self.where) from error

    def read_line(self, timeout: float) -> bytes:
        line = b""
        deadline = time.monotonic() + timeout
        while not line.endswith(b"\n"):
            self._channel.settimeout(max(deadline - time.monotonic(), 0.001))
            try:
                byte = self._channel.recv(1)
            except TimeoutError:
                raise HostError(
                    f"{self.where}: a command did not answer within {timeout:g} s", where=self.where
                ) from None
            if not byte:
                break
            line += byte
        return line.rstrip(b"\n")

    def read_error(self) -> str:
        self._channel.status_event.wait(5)
        said = b""
        while self._channel.recv_stderr_ready():
            said += self._channel.recv_stderr(CHUNK)
        return said.decode(errors="backslashreplace")

    def ended(self, timeout: float) -> bool:
        return bool(self._channel.status_event.wait(timeout) or self._channel.closed)

    def close(self) -> None:
        with contextlib.suppress(OSError, EOFError):
            self._channel.shutdown_write()
            self._channel.status_event.wait(5)
        self._channel.close()


def _feed(channel: paramiko.Channel, stdin: bytes) -> None:
    with contextlib.suppress(OSError, EOFError):  # the command did not want all of it
        channel.sendall(stdin)
        channel.shutdown_write()


def _drain(receive: Any, into: bytearray) -> None:
    with contextlib.suppress(OSError):
        while chunk := receive(CHUNK):
            into += chunk


def _close(connection: Any) -> None:
    """Also half-open ones, which fabric's own close leaves with a live thread."""
    connection.client.close()
    gateway = connection.gateway
    if isinstance(gateway, fabric.Connection):
        _close(gateway)
    elif gateway is not None and hasattr(gateway, "close"):
        gateway.close()
