"""A mirror of FFmpeg's sources that is slow, leads elsewhere, or sends something else: nothing of it is kept."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import rolevalues
from builders import load

from gpuprep import catalogue, errors
from gpuprep.codecbuild import sources

NAMES = ("ffmpeg-7.1.5.tar.xz", "ffmpeg-7.1.5.tar.xz.asc", "nv-codec-headers-12.1.14.0.tar.gz")


class Mirror:
    """Answers as `attack` says; without one, or for what it passes over (False), with the right file."""

    def __init__(self) -> None:
        self.attack: Callable[[BaseHTTPRequestHandler], object] = lambda _: False
        self.asked: list[str] = []
        self.ended = threading.Event()
        mirror = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                mirror.asked.append(self.path)
                name = self.path.rpartition("/")[2]
                if mirror.attack(self) is False:
                    self.send_response(200)
                    self.end_headers()
                    self.wfile.write(name.encode())

            do_HEAD = do_GET

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=partial(self.server.serve_forever, poll_interval=0.01), daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}"

    def end(self) -> None:
        self.ended.set()
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def mirrors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Mirror, Mirror]]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("no_proxy", "*")
    made = Mirror(), Mirror()
    yield made
    for one in made:
        one.end()


def known(kind: str) -> dict[str, catalogue.Source]:
    name = NAMES[0] if kind == "ffmpeg" else NAMES[2]
    version = "7.1.5" if kind == "ffmpeg" else "12.1.14.0"
    right = hashlib.sha256(name.encode()).hexdigest()
    return {version: catalogue.Source(version, f"https://up.example/{name}", (right,))}


def fetch(url: str, said: list[str] | None = None) -> dict[str, str]:
    notes: list[str] = [] if said is None else said
    found = sources.fetch(load().codec, {"ffmpeg": url, "nv_codec_headers": url}, notes.append, known)
    return {name: path.read_text() for name, path in found.items()}


GOOD = dict(zip(("ffmpeg.tar", "ffmpeg.tar.asc", "headers.tar"), NAMES, strict=True))


def refused(url: str, says: str) -> None:
    with pytest.raises(errors.GpuprepError) as caught:
        fetch(url)
    assert says in caught.value.what, caught.value.what
    assert "\n" not in caught.value.what
    assert caught.value.what.isprintable()
    assert caught.value.hint


def redirect(target: str) -> Callable[[BaseHTTPRequestHandler], object]:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(302)
        handler.send_header("Location", target)
        handler.end_headers()

    return answer


@pytest.mark.parametrize(
    "target",
    ["http://localhost:{other}/x", "http://127.0.0.1:{other}/x", "http://169.254.169.254/latest", "https://evil.example/",
     "file:///etc/passwd", "ftp://127.0.0.1/x", "//localhost:{other}/x", "http://127.0.0.1@localhost:{other}/x"],
)  # fmt: skip
def test_no_mirror_leads_to_another_host(mirrors: tuple[Mirror, Mirror], target: str) -> None:
    first, other = mirrors
    first.attack = redirect(target.format(other=other.server.server_port))
    refused(first.url, "")
    assert other.asked == []
    assert fetch(other.url) == GOOD


def test_a_mirror_may_lead_to_itself(mirrors: tuple[Mirror, Mirror]) -> None:
    first, _ = mirrors
    first.attack = lambda handler: redirect(f"/new{handler.path}")(handler) if "/new" not in handler.path else False
    assert fetch(first.url) == GOOD


def trickle(handler: BaseHTTPRequestHandler, ended: threading.Event) -> None:
    handler.send_response(200)
    handler.send_header("Content-Length", "1000000")
    handler.end_headers()
    handler.wfile.write(b"f")
    ended.wait(60)


def test_a_download_that_never_ends_is_given_up(
    mirrors: tuple[Mirror, Mirror], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, other = mirrors
    first.attack = lambda handler: trickle(handler, first.ended)
    with monkeypatch.context() as patched:
        patched.setattr(sources, "TOTAL_SECONDS", 0.3)
        refused(first.url, "could not be fetched: it did not arrive within 0.3 s")
    assert fetch(other.url) == GOOD


def half(handler: BaseHTTPRequestHandler) -> None:
    handler.send_response(200)
    handler.send_header("Content-Length", "1000")
    handler.end_headers()
    handler.wfile.write(b"ffmpeg")


def no_http(handler: BaseHTTPRequestHandler) -> None:
    handler.wfile.write(b"\x1b[2J\r\n\r\n")


def other_content(handler: BaseHTTPRequestHandler) -> None:
    handler.send_response(200)
    handler.end_headers()
    handler.wfile.write(b"<html>log in</html>")


@pytest.mark.parametrize("attack", [half, no_http, other_content])
@pytest.mark.parametrize("name", NAMES)
def test_what_a_bad_mirror_sent_is_not_kept(
    mirrors: tuple[Mirror, Mirror], name: str, attack: Callable[[BaseHTTPRequestHandler], None]
) -> None:
    """Of a signature only the build can say that it is wrong: the next mirror's replaces it."""
    first, other = mirrors
    first.attack = lambda handler: attack(handler) if handler.path == f"/{name}" else False
    if name.endswith(".asc") and attack is not no_http:
        fetch(first.url)
    else:
        refused(first.url, name)
    assert fetch(other.url) == GOOD
    other.end()
    assert fetch(other.url) == GOOD, "the good ones are kept for a build without a network"


