"""A server that answers as three clouds do, from tests/cases/cloud, for the real inventory plugins.

It is a proxy that ends TLS itself, with a certificate of its own. So the plugins ask the addresses that they always
ask, and nothing in them or in the example inventories is replaced.
"""

from __future__ import annotations

import contextlib
import json
import ssl
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from places import TESTS

CASES = TESTS / "cases/cloud"
MOST_BYTES = 1 << 20
HOSTS = (
    "ec2.eu-central-1.amazonaws.com",
    "oauth2.googleapis.com",
    "www.googleapis.com",
    "login.microsoftonline.com",
    "management.azure.com",
)
TENANT, SUBSCRIPTION = "00000000-0000-4000-8000-00000000000b", "00000000-0000-4000-8000-00000000000a"


class Clouds(ThreadingHTTPServer):
    """`asked` is every request: host, path and what was asked for."""

    daemon_threads = True

    def __init__(self, certificate: ssl.SSLContext) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.certificate = certificate
        self.asked: list[tuple[str, str, dict[str, list[str]]]] = []


class Handler(BaseHTTPRequestHandler):
    server: Clouds
    protocol_version = "HTTP/1.1"
    host = ""

    def do_CONNECT(self) -> None:
        self.host = self.path.partition(":")[0]
        if self.host not in HOSTS:
            self.send_error(403, f"{self.host} is none of the clouds")
            return
        self.send_response(200)
        self.end_headers()
        with (
            self.server.certificate.wrap_socket(self.connection, server_side=True) as inside,
            inside.makefile("rb") as self.rfile,
            inside.makefile("wb") as self.wfile,
        ):
            self.close_connection = False
            while not self.close_connection:
                self.handle_one_request()

    def do_GET(self) -> None:
        self._answer({})

    def do_POST(self) -> None:
        length = min(int(self.headers.get("Content-Length", 0)), MOST_BYTES)
        text = self.rfile.read(length).decode()
        self._answer(json.loads(text) if text.startswith("{") else parse_qs(text))

    def _answer(self, body: dict[str, Any]) -> None:
        parts = urlsplit(self.path)
        words = {**parse_qs(parts.query), **body}
        self.server.asked.append((self.host, parts.path, words))
        content, kind = answer(self.host, parts.path, words)
        data = content.encode()
        self.send_response(200 if content else 404)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)
        self.wfile.flush()

    def log_message(self, format: str, *args: Any) -> None:
        pass


def answer(host: str, path: str, words: dict[str, Any]) -> tuple[str, str]:
    """Content and type of an answer; no content for what nobody recorded."""
    if host.startswith("ec2."):
        return (CASES / "aws_ec2.xml").read_text(), "text/xml"
    if path == "/compute/v1/projects/my-project/aggregated/instances":
        return (CASES / "gcp_compute.json").read_text(), "application/json"
    found = _token(host, path) if host.startswith(("oauth2.", "login.")) else _azure(path, words)
    return (json.dumps(found) if found else ""), "application/json"


def _token(host: str, path: str) -> Any:
    own = f"https://{host}/{TENANT}"
    if path.endswith("/instance"):
        return {"tenant_discovery_endpoint": f"{own}/v2.0/.well-known/openid-configuration", "metadata": []}
    if path.endswith("openid-configuration"):
        return {
            "token_endpoint": f"{own}/oauth2/v2.0/token",
            "authorization_endpoint": f"{own}/oauth2/v2.0/authorize",
            "issuer": f"{own}/v2.0",
        }
    return {"access_token": "a-token", "token_type": "Bearer", "expires_in": 3600}


def _azure(path: str, words: dict[str, Any]) -> Any:
    recorded = json.loads((CASES / "azure_rm.json").read_text())
    if path != "/batch":
        return recorded.get(path)
    requests = [(one["name"], urlsplit(one["url"]).path) for one in words["requests"]]
    return {
        "responses": [{"name": name, "httpStatusCode": 200, "content": recorded[wanted]} for name, wanted in requests]
    }


def _certificate(folder: Path) -> Path:
    """Key and certificate in one file, for all hosts."""
    names = ",".join(f"DNS:{host}" for host in HOSTS)
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-days",
        "2",
        "-subj",
        "/CN=clouds of a test",
    ]
    files = ["-addext", f"subjectAltName={names}", "-keyout", str(folder / "key"), "-out", str(folder / "certificate")]
    subprocess.run([*command, *files], check=True, capture_output=True)
    both = folder / "both"
    both.write_text((folder / "key").read_text() + (folder / "certificate").read_text())
    return both


@contextlib.contextmanager
def clouds(folder: Path) -> Iterator[tuple[Clouds, dict[str, str]]]:
    """The server, and the environment in which a program takes it for the clouds."""
    both = _certificate(folder)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(both)
    google = {"type": "authorized_user", "client_id": "an-id", "client_secret": "none", "refresh_token": "none"}
    (folder / "google.json").write_text(json.dumps(google))
    with Clouds(context) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        proxy = f"http://127.0.0.1:{server.server_address[1]}"
        authority = str(folder / "certificate")
        yield server, {
            "HTTPS_PROXY": proxy, "https_proxy": proxy, "NO_PROXY": "", "no_proxy": "",
            "REQUESTS_CA_BUNDLE": authority, "AWS_CA_BUNDLE": authority,
            "AWS_ACCESS_KEY_ID": "an-id", "AWS_SECRET_ACCESS_KEY": "none", "AWS_EC2_METADATA_DISABLED": "true",
            "GOOGLE_APPLICATION_CREDENTIALS": str(folder / "google.json"),
            "AZURE_CLIENT_ID": "an-id", "AZURE_SECRET": "none", "AZURE_TENANT": TENANT,
            "AZURE_SUBSCRIPTION_ID": SUBSCRIPTION,
        }  # fmt: skip
        server.shutdown()
