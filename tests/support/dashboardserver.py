"""`gpuprep serve` as a process of its own, and plain requests to it."""

from __future__ import annotations

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
from urllib.parse import urlsplit

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
