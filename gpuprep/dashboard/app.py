"""Addresses ► pages. With ?format=json each is a JSON document; a run has all formats of `gpuprep report`."""

from __future__ import annotations

import asyncio
import functools
import html
import logging
import re
import socket
import threading
from collections.abc import Awaitable, Callable, Sequence
from functools import cache
from importlib import resources
from typing import Any

import anyio
import jinja2
import uvicorn
from anyio.to_thread import run_sync as in_thread
from markupsafe import Markup
from starlette.applications import Starlette
from starlette.convertors import Convertor, register_url_convertor
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from gpuprep import __version__, errorlog
from gpuprep.dashboard.board import Board
from gpuprep.dashboard.guard import Guard, Rules
from gpuprep.dashboard.pages import findings, fleet, host
from gpuprep.dashboard.pages.common import NotFound, Page, Query, host_path
from gpuprep.errors import GpuprepError, UsageError
from gpuprep.listening import Connections, Listen
from gpuprep.records import SCHEMA_VERSION
from gpuprep.records.moments import minute
from gpuprep.records.showable import strict_json
from gpuprep.reports import FORMATS, module, readings, render
from gpuprep.reports.templates import environment, with_code
from gpuprep.store.readonly import ReadOnlyStore
from gpuprep.untrusted.masking import masked
from gpuprep.untrusted.plaintext import one_line, visible

# ---------------------------------------------------------------- listening


GOODBYE_SECONDS = 1  # time for unfinished answers when the server ends
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
            made.listen(BACKLOG)  # requests wait while the store is read
        except OSError:
            made.close()
            raise
    except OSError as error:
        raise listen.refused(error) from error
    return made


# ---------------------------------------------------------------- pages


REPORTS = "gpuprep.reports.html"  # their style sheet and parts
MOST_LETTERS = 2000  # of one text on a page
PAGES_AT_ONCE = 8  # fewer than the connections to the store; Python makes one after the other anyway
TYPES = {"json": "application/json", "junit": "application/xml", "sbom": "application/json"}  # others are plain text
STATIC = {
    "style.css": (REPORTS, "style.css", "text/css"),
    "dashboard.css": (__package__, "static/dashboard.css", "text/css"),
    "above.css": (__package__, "static/above.css", "text/css"),
    "dashboard.js": (__package__, "static/dashboard.js", "text/javascript"),
}
OWN = jinja2.PackageLoader("gpuprep.dashboard")
# The report's own policy: it stands at the beginning, before any text from a host.
POLICY = re.compile(r'<meta http-equiv="Content-Security-Policy" content="([^"<>]*)">')
REPORT_POLICY = "default-src 'none'; style-src ; img-src data:; base-uri 'none'; form-action 'none'"
ABOVE = '<link rel="stylesheet" href="/static/above.css">'
log = logging.getLogger(__name__)


class Anything(Convertor[str]):
    """A path part that accepts every character: a host's name may contain slashes and newlines."""

    regex = r"(?s:.+)"

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


register_url_convertor("anything", Anything())


def application(board: Board, rules: Rules) -> ASGIApp:
    """The web application; the caller starts and closes the board."""
    # Apart: while many pages are made, whoever watches this server still gets its answer.
    pages, checks = anyio.CapacityLimiter(PAGES_AT_ONCE), anyio.CapacityLimiter(1)

    def answered(make: Callable[[], Response]) -> Response:
        with board.answering():
            return make()

    def page(make: Callable[[Request, Query], Page]) -> Callable[[Request], Any]:
        async def answer(request: Request) -> Response:
            query = Query(dict(request.query_params))
            style = query.choice("format", ("html", "json"))
            return await in_thread(answered, lambda: _shown(board, make(request, query), style), limiter=pages)

        return answer

    async def run(request: Request) -> Response:
        style = Query(dict(request.query_params)).choice("format", ("html", *FORMATS))
        make = functools.partial(_run, board, request.path_params["run"], style)
        return await in_thread(answered, make, limiter=pages)

    async def home(_: Request) -> Response:
        return RedirectResponse("/fleet", 303)

    async def static(request: Request) -> Response:
        text, kind = _static(request.path_params["file"])
        return Response(text, media_type=kind)

    async def health(_: Request) -> Response:
        await in_thread(board.store.check_readable, limiter=checks)
        return PlainTextResponse("ok\n")

    def word(request: Request, name: str) -> str:
        return str(request.path_params[name])

    routes = [
        Route("/", home),
        Route("/fleet", page(lambda _, query: fleet.fleet(board, query))),
        Route("/host/{name:anything}", page(lambda request, query: host.host(board, word(request, "name"), query))),
        Route("/run/{run:anything}", run),
        Route("/nights", page(lambda *_: fleet.nights(board))),
        Route("/nights/{day}", page(lambda request, query: fleet.night(board, word(request, "day"), query))),
        Route("/trends", page(lambda _, query: fleet.trends(board, query))),
        Route("/findings", page(lambda _, query: findings.findings(board, query))),
        Route(
            "/findings/{key:anything}",
            page(lambda request, query: findings.finding(board, word(request, "key"), query)),
        ),
        Route("/search", page(lambda _, query: findings.search(board, query))),
        Route("/healthz", health),
        Route("/static/{file}", static),
    ]
    handlers: dict[Any, Any] = {
        HTTPException: _no_page,
        GpuprepError: _expected,
        Exception: _unexpected,
    }
    return Guard(Starlette(routes=routes, exception_handlers=handlers), rules)


