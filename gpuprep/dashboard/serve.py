"""Listens until Ctrl-C. The only import of uvicorn."""

from __future__ import annotations

import ipaddress
import secrets
import socket
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import uvicorn

from gpuprep.dashboard.app import application, warm
from gpuprep.dashboard.board import Board
from gpuprep.dashboard.guard import Rules
from gpuprep.errors import UsageError
from gpuprep.store.readonly import ReadOnlyStore

AT_ONCE = 200  # connections; more are answered with 503
GOODBYE_SECONDS = 1  # for answers that are on their way when it ends
BACKLOG = 128


@dataclass(frozen=True)
class Listen:
    """Where: an address of this machine, or a name that leads to one."""

    host: str
    port: int

    @property
    def is_loopback(self) -> bool:
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"


def parse(text: str) -> Listen:
    """ "127.0.0.1:8765", "[::1]:8765", "8765". Raises UsageError."""
    host, _, port = text.rpartition(":")
    wrong = UsageError(f"--listen {text}: this is no ADDRESS:PORT", "for example 127.0.0.1:8765, [::1]:8765 or 8765")
    if not (port.isascii() and port.isdigit() and len(port) <= 5 and int(port) <= 65535):
        raise wrong
    bracketed = host.startswith("[") and host.endswith("]")
    if (":" in host and not bracketed) or any(letter.isspace() or letter == "/" for letter in host):
        raise wrong
    return Listen(host[1:-1] if bracketed else host or "127.0.0.1", int(port))


def new_token() -> str:
    return secrets.token_urlsafe(32)


def serve(
    store: ReadOnlyStore, listen: Listen, token: str, names: Sequence[str], *, secure: bool, say: Callable[[str], None]
) -> None:
    """Answer until SIGINT or SIGTERM. `token` "": none is asked for. Closes the store.

    Raises UsageError where nothing can listen there, StoreError where the store cannot be read.
    """
    board = Board(store)
    try:
        listening = _socket(listen)
        with listening:
            port = listening.getsockname()[1]
            board.start(lambda hosts: say(f"{hosts} host{'' if hosts == 1 else 's'} in {store.shown_url}"))
            rules = Rules(token, [listen.host, *names], cookie=f"gpuprep-{port}", secure=secure)
            config = uvicorn.Config(
                application(board, rules), log_config=None, access_log=False, server_header=False, proxy_headers=False,
                limit_concurrency=AT_ONCE, timeout_graceful_shutdown=GOODBYE_SECONDS, lifespan="off", ws="none",
            )  # fmt: skip
            shown = f"[{listen.host}]" if ":" in listen.host else listen.host
            say(f"http://{shown}:{port}/{f'?token={token}' if token else ''}")
            threading.Thread(target=warm, name="warms up", daemon=True).start()
            uvicorn.Server(config).run(sockets=[listening])
    except KeyboardInterrupt:
        return
    finally:
        board.close()


def _socket(listen: Listen) -> socket.socket:
    """Bound before the store is read: a port that is taken is told at once."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            listen.host, listen.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        made = socket.socket(family, kind, protocol)
        try:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            made.bind(address)
            made.listen(BACKLOG)  # whoever comes while the store is read waits
        except OSError:
            made.close()
            raise
    except OSError as error:
        where = f"{listen.host}:{listen.port}"
        raise UsageError(f"--listen {where}: nothing can listen there: {error.strerror}", "give another") from error
    return made