def test_a_signature_of_any_size_is_not_taken(mirrors: tuple[Mirror, Mirror], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "MOST_SIGNATURE_BYTES", 10)
    refused(mirrors[0].url, "is larger than")


def test_the_password_of_a_mirror_is_not_shown(mirrors: tuple[Mirror, Mirror]) -> None:
    first, _ = mirrors
    said: list[str] = []
    url = first.url.replace("http://", "http://me:hunter2@")
    with pytest.raises(errors.GpuprepError) as caught:
        fetch(url, said)
    assert "hunter2" not in f"{said} {caught.value.what}"


def test_no_role_is_led_to_another_host(mirrors: tuple[Mirror, Mirror], tmp_path: Path) -> None:
    """As the controller: to the same host, and where `gpu_preflight_redirects` says."""
    first, other = mirrors
    to = {"same": "/new/same", "other": f"{other.url}/x", "name": f"http://localhost:{other.url.rpartition(':')[2]}/x",
          "known": f"{first.url.replace('127.0.0.1', 'localhost')}/new/known", "twice": "/new/other"}  # fmt: skip

    def attack(handler: BaseHTTPRequestHandler) -> object:
        name = handler.path.rpartition("/")[2]
        if handler.path == f"/{name}" or handler.path == "/new/other":
            return redirect(to[name])(handler)
        return False

    first.attack = attack
    (tmp_path / "file").write_text("of a folder")
    asked = {
        "plain": f"{first.url}/a/plain",
        **{name: f"{first.url}/{name}" for name in to},
        "file": f"file://{tmp_path}/file",
    }
    tasks = [
        {
            "ansible.builtin.include_role": {"name": "gpu_preflight", "tasks_from": "fetch"},
            "vars": {"gpu_preflight_fetch_url": url, "gpu_preflight_fetch_to": str(tmp_path / f"got-{name}"),
                     "gpu_preflight_redirects": {"127.0.0.1": ["localhost"]} if name == "known" else {}},
        }
        for name, url in asked.items()
    ]  # fmt: skip
    said = {"ansible.builtin.debug": rolevalues.printing("twice", "gpu_preflight_fetched.msg")}
    found = rolevalues.values(tmp_path, {}, [*tasks[:-1], said, tasks[-1]])
    assert found["twice"] == f"it leads to {other.url}/x, which is not followed"
    got = {path.name.removeprefix("got-"): path.read_text() for path in tmp_path.glob("got-*")}
    assert got == {"plain": "plain", "same": "same", "known": "known", "file": "of a folder"}
    assert other.asked == []
