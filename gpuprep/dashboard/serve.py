"""Listens until Ctrl-C. The only import of uvicorn."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Awaitable, Callable, Sequence

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from gpuprep.dashboard.app import application, warm
from gpuprep.dashboard.board import Board
from gpuprep.dashboard.guard import Rules
from gpuprep.listening import Connections, Listen
from gpuprep.store.readonly import ReadOnlyStore

GOODBYE_SECONDS = 1  # for answers that are on their way when it ends
BACKLOG = 128


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
            http, end_slow = _protocol()
            config = uvicorn.Config(
                application(board, rules), log_config=None, access_log=False, server_header=False, proxy_headers=False,
                timeout_graceful_shutdown=GOODBYE_SECONDS, lifespan="off", ws="none", http=http,
                callback_notify=end_slow, timeout_notify=1,
            )  # fmt: skip
            say(listen.url(port, token))
            threading.Thread(target=warm, name="warms up", daemon=True).start()
            uvicorn.Server(config).run(sockets=[listening])
    except KeyboardInterrupt:
        return
    finally:
        board.close()


def _protocol() -> tuple[type[H11Protocol], Callable[[], Awaitable[None]]]:
    """uvicorn's HTTP with a limit for clients that are slow, and what ends these: uvicorn itself waits for ever."""
    connections = Connections[H11Protocol](lambda one: one.transport.abort())

    class Limited(H11Protocol):
        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's
            super().connection_made(transport)
            connections.waits(self)

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            self._count()

        def on_response_complete(self) -> None:
            connections.waits(self)
            super().on_response_complete()
            self._count()  # a second request may have come with the first

        def pause_writing(self) -> None:
            super().pause_writing()
            connections.waits(self)

        def resume_writing(self) -> None:
            super().resume_writing()
            self._count()

        def _count(self) -> None:
            answering = self.cycle is not None and not self.cycle.response_complete
            (connections.works if answering else connections.waits)(self)

        def connection_lost(self, exc: Exception | None) -> None:
            connections.gone(self)
            super().connection_lost(exc)

    async def end_slow() -> None:
        connections.end_slow()

    return Limited, end_slow


def _socket(listen: Listen) -> socket.socket:
    """Bound before the store is read: a port that is taken is reported at once."""
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
        raise listen.refused(error) from error
    return made
