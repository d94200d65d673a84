"""A bad link between a simulated machine and its package archive: an HTTP proxy that apt is told to use.

    python3 -m gpuprep.sim.guest.badlink gone|damaged|syncing|slow|dying

gone: packages answer 404. damaged: packages have other bytes. syncing: lists are not those that their index names.
slow: 50 kB/s. dying: the first try of each package ends in the middle. All else is passed on.
"""

from __future__ import annotations

import http.client
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

SETTING = Path("/etc/apt/apt.conf.d/99sim-link")
PACKAGES, LISTS = (".deb",), ("Packages.xz", "Packages.gz", "Packages")
PASSED = ("Range", "If-Range", "If-Modified-Since")
BYTES_PER_SECOND = 50_000
SECONDS = 60.0


class Link(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, fault: str) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.fault = fault
        self.died: set[str] = set()


class Handler(BaseHTTPRequestHandler):
    server: Link
    protocol_version = "HTTP/1.1"
    timeout = SECONDS

    def do_GET(self) -> None:
        fault, package = self.server.fault, self.path.endswith(PACKAGES)
        if fault == "gone" and package:
            self.send_error(404)
            return
        headers = {name: self.headers[name] for name in PASSED if name in self.headers}
        try:
            answer = urllib.request.urlopen(urllib.request.Request(self.path, headers=headers), timeout=SECONDS)
        except urllib.error.HTTPError as error:
            self.send_response(error.code)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        except (OSError, http.client.HTTPException) as error:
            self.send_error(502, str(error))
            return
        with answer:
            self._pass_on(answer, package)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""

    def _pass_on(self, answer: http.client.HTTPResponse, package: bool) -> None:
        fault = self.server.fault
        # apt takes a list by the digest in its address as well: /by-hash/SHA256/...
        is_list = "/by-hash/" in self.path or self.path.endswith(LISTS)
        body = answer.read() if (fault == "damaged" and package) or (fault == "syncing" and is_list) else None
        if body is not None:
            body = body[:-1] + bytes([body[-1] ^ 1]) if fault == "damaged" else body + b"\n"
        length = len(body) if body is not None else int(answer.headers.get("Content-Length", 0))
        self.send_response(answer.status)
        for name in ("Content-Type", "Content-Range", "Last-Modified"):
            if name in answer.headers:
                self.send_header(name, answer.headers[name])
        self.send_header("Content-Length", str(length))
        self.end_headers()
        if body is not None:
            self.wfile.write(body)
        elif fault == "dying" and package and self.path not in self.server.died:
            self.server.died.add(self.path)
            self.wfile.write(answer.read(length // 2))
            self.wfile.flush()
            self.connection.close()
            self.close_connection = True
        elif fault == "slow":
            while block := answer.read(BYTES_PER_SECOND // 10):
                self.wfile.write(block)
                time.sleep(0.1)
        else:
            shutil.copyfileobj(answer, self.wfile)


def main() -> None:
    link = Link(sys.argv[1])
    SETTING.write_text(f'Acquire::http::Proxy "http://127.0.0.1:{link.server_address[1]}";\n')
    subprocess.run(["systemd-notify", "--ready"], check=True)
    link.serve_forever()


if __name__ == "__main__":
    main()
