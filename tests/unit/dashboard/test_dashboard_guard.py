"""Who may look at `gpuprep serve`, and what a browser may do with its pages."""

from __future__ import annotations

import http.client
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import amount
import pytest
from commandline import Shell, nothing_may_listen
from dashboardserver import SECONDS, Server, serving
from fleetstore import write

from gpuprep import errors, listening

pytestmark = pytest.mark.xdist_group("dashboard")
TOKEN = "correct-horse-battery-staple"
PAGES = (
    "/",
    "/fleet",
    "/host/gpu-0001",
    "/run/last",
    "/nights",
    "/trends",
    "/findings",
    "/search",
    "/nope",
    "/static/style.css",
)


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    made = f"sqlite:///{tmp_path_factory.mktemp('dashboard')}/history.db"
    write(made, 4, 3)
    return made


@pytest.fixture(scope="module")
def server(url: str) -> Iterator[Server]:
    """With a token that it made itself, and a name."""
    with serving(url, "--name", "gpus.example.org") as running:
        yield running


def token_of(server: Server) -> str:
    return server.url.partition("?token=")[2]


def cookie_of(server: Server) -> str:
    return server.get(f"/fleet?token={token_of(server)}").headers["set-cookie"].partition(";")[0]


def test_the_token_is_new_at_each_start_and_hard_to_guess(server: Server, url: str) -> None:
    assert len(token_of(server)) >= 40
    with serving(url) as another:
        assert token_of(another) != token_of(server)
        assert another.get("/fleet", cookie=cookie_of(server)).status == 401


@pytest.mark.parametrize("path", PAGES)
def test_without_a_token_nothing_is_shown(server: Server, path: str) -> None:
    for headers in ({}, {"cookie": "gpuprep=x"}, {"authorization": "Bearer x"}, {"authorization": f"Basic {TOKEN}"}):
        answer = server.get(path, **headers)
        assert answer.status == 401
        assert "gpu-0001" not in answer.text
    assert server.get(f"{path}?token=wrong").status == 401
    assert server.get(f"{path}?token=").status == 401
    assert server.get(f"{path}?token=%ff%00").status == 401


def test_the_token_leaves_the_address_for_a_cookie(server: Server) -> None:
    answer = server.get(f"/fleet?token={token_of(server)}&verdict=PASS")
    assert (answer.status, answer.headers["location"]) == (303, "/fleet?verdict=PASS")
    name, *attributes = [part.strip() for part in answer.headers["set-cookie"].split(";")]
    assert token_of(server) not in name
    assert {"HttpOnly", "SameSite=strict", "Path=/"} <= set(attributes)
    assert server.get("/fleet", cookie=name).status == 200
    assert server.get("/fleet", cookie=f"other=1; {name}").status == 200
    assert server.get("/fleet", cookie=name[:-1]).status == 401


def test_programs_send_the_token_in_a_header(server: Server) -> None:
    assert server.get("/fleet?format=json", authorization=f"Bearer {token_of(server)}").document["total"] == 4


@pytest.mark.parametrize("path", ["//evil.example/", "///evil.example", "/\\evil.example", "//evil.example/%2e%2e"])
def test_the_way_back_leads_to_this_server_alone(server: Server, path: str) -> None:
    location = server.get(f"{path}?token={token_of(server)}").headers["location"]
    assert re.match(r"/[^/\\]", location), location


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1", 401),
        ("localhost:1", 401),
        ("LOCALHOST", 401),
        ("[::1]:80", 401),
        ("192.0.2.7", 401),
        ("gpus.example.org", 401),
        ("gpus.example.org.", 401),
        ("evil.example", 421),
        ("127.0.0.1.evil.example", 421),
        ("localhost.evil.example:80", 421),
        ("", 421),
        ("127.0.0.1, evil.example", 421),
        ("evil.example@127.0.0.1", 421),
    ],
)
def test_a_page_of_another_name_is_refused(server: Server, host: str, status: int) -> None:
    assert server.get("/fleet", host=host).status == status


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND"])
def test_nothing_can_be_changed(server: Server, method: str) -> None:
    answer = server.get("/fleet", method, cookie=cookie_of(server))
    assert (answer.status, answer.headers["allow"]) == (405, "GET, HEAD")


def test_head_has_the_headers_alone(server: Server) -> None:
    answer = server.get("/fleet", "HEAD", cookie=cookie_of(server))
    assert (answer.status, answer.text) == (200, "")
    assert int(answer.headers["content-length"]) > 1000


@pytest.mark.parametrize("path", PAGES)
def test_no_page_is_kept_framed_or_fetches_elsewhere(server: Server, path: str) -> None:
    for answer in (server.get(path, cookie=cookie_of(server)), server.get(path)):
        policy = answer.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'")
        assert "frame-ancestors 'none'" in policy
        assert "script-src 'unsafe" not in policy
        if not path.startswith("/run"):  # its style sheet stands in it
            assert "unsafe" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert answer.headers["cache-control"] == "no-store"
        assert "server" not in answer.headers


def test_a_health_check_needs_no_token_and_says_nothing(server: Server) -> None:
    answer = server.get("/healthz")
    assert (answer.status, answer.text) == (200, "ok\n")
    assert server.get("/healthz", host="evil.example").status == 421


