"""`gpuprep trace serve` and TensorBoard as processes of their own, for tests."""

from __future__ import annotations

import contextlib
import http.client
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from places import TESTS

RECORDED = TESTS / "traces" / "recorded"
# A shell that starts tests in the background has them ignore SIGINT.
START = (
    "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); "
    "from gpuprep.cli import main; sys.argv[0] = 'gpuprep'; sys.exit(main())"
)
GPUPREP = [sys.executable, "-c", START]


class Answer(NamedTuple):
    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass
class Server:
    url: str  # as it was printed, with its token
    process: subprocess.Popen[str]

    @property
    def place(self) -> str:
        return urlsplit(self.url).netloc

    def ask(self, path: str, *, method: str = "GET", host: str = "", cookie: str = "") -> Answer:
        connection = http.client.HTTPConnection(self.place, timeout=300)
        try:
            connection.putrequest(method, path, skip_host=True)
            connection.putheader("Host", host or self.place)
            if cookie:
                connection.putheader("Cookie", cookie)
            connection.endheaders()
            answer = connection.getresponse()
            return Answer(answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read())
        finally:
            connection.close()

    def end(self) -> int:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        return self.process.wait(timeout=300)


def environment(folder: Path) -> dict[str, str]:
    return {**os.environ, **{f"XDG_{name}_HOME": str(folder / name) for name in ("STATE", "CACHE", "CONFIG")}}


@contextlib.contextmanager
def serving(folder: Path, *words: str) -> Iterator[Server]:
    """On a free port. It is ended with Ctrl-C, and must end with 0."""
    process = subprocess.Popen(
        [*GPUPREP, "trace", "serve", "--listen", "127.0.0.1:0", *words],
        env=environment(folder), stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    server = Server(process.stdout.readline().strip(), process)
    assert server.url.startswith("http://"), server.url
    try:
        yield server
        assert server.end() == 0
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@contextlib.contextmanager
def tensorboard(logdir: Path, plugins: Path) -> Iterator[Server]:
    """A real TensorBoard. Where gpuprep is not installed, `plugins` gets the entry point that it would have."""
    if "gpuprep" not in {point.name for point in metadata.entry_points(group="tensorboard_plugins")}:
        info = plugins / "gpuprep_for_tests-1.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: gpuprep-for-tests\nVersion: 1\n")
        (info / "entry_points.txt").write_text(
            "[tensorboard_plugins]\ngpuprep = gpuprep.trace.tensorboard:GpuprepPlugin\n"
        )
    paths = [path for path in (os.environ.get("PYTHONPATH", ""), str(plugins)) if path]
    process = subprocess.Popen(
        [sys.executable, "-m", "tensorboard.main", "--logdir", str(logdir), "--port", "0", "--host", "127.0.0.1",
         "--load_fast=false"],
        env={**environment(plugins), "PYTHONPATH": os.pathsep.join(paths)},
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stderr is not None
    try:
        said = []
        for line in process.stderr:
            said.append(line)
            found = re.search(r"http://\S+", line)
            if found:
                yield Server(found[0], process)
                break
        else:
            raise AssertionError("".join(said))
    finally:
        process.terminate()
        process.wait(timeout=300)
        process.stderr.close()
