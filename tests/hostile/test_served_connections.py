"""Clients of `gpuprep serve` and `gpuprep trace serve` that open hundreds of connections, and never finish one."""

from __future__ import annotations

import contextlib
import http.client
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from traceserver import RECORDED, environment

from gpuprep import listening
from gpuprep.store import Store

SECONDS = 60  # ends a hang
# The limits of the test in place of those of the product, for whoever is to be closed by the other one.
START = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from gpuprep import listening
listening.MOST_CONNECTIONS, listening.WAIT_SECONDS = int(sys.argv.pop(1)), float(sys.argv.pop(1))
from gpuprep.cli import main
sys.exit(main())
"""
HALF = {
    "nothing": b"",
    "half a line": b"GET /index.html HT",
    "half a header": b"GET /index.html HTTP/1.1\r\nHost: localhost\r\nX-Long: ",
}
MOST = 20


class Kind:
    """One of the servers: how it is started, and an address with a large answer."""

    def __init__(self, name: str, folder: Path) -> None:
        if name == "serve":
            Store.open(f"sqlite:///{folder}/runs.db").close()
            self.words = ["serve", "--store", f"sqlite:///{folder}/runs.db"]
            self.large = b"/static/style.css"
        else:
            shutil.copy(RECORDED / "gpt-stacks.json.gz", folder / "a.json.gz")
            self.words = ["trace", "serve", "-q", str(folder / "a.json.gz")]
            self.large = b"/page?run=a.json.gz"
        self.folder = folder

    @contextlib.contextmanager
    def running(self, most: int, seconds: float) -> Iterator[tuple[str, int]]:
        command = [sys.executable, "-c", START, str(most), str(seconds), *self.words, "--no-token"]
        process = subprocess.Popen(
            [*command, "--listen", "127.0.0.1:0"], env=environment(self.folder), stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        try:
            found = re.search(r"127\.0\.0\.1:(\d+)", process.stdout.readline())
            assert found
            yield "127.0.0.1", int(found[1])
            process.send_signal(signal.SIGINT)
            assert process.wait(SECONDS) == 0
        finally:
            process.kill()
            process.wait()
            process.stdout.close()


@pytest.fixture(scope="module", params=["serve", "trace serve"])
def kind(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Kind:
    return Kind(request.param, tmp_path_factory.mktemp("served"))


@contextlib.contextmanager
def attackers(address: tuple[str, int], number: int, sent: Sequence[bytes]) -> Iterator[list[socket.socket]]:
    with contextlib.ExitStack() as open_ones:
        made = []
        for place in range(number):
            one = open_ones.enter_context(socket.socket())
            one.settimeout(SECONDS)
            one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            one.connect(address)
            one.sendall(sent[place % len(sent)])
            made.append(one)
        yield made


def status(address: tuple[str, int]) -> int:
    connection = http.client.HTTPConnection(*address, timeout=SECONDS)
    try:
        connection.request("GET", "/")
        return connection.getresponse().status
    finally:
        connection.close()


def is_closed(one: socket.socket) -> bool:
    """Whether the server ended it; waits until it does."""
    try:
        while one.recv(1 << 16):
            pass
    except OSError:  # reset
        return not isinstance(sys.exc_info()[1], TimeoutError)
    return True


def test_hundreds_of_open_connections_shut_out_nobody(kind: Kind) -> None:
    """No time ends them here: the one that is waited for longest makes room."""
    half = list(HALF.values())
    with kind.running(MOST, seconds=10_000) as address, attackers(address, 3 * MOST, half) as made:
        assert [status(address) for _ in range(3)] == [303] * 3
        assert all(is_closed(one) for one in made[: 2 * MOST])
        last = made[-len(half)]  # of those that sent nothing: there is room for it
        last.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        assert last.recv(12).startswith(b"HTTP/1.")


def test_answers_that_nobody_takes_shut_out_nobody(kind: Kind) -> None:
    asked = b"GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n" % kind.large
    with kind.running(MOST, seconds=10_000) as address, attackers(address, 3 * MOST, [asked]):
        assert [status(address) for _ in range(3)] == [303] * 3


def test_one_that_is_slow_is_ended_though_it_sends_on_and_on(kind: Kind) -> None:
    with kind.running(listening.MOST_CONNECTIONS, seconds=0.2) as address, attackers(
        address, 3, list(HALF.values())
    ) as made:  # fmt: skip
        for one in made:
            with contextlib.suppress(ConnectionError):
                while not select.select([one], [], [], 0.05)[0]:
                    one.sendall(b"a")
            assert is_closed(one)
        assert status(address) == 303


def test_who_waits_longest_goes_and_who_works_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    monkeypatch.setattr(listening, "MOST_CONNECTIONS", 3)
    closed: list[str] = []
    connections = listening.Connections(closed.append)
    for one in ("asks", "silent", "dribbles"):
        connections.waits(one)
    connections.works("asks")
    connections.waits("dribbles")  # as if it were new: its time goes on
    connections.waits("new")
    assert closed == ["silent"]
    now = listening.WAIT_SECONDS + 1
    connections.waits("late")
    assert closed == ["silent", "dribbles"]
    connections.end_slow()
    assert closed == ["silent", "dribbles", "new"], "neither the one that has asked nor the one that just came"
    connections.waits("asks")
    connections.gone("late")
    now *= 2
    connections.end_slow()
    assert closed[3:] == ["asks"]