def test_a_long_question_is_refused(server: Server) -> None:
    assert server.get("/search?q=" + "x" * 3000).status == 414
    assert server.get("/fleet?" + "&".join(f"a{number}=1" for number in range(200))).status == 400


def test_a_request_that_is_none_ends_nothing(server: Server) -> None:
    parts = urlsplit(server.url)
    for words in (
        b"\x00\x01\x02\r\n\r\n",
        b"GET /fleet HTTP/1.1\r\n\r\n",
        b"GET " + b"x" * 100_000,
        b"GET /\xff HTTP/1.1\r\n\r\n",
    ):
        with socket.create_connection((parts.hostname or "", parts.port or 0), timeout=SECONDS) as plain:
            plain.sendall(words)
            plain.settimeout(SECONDS)
            try:
                plain.shutdown(socket.SHUT_WR)
                while plain.recv(10_000):
                    pass
            except OSError:
                pass
    assert server.get("/healthz").status == 200


def test_behind_a_proxy_the_cookie_goes_by_tls_alone(url: str) -> None:
    with serving(url, "--tls-proxy", "--token", TOKEN) as server:
        assert "?token=..." in server.url  # the user knows it: it goes into no log
        assert "Secure" in server.get(f"/fleet?token={TOKEN}").headers["set-cookie"]


# ---------------------------------------------------------------- the command line


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[int, str, str]]:
    """A command line that is to be refused."""
    nothing_may_listen(monkeypatch)
    return lambda *words: Shell(capsys)("serve", *words)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--listen", "nowhere"), "this is no ADDRESS:PORT"),
        (("--listen", "127.0.0.1:99999"), "this is no ADDRESS:PORT"),
        (("--listen", "203.0.113.7:80"), "nothing can listen there"),
        (("--listen", "0.0.0.0:0", "--no-token"), "could read the pages"),
        (("--listen", "192.168.1.5:0", "--no-token"), "could read the pages"),
        (("--token", "short"), "16 letters or more"),
        (("--token", TOKEN, "--no-token"), "exclude each other"),
        (("--token-file", "/no/such/file"), "does not exist"),
    ],
)
def test_a_wrong_option_is_one_line(
    url: str, run: Callable[..., tuple[int, str, str]], words: tuple[str, ...], said: str
) -> None:
    code, out, err = run("--store", url, *words)
    assert (code, out) == (2, "")
    assert said in err


def test_a_token_of_a_file(url: str, run: Callable[..., tuple[int, str, str]], tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text(f"{TOKEN}\nanother line\n")
    with serving(url, "--token-file", str(path)) as server:
        assert server.get("/fleet", authorization=f"Bearer {TOKEN}").status == 200
    path.write_text("\n")
    assert "16 letters or more" in run("--store", url, "--token-file", str(path))[2]


@pytest.mark.parametrize("module", amount.few(["starlette", "uvicorn"], 1))
def test_without_the_libraries_one_line_says_how_to_get_them(module: str) -> None:
    program = f"import sys; sys.modules[{module!r}] = None; from gpuprep.cli import main; main(['serve'])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        f"Error: `gpuprep serve` needs {module}, which is not installed",
        "  what to do: pip install 'gpuprep[serve]'   (in gpuprep's own environment), or pip install starlette uvicorn",
    ]


@pytest.mark.parametrize("number", amount.few([signal.SIGTERM, signal.SIGINT], 1))
def test_it_ends_though_browsers_keep_their_connections(url: str, number: signal.Signals) -> None:
    with serving(url, "--no-token") as server:
        parts = urlsplit(server.url)
        kept = [http.client.HTTPConnection(parts.hostname or "", parts.port) for _ in range(5)]
        for connection in kept:
            connection.request("GET", "/fleet")
            connection.getresponse().read()
        waiting = socket.create_connection((parts.hostname or "", parts.port or 0))
        waiting.sendall(b"GET /fleet HTTP/1.1\r\n")  # a request that never ends
        server.process.send_signal(number)
        assert server.process.wait(SECONDS) == 0, "it waits for nobody"
        for connection in kept:
            connection.close()
        waiting.close()


@pytest.mark.parametrize(
    ("text", "host", "port", "is_loopback"),
    [
        ("127.0.0.1:8765", "127.0.0.1", 8765, True),
        ("8765", "127.0.0.1", 8765, True),
        (":80", "127.0.0.1", 80, True),
        ("[::1]:1", "::1", 1, True),
        ("[::]:1", "::", 1, False),
        ("0.0.0.0:1", "0.0.0.0", 1, False),
        ("192.168.1.5:1", "192.168.1.5", 1, False),  # a private network has others in it
        ("169.254.1.5:1", "169.254.1.5", 1, False),
        ("localhost:1", "localhost", 1, True),
        ("gpus:1", "gpus", 1, False),
    ],
)
def test_where_it_listens(text: str, host: str, port: int, is_loopback: bool) -> None:
    found = listening.parse(text, 8765)
    assert (found.host, found.port, found.is_loopback) == (host, port, is_loopback)


@pytest.mark.parametrize(
    "text", ["", "x", "1:2:3", "::1:80", "[::1]", "a b:1", "http://x:1", "127.0.0.1:-1", "127.0.0.1:٣"]
)
def test_where_it_does_not_listen(text: str) -> None:
    with pytest.raises(errors.UsageError, match="this is no ADDRESS:PORT"):
        listening.parse(text, 8765)