def warm() -> None:
    """Load the modules that the first page of each kind needs."""
    for style in FORMATS:
        module(style)
    for name in OWN.list_templates():
        _environment().get_template(name)


def _shown(board: Board, page: Page, style: str) -> Response:
    if style == "json":
        document = {"schema_version": SCHEMA_VERSION, **page.document}
        return Response(strict_json(document, indent=2) + "\n", page.status, media_type="application/json")
    around = {"version": __version__, "store": board.store.shown_url, "asked": "", "read_at": "", **page.variables}
    return HTMLResponse(_environment().get_template(page.template).render(around), page.status)


def _run(board: Board, run_id: str, style: str) -> Response:
    """The report of a run as `gpuprep report` makes it; above its page, the way back."""
    try:
        record = board.store.get(run_id)
    except UsageError as error:
        raise NotFound(error.what, "/search looks for runs by the beginning of their id") from error
    text = render(record, style)
    if style != "html":
        return Response(text, media_type=f"{TYPES.get(style, 'text/plain')}; charset=utf-8")
    policy = POLICY.search(text[:2000])
    links = _environment().get_template("above.html").render(
        host=record.host, path=host_path(record.host), formats=[form for form in FORMATS if form != "html"]
    )  # fmt: skip
    # The report's own policy, sent by the server, which also allows the style of the links above the report.
    allowed = html.unescape(policy[1]) if policy else REPORT_POLICY
    allowed = allowed.replace("style-src ", "style-src 'self' ", 1) + "; frame-ancestors 'none'"
    page = text.replace(policy[0], ABOVE, 1) if policy else text
    return HTMLResponse(page.replace("<body>", f"<body>{links}", 1), headers={"Content-Security-Policy": allowed})


# ---------------------------------------------------------------- errors


async def _expected(request: Request, error: GpuprepError) -> Response:
    status = 404 if isinstance(error, NotFound) else 400 if isinstance(error, UsageError) else 503
    return _error(request, status, masked(error.what), masked(error.hint))


async def _unexpected(request: Request, error: Exception) -> Response:
    """One line and a file, as on the command line."""
    try:
        kept = f"the full error is in {errorlog.keep(errorlog.whole(error, f'page: {visible(request.url.path)}'))}"
    except OSError as unwritable:
        kept = f"its log could not be written: {unwritable}"
    log.error("%s; %s", errorlog.named(error), kept)
    return _error(request, 500, errorlog.named(error), "the log of the server says more")


async def _no_page(request: Request, error: HTTPException) -> Response:
    return _error(request, error.status_code, "there is no such page", "the links above lead to all pages")


def _error(request: Request, status: int, what: str, todo: str) -> Response:
    if request.query_params.get("format") == "json":
        document = {"schema_version": SCHEMA_VERSION, "error": {"what": what, "hint": todo}, "exit_code": 3}
        return Response(strict_json(document, indent=2) + "\n", status, media_type="application/json")
    variables = {"what": what, "todo": todo, "status": status, "version": __version__, "banner": ""}
    page = _environment().get_template("error.html").render(variables, store="", asked="", read_at="")
    return HTMLResponse(page, status)


# ---------------------------------------------------------------- files of our own


@cache
def _environment() -> jinja2.Environment:
    loader = jinja2.ChoiceLoader([OWN, jinja2.FunctionLoader(lambda name: _file(REPORTS, name))])
    made = environment(loader, finalize=_calm)
    # Like every other text: cut and made safe before it becomes markup.
    made.filters.update(figure=readings.figure, minute=minute, with_code=lambda words: with_code(_calm(words)))
    return made


def _calm(value: Any) -> Any:
    """Make texts of records short and safe: without characters that hide or reverse other text."""
    if isinstance(value, str) and not isinstance(value, Markup):
        return one_line(value, MOST_LETTERS)
    return value


def _file(package: str | None, name: str) -> str | None:
    try:
        return resources.files(package or "").joinpath(name).read_text(encoding="utf-8")
    except FileNotFoundError:
        return None


@cache
def _static(name: str) -> tuple[str, str]:
    if name not in STATIC:
        raise HTTPException(404)
    package, path, kind = STATIC[name]
    return _file(package, path) or "", kind
