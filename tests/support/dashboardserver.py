"""`gpuprep serve` as a process of its own, and plain requests to it; its pages without a server; its store."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote, urlsplit

import sqlalchemy as sa
from starlette.types import ASGIApp, Message

from gpuprep.dashboard.app import application
from gpuprep.dashboard.board import Board
from gpuprep.dashboard.guard import Rules
from gpuprep.store.readonly import ReadOnlyStore

SECONDS = 300  # ends a hang


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Mapping[str, str]  # names in small letters; of several with one name the last
    text: str

    @property
    def document(self) -> Any:
        return json.loads(self.text)


@dataclass(frozen=True)
class Server:
    url: str  # as it was printed, with the token where there is one
    process: subprocess.Popen[str]

    @property
    def base(self) -> str:
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc}"

    def get(self, path: str, method: str = "GET", **headers: str) -> Answer:
        """`path` goes as it is into the request. A header's name is written with _ in place of -."""
        parts = urlsplit(self.url)
        connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=SECONDS)
        try:
            connection.request(method, path, headers={name.replace("_", "-"): text for name, text in headers.items()})
            answer = connection.getresponse()
            found = {name.lower(): value for name, value in answer.getheaders()}
            return Answer(answer.status, found, answer.read().decode())
        finally:
            connection.close()


@contextmanager
def serving(store: str, *options: str) -> Iterator[Server]:
    """Ended as with Ctrl-C; it must end well."""
    command = [sys.executable, "-m", "gpuprep.cli", "serve", "--store", store, "--listen", "127.0.0.1:0", *options]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GPUPREP_")}
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, start_new_session=True
    )
    try:
        assert process.stdout is not None
        assert process.stderr is not None
        ready, _, _ = select.select([process.stdout], [], [], SECONDS)
        line = process.stdout.readline() if ready else ""
        assert line.startswith("http://127.0.0.1:"), process.stderr.read() if process.poll() is not None else line
        yield Server(line.strip(), process)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=SECONDS)
        assert process.returncode == 0, said
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


@contextmanager
def read_only(url: str) -> Iterator[ReadOnlyStore]:
    """The store as the pages have it."""
    store = ReadOnlyStore.open(url)
    try:
        yield store
    finally:
        store.close()


class Pages:
    """The same addresses as of a server without a token, answered in this process by what the store has now."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    def get(self, path: str) -> Answer:
        return asyncio.run(self.ask(path))

    async def ask(self, path: str) -> Answer:
        parts, sent = urlsplit(path), list[Message]()
        scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "GET", "scheme": "http",
            "path": unquote(parts.path), "raw_path": parts.path.encode(), "query_string": parts.query.encode(),
            "headers": [(b"host", b"127.0.0.1")], "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 80),
        }  # fmt: skip

        async def receive() -> Message:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: Message) -> None:
            sent.append(message)

        await self._app(scope, receive, send)
        headers = {name.decode().lower(): value.decode() for name, value in sent[0]["headers"]}
        return Answer(sent[0]["status"], headers, b"".join(one.get("body", b"") for one in sent[1:]).decode())


@contextmanager
def pages(url: str) -> Iterator[Pages]:
    board = Board(ReadOnlyStore.open(url), fresh_seconds=0)
    try:
        yield Pages(application(board, Rules("")))
    finally:
        board.close()


def questions(
    url: str, *, run_id: str, host: str, check: tuple[str, str], nights: tuple[str, str]
) -> dict[str, list[str]]:
    """Each question that the pages put to SQLite, and its steps in SQLite's plan."""
    board = Board(ReadOnlyStore.open(url), fresh_seconds=0)
    asked: list[tuple[str, Any]] = []
    sa.event.listen(
        board.store._engine, "before_cursor_execute", lambda _c, _u, text, words, *_: asked.append((text, words))
    )
    try:
        board.fleet()
        board.nights()
        board.speeds_now(host)
        board.store.problems([run_id])
        board.store.with_problem(*check, nights[0])
        board.store.of_names([host], "", 10)
        board.store.between(*nights)
        board.store.beginning_with("2026", 5)
        board.store.host_baseline(host)
        put = [one for one in asked if one[0].lstrip().startswith(("SELECT", "WITH"))]
        with board.store._transaction(write=False) as connection:
            return {
                text: [row[3] for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {text}", words)]
                for text, words in put
            }
    finally:
        board.close()
