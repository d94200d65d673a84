"""Serves the stub archives by HTTP, in the folders that NVIDIA has: /OS/compute/cuda/repos/ubuntu2404/x86_64/.

The supervisor of each machine serves those of all: one port of this computer, which all of them listen on, so that an
address in a machine's package sources stays true for its clones, and when another machine is gone. Only on the
loopback, which machines share with this computer, and only what a machine may read anyway.
"""

from __future__ import annotations

import json
import re
import shutil
import socket
import threading
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from gpuprep.sim import controller, paths, store

HOST = "127.0.0.1"
NAME = re.compile(r"[A-Za-z0-9_+~][A-Za-z0-9._+~:%^-]{0,199}")
DEEPEST = 16
# NVIDIA's own folders ► those of the stub archives.
NVIDIA = ("compute", "cuda", "repos")


def offer(os_name: str, folder: Path) -> None:
    """Serve the archives of this OS, made in `folder`, from now on."""
    with store.locked():
        served = _served()
        port = served.port if served.port and _bound(served.port) else _bound(0)
        folders = {**served.folders, os_name: str(folder)}
        store.write_json(_file(), {"port": port, "folders": folders})


def address(os_name: str) -> str:
    """Where machines of this OS find its archives; "" where they would not reach them: behind a proxy."""
    served = _served()
    if controller.proxies() or os_name not in served.folders:
        return ""
    return f"http://{HOST}:{served.port}/{os_name}"


def begin() -> Server | None:
    """Serves in the background until this process ends; None where there is nothing to serve."""
    port = _served().port
    if not port:
        return None
    server = Server((HOST, port), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


@dataclass(frozen=True)
class Served:
    port: int = 0
    folders: Mapping[str, str] = field(default_factory=dict)  # OS ► where its archives lie


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def server_bind(self) -> None:
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        super().server_bind()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 60

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: a machine could fill this computer's disk."""

    def _answer(self, *, with_body: bool) -> None:
        file = find(self.path, _served().folders)
        if file is None:
            self.send_error(404)
            return
        with file.open("rb") as content:
            self.send_response(200)
            self.send_header("Content-Type", "application/octet-stream")
            self.send_header("Content-Length", str(file.stat().st_size))
            self.end_headers()
            if with_body:
                shutil.copyfileobj(content, self.wfile)


def find(path: str, folders: Mapping[str, str]) -> Path | None:
    """The file of an address; None for anything but a file of an archive."""
    parts = urllib.parse.unquote(urllib.parse.urlsplit(path).path).strip("/").split("/")
    if not 2 <= len(parts) <= DEEPEST or parts[0] not in folders or not all(NAME.fullmatch(part) for part in parts):
        return None
    below = tuple(parts[1:])
    if below[:3] == NVIDIA:
        below = ("nvidia", *below[3:])
    file = Path(folders[parts[0]]).joinpath(*below)
    return file if file.is_file() else None


def _bound(port: int) -> int:
    """The port, or any free one for 0; 0 if another program has it. The other supervisors' sockets share it."""
    with socket.socket() as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        try:
            trial.bind((HOST, port))
        except OSError:
            return 0
        return int(trial.getsockname()[1])


def _served() -> Served:
    try:
        return Served(**json.loads(_file().read_text()))
    except FileNotFoundError:
        return Served()


def _file() -> Path:
    return paths.state_dir() / "archives.json"
