"""Which user and which key a real sshd lets in, and what is said where it lets nobody in."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sshserver import SSHD, Sshd

from gpuprep.remote import Host, Target, keysearch
from gpuprep.remote.hostkeys import ShownKey

pytestmark = pytest.mark.skipif(SSHD is None, reason="there is no sshd")
Serve = Callable[..., Sshd]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "home"
    (folder / ".ssh").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    return folder


@pytest.fixture
def serve(tmp_path: Path, home: Path) -> Iterator[Serve]:
    started: list[Sshd] = []

    def start(*options: str) -> Sshd:
        folder = tmp_path / f"sshd{len(started)}"
        folder.mkdir()
        started.append(Sshd(folder, home, *options))
        return started[-1]

    yield start
    for one in started:
        one.stop()


def never(_shown: ShownKey) -> bool:
    raise AssertionError("the host's key is known")


def quiet(_text: str) -> None:
    pass


def bare(server: Sshd, **changes: object) -> Target:
    return server.target(**{"user": None, "identity_file": None, **changes})


def test_the_likely_users_of_a_system_are_tried_and_one_is_let_in(serve: Serve, home: Path) -> None:
    server = serve()
    server.trust()
    (home / ".ssh/id_ed25519").write_bytes(server.key.read_bytes())
    (home / ".ssh/id_ed25519").chmod(0o600)
    said: list[str] = []
    found = keysearch.find(bare(server), never, said.append)
    assert (found.user, found.key) == (server.user, "~/.ssh/id_ed25519")
    assert found.tried == ("debian with ~/.ssh/id_ed25519", "admin with ~/.ssh/id_ed25519")
    assert said == [f"not let in: {one}" for one in found.tried]
    assert found.target.identity_file == str(home / ".ssh/id_ed25519")
    with Host(found.target) as host:
        assert host.run("echo in").stdout == "in\n"
