"""A scripted SSH server on 127.0.0.1 that does what no honest host does, at whatever stage it is told to.

    HostileSshd(raw=fn)        fn(socket) in place of the SSH protocol
    HostileSshd(script=fn)     an SSH server that lets everybody in; fn(Session) answers each command
    HostileSshd(stall="exec")  one that does not answer at that stage: auth, open, exec

Everything ends with stop(); nothing of it outlives the test.
"""

from __future__ import annotations

import contextlib
import re
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import paramiko
from paramiko.common import cMSG_CHANNEL_SUCCESS

from gpuprep.remote import Target

LIFE = 600.0  # seconds that a forgotten server thread would live
MARK = re.compile(r"gpuprep [0-9a-f]{32}")


@dataclass
class Session:
    """One command that the client asked for."""

    channel: Any
    transport: Any
    command: str
    server: HostileSshd

    @property
    def mark(self) -> bytes:
        """The line that an honest shell would say before the command's own output."""
        found = MARK.search(self.command)
        return f"{found[0]}\n".encode() if found else b""

    def say(self, data: bytes, *, marked: bool = True) -> None:
        self.channel.sendall((self.mark if marked else b"") + data)

    def end(self, code: int = 0) -> None:
        self.channel.send_exit_status(code)
        self.channel.close()

    def hang(self) -> None:
        self.server.over.wait(LIFE)

    def drip(self, data: bytes, seconds: float) -> None:
        """`data` again and again until the client is gone."""
        with contextlib.suppress(OSError, EOFError, paramiko.SSHException):
            while not self.server.over.wait(seconds):
                self.channel.sendall(data)

    def flood(self, megabytes: int, *, stderr: bool = False, rules: bool = True) -> int:
        """So many megabytes as fast as they go; without `rules` also beyond the client's window. Bytes sent."""
        sent, chunk = 0, b"x" * 32_000
        with contextlib.suppress(OSError, EOFError, paramiko.SSHException):
            while sent < megabytes << 20 and not self.server.over.is_set() and self.transport.is_active():
                if not rules:
                    self.channel.out_window_size = 1 << 30
                (self.channel.sendall_stderr if stderr else self.channel.sendall)(chunk)
                sent += len(chunk)
        return sent


Script = Callable[[Session], None]


class _Transport(paramiko.Transport):  # type: ignore[misc]
    """Knows when the reply to a request has gone: what a command says may not overtake it."""

    def __init__(self, *words: Any, **options: Any) -> None:
        super().__init__(*words, **options)
        self.replied = threading.Event()

    def _send_user_message(self, message: Any) -> None:
        super()._send_user_message(message)
        if message.asbytes()[:1] == cMSG_CHANNEL_SUCCESS:
            self.replied.set()


class _Interface(paramiko.ServerInterface):  # type: ignore[misc]
    def __init__(self, server: HostileSshd, transport: Any) -> None:
        self.server, self.transport = server, transport

    def get_allowed_auths(self, _username: str) -> str:
        return "publickey,keyboard-interactive"

    def check_auth_publickey(self, _username: str, _key: Any) -> int:
        self.server.stage("auth")
        return int(self.server.auth)

    def check_auth_interactive(self, _username: str, _submethods: str) -> Any:
        return paramiko.InteractiveQuery("\x1b[2Jtitle", "\x1b]0;owned\x07", ("password: ", False))

    def check_auth_interactive_response(self, responses: list[str]) -> int:
        self.server.heard += responses
        return int(paramiko.AUTH_SUCCESSFUL)

    def get_banner(self) -> tuple[str, str]:
        return self.server.motd, "en"

    def check_channel_request(self, _kind: str, _number: int) -> int:
        self.server.stage("open")
        return int(paramiko.OPEN_SUCCEEDED)

    def check_channel_exec_request(self, channel: Any, command: bytes) -> bool:
        self.server.stage("exec")
        self.transport.replied.clear()
        session = Session(channel, self.transport, command.decode(), self.server)
        self.server.commands.append(session.command)
        threading.Thread(target=self.server.answer, args=(session,), daemon=True).start()
        return True


class HostileSshd:
    host_key: Any = paramiko.ECDSAKey.generate()

    def __init__(
        self,
        home: Path,
        *,
        raw: Callable[[socket.socket, HostileSshd], None] | None = None,
        script: Script | None = None,
        stall: str = "",
        auth: int = paramiko.AUTH_SUCCESSFUL,
        motd: str = "",
        window: int = 2 << 20,
        trusted: bool = True,
        version: str = "",
    ) -> None:
        self.over, self.stalled = threading.Event(), threading.Event()
        self.commands: list[str] = []
        self.heard: list[str] = []  # answers to questions
        self.connections = 0
        self.auth, self.motd, self.version = auth, motd, version
        self._raw, self._script, self._stall, self._window = raw, script, stall, window
        self._sockets: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        key = home / "user_key"
        if not key.exists():
            paramiko.ECDSAKey.generate().write_private_key_file(str(key))
        self.known_hosts = home / f"known_hosts_{self.port}"
        if trusted:
            self.known_hosts.write_text(
                f"[127.0.0.1]:{self.port} {self.host_key.get_name()} {self.host_key.get_base64()}\n"
            )
        self.target = Target("box", "127.0.0.1", self.port, "me", str(key), str(self.known_hosts))
        threading.Thread(target=self._accept, daemon=True).start()

    def stop(self) -> None:
        self.over.set()
        for one in [self._listener, *self._sockets]:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def stage(self, name: str) -> None:
        if self._stall == name:
            self.stalled.set()
            self.over.wait(LIFE)

    def answer(self, session: Session) -> None:
        session.transport.replied.wait(LIFE)
        with contextlib.suppress(OSError, EOFError, paramiko.SSHException):
            if self._script is None:
                session.say(b"")
                session.end()
            else:
                self._script(session)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while not self.over.is_set():
                connected, _ = self._listener.accept()
                self.connections += 1
                self._sockets.append(connected)
                threading.Thread(target=self._serve, args=(connected,), daemon=True).start()

    def _serve(self, connected: socket.socket) -> None:
        with contextlib.suppress(OSError, EOFError, paramiko.SSHException):
            if self._raw is not None:
                self._raw(connected, self)
                return
            transport = _Transport(connected, default_window_size=self._window)
            transport.local_version = self.version or transport.local_version
            transport.add_server_key(self.host_key)
            transport.start_server(server=_Interface(self, transport))
