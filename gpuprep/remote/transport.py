"""paramiko's transport with limits: what a host sends before and beside a command's output cannot fill our memory.

paramiko lets the host decide the length of a banner and of a packet (4 GiB), and does not stop a host that sends more
than its window. It also prints a host's questions to our terminal, unescaped, and waits for an answer.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Sequence
from typing import Any

import paramiko
from paramiko.buffered_pipe import BufferedPipe
from paramiko.packet import Packetizer

from gpuprep.remote.limits import BANNER_BYTES, PACKET_BYTES, WINDOW_BYTES

QUESTIONS = "the host asks questions (keyboard-interactive)"


class NoAnswer(Exception):
    """No answer to a key that was offered. Not an SSHException: then paramiko would wait again for each other key."""


class _Packets(Packetizer):  # type: ignore[misc]  # paramiko ships no types
    _banner = 0

    def _read_timeout(self, timeout: float) -> bytes:  # of what comes before the first packet, alone
        chunk: bytes = super()._read_timeout(timeout)
        self._banner += len(chunk)
        if self._banner > BANNER_BYTES:
            raise paramiko.SSHException(f"it says more than {BANNER_BYTES >> 10} KiB before it says SSH-2.0")
        return chunk

    def read_all(self, n: int, check_rekey: bool = False) -> bytes:
        if n > PACKET_BYTES:
            raise paramiko.SSHException(f"it sends a packet of more than {PACKET_BYTES >> 10} KiB")
        data: bytes = super().read_all(n, check_rekey)
        return data

    def close(self) -> None:
        with contextlib.suppress(OSError, EOFError):  # the jump host's connection may have ended first
            super().close()


class _Pipe(BufferedPipe):  # type: ignore[misc]
    """Received bytes of a channel that were not read yet; a host that keeps the rules sends at most the window."""

    overfull = False

    def feed(self, data: bytes) -> None:
        if len(self) + len(data) > WINDOW_BYTES:
            self.overfull = True
            raise paramiko.SSHException(f"it sends more than the {WINDOW_BYTES >> 20} MiB that nobody has read yet")
        super().feed(data)


class Transport(paramiko.Transport):  # type: ignore[misc]
    def __init__(self, host_key_algorithms: Sequence[str], sock: Any, disabled_algorithms: Any = None) -> None:
        """`host_key_algorithms`: the best first, algorithms of certificates included."""
        self._host_key_algorithms = tuple(host_key_algorithms)
        super().__init__(sock, disabled_algorithms=disabled_algorithms, packetizer_class=_Packets)

    @property
    def preferred_keys(self) -> tuple[str, ...]:
        """The host key algorithms in our order: paramiko's own order has certificates last."""
        return self._host_key_algorithms

    def open_channel(self, *arguments: Any, **named: Any) -> Any:
        channel = super().open_channel(*arguments, **named)
        for pipe in (channel.in_buffer, channel.in_stderr_buffer):
            pipe.__class__ = _Pipe  # keep the pipe: the host behind a jump host may have sent bytes already
        return channel

    def auth_publickey(self, *arguments: Any, **named: Any) -> Any:
        try:
            return super().auth_publickey(*arguments, **named)
        except paramiko.AuthenticationException as error:
            if "timeout" in str(error):
                raise NoAnswer from error
            raise

    def auth_interactive_dumb(self, *_arguments: Any, **_named: Any) -> Any:
        raise paramiko.AuthenticationException(QUESTIONS)


def is_flooded(channel: Any) -> bool:
    """Whether the host sent more on this channel than its window: paramiko then ends the whole connection."""
    return any(getattr(pipe, "overfull", False) for pipe in (channel.in_buffer, channel.in_stderr_buffer))


def cut(connection: Any) -> None:
    """End a fabric connection at once, even if something waits on it; sends nothing and waits for nothing.

    It closes the hop nearest to us; all connections through this hop end with it.
    """
    hops = [connection]
    while hasattr(hops[-1].gateway, "client"):
        hops.append(hops[-1].gateway)
    for hop in reversed(hops):
        transport = hop.client.get_transport()
        if transport is None:
            continue
        transport.packetizer.close()
        with contextlib.suppress(OSError, EOFError, paramiko.SSHException):
            if isinstance(transport.sock, socket.socket):
                transport.sock.shutdown(socket.SHUT_RDWR)
            else:
                transport.sock.close()  # a ProxyCommand, or a channel of the hop before
        transport.close()
