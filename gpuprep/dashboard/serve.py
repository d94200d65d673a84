"""Listens until Ctrl-C. The only import of uvicorn."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Sequence

import uvicorn

from gpuprep.dashboard.app import application, warm
from gpuprep.dashboard.board import Board
from gpuprep.dashboard.guard import Rules
from gpuprep.listening import Listen
from gpuprep.store.readonly import ReadOnlyStore

AT_ONCE = 200  # connections; more are answered with 503
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
            config = uvicorn.Config(
                application(board, rules), log_config=None, access_log=False, server_header=False, proxy_headers=False,
                limit_concurrency=AT_ONCE, timeout_graceful_shutdown=GOODBYE_SECONDS, lifespan="off", ws="none",
            )  # fmt: skip
            say(listen.url(port, token))
            threading.Thread(target=warm, name="warms up", daemon=True).start()
            uvicorn.Server(config).run(sockets=[listening])
    except KeyboardInterrupt:
        return
    finally:
        board.close()


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
