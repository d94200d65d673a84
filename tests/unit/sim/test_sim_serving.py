"""The stub archives by HTTP: the folders that NVIDIA has, and nothing else of this computer."""

from __future__ import annotations

import http.client
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuprep.sim import paths
from gpuprep.sim.archive import serving

LIST = "compute/cuda/repos/ubuntu2404/x86_64/InRelease"


@pytest.fixture
def archives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    folder = tmp_path / "archives"
    (folder / "nvidia/ubuntu2404/x86_64").mkdir(parents=True)
    (folder / "nvidia/ubuntu2404/x86_64/InRelease").write_text("signed\n")
    (tmp_path / "secret").write_text("another file\n")
    (folder / "link").symlink_to(tmp_path / "state")
    return folder


@pytest.fixture
def server(archives: Path) -> Iterator[serving.Server]:
    serving.offer("ubuntu2404", archives)
    found = serving.begin()
    assert found is not None
    yield found
    found.shutdown()
    found.server_close()


def ask(server: serving.Server, path: str, method: str = "GET") -> tuple[int, bytes]:
    connection = http.client.HTTPConnection(serving.HOST, server.server_port)
    connection.putrequest(method, path, skip_host=True)
    connection.endheaders()
    answer = connection.getresponse()
    found = answer.status, answer.read()
    connection.close()
    return found


def test_the_folders_of_nvidia(server: serving.Server) -> None:
    assert ask(server, f"/ubuntu2404/{LIST}") == (200, b"signed\n")
    assert ask(server, f"/ubuntu2404/{LIST}", "HEAD") == (200, b"")
    assert ask(server, "/ubuntu2404/nvidia/ubuntu2404/x86_64/InRelease") == (200, b"signed\n")


@pytest.mark.parametrize(
    "path",
    [
        "/", "/ubuntu2404", "/ubuntu2404/", "/rocky9/" + LIST, "/ubuntu2404/nvidia", "/ubuntu2404/../secret",
        "/ubuntu2404/%2e%2e/secret", "/ubuntu2404/nvidia/..%2f..%2f..%2fsecret", "//etc/passwd",
        "/ubuntu2404//etc/passwd", "/ubuntu2404/nvidia/%00", "/ubuntu2404/" + "a/" * 3000, "/ubuntu2404/" + "a" * 5000,
        "/ubuntu2404/link",
    ],
    ids=lambda path: path[:40],
)  # fmt: skip
def test_nothing_else(server: serving.Server, path: str) -> None:
    assert ask(server, path)[0] == 404


def test_nobody_writes(server: serving.Server) -> None:
    assert ask(server, f"/ubuntu2404/{LIST}", "PUT")[0] == 501


def test_several_machines_serve_one_address(archives: Path, server: serving.Server) -> None:
    """A clone has the address of its origin in its package sources, and its origin may be gone."""
    address = serving.address("ubuntu2404")
    assert address == f"http://127.0.0.1:{server.server_port}/ubuntu2404"
    serving.offer("rocky9", archives)
    second = serving.begin()
    assert second is not None
    assert serving.address("ubuntu2404") == address
    server.shutdown()
    server.server_close()
    assert ask(second, f"/rocky9/{LIST}") == (200, b"signed\n")
    second.shutdown()
    second.server_close()


def test_a_port_that_another_program_took_is_left_to_it(archives: Path) -> None:
    serving.offer("ubuntu2404", archives)
    before = serving.address("ubuntu2404")
    with socket.socket() as other:
        other.bind((serving.HOST, int(before.split(":")[2].split("/")[0])))
        other.listen()
        serving.offer("ubuntu2404", archives)
        assert serving.address("ubuntu2404") not in ("", before)


def test_without_archives_nothing_is_served(archives: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert serving.begin() is None
    assert serving.address("ubuntu2404") == ""
    serving.offer("ubuntu2404", archives)
    monkeypatch.setenv("http_proxy", "http://proxy.example:3128")  # a machine would ask that one
    assert serving.address("ubuntu2404") == ""
    assert (paths.state_dir() / "archives.json").exists()
