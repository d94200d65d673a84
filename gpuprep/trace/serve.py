"""Answers on an address until Ctrl-C: the WSGI server of the standard library, a thread a request."""

from __future__ import annotations

import contextlib
import io
import socket
from collections.abc import Callable, Sequence
from socketserver import ThreadingMixIn
from typing import TYPE_CHECKING, Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from gpuprep.listening import Connections, Listen
from gpuprep.trace.web import Rules, guarded

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIApplication, WSGIEnvironment

PART = 1 << 16  # bytes of an answer that a client has WAIT_SECONDS to take


def serve(
    application: WSGIApplication, listen: Listen, token: str, names: Sequence[str], say: Callable[[str], None]
) -> None:
    """Answer until SIGINT or SIGTERM. `token` "": none is asked for. `say` gets the address.

    Raises UsageError where nothing can listen there.
    """
    with _server(listen) as server:
        port = server.server_address[1]
        # Cookies do not know ports: those of another server on this machine must not be overwritten.
        rules = Rules(token, [listen.host, *names], cookie=f"gpuprep-trace-{port}")
        server.set_app(guarded(application, rules))
        say(listen.url(port, token))
        try:
            server.serve_forever(poll_interval=0.2)
        except KeyboardInterrupt:
            return


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True  # Ctrl-C does not wait for clients that are still loading
    block_on_close = False
    request_queue_size = 128

    def __init__(self, family: int, address: Any) -> None:
        self.address_family = family
        self.connections = Connections[socket.socket](_end)
        super().__init__(address, _Handler)

    def server_bind(self) -> None:
        """Without http.server's DNS query."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])
        self.setup_environ()

    def process_request(self, request: Any, client_address: Any) -> None:
        self.connections.waits(request)
        super().process_request(request, client_address)

    def service_actions(self) -> None:
        self.connections.end_slow()

    def close_request(self, request: Any) -> None:
        self.connections.gone(request)
        super().close_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A closed browser connection is no error; the application logs its own errors (web/app.py)."""


def _end(connection: socket.socket) -> None:
    """End the connection for which its thread waits."""
    with contextlib.suppress(OSError):  # its client ended it
        connection.shutdown(socket.SHUT_RDWR)


class _Answer(io.BufferedIOBase):
    """Where an answer is written to."""

    def __init__(self, connection: socket.socket, connections: Connections[socket.socket]) -> None:
        self._connection, self._connections = connection, connections

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        with memoryview(data) as view:
            for start in range(0, len(view), PART):
                self._connections.waits(self._connection)
                self._connection.sendall(view[start : start + PART])
                self._connections.works(self._connection)
            return len(view)


class _Handler(WSGIRequestHandler):
    server: _Server
    server_version = "gpuprep"
    sys_version = ""

    def setup(self) -> None:
        super().setup()
        self.wfile = _Answer(self.connection, self.server.connections)

    def get_environ(self) -> WSGIEnvironment:
        self.server.connections.works(self.connection)  # it has sent its whole request
        return super().get_environ()

    def address_string(self) -> str:
        return str(self.client_address[0])

    def log_message(self, format: str, *arguments: Any) -> None:
        """Log nothing: a requested address may contain a token."""


def _server(listen: Listen) -> _Server:
    try:
        family, _, _, _, address = socket.getaddrinfo(
            listen.host, listen.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        return _Server(family, address)
    except OSError as error:
        raise listen.refused(error) from error
