"""gpuprep init: the login over a real sshd, the facts from a scripted Host, the files as later commands read them."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from builders import bare_snapshot
from click.testing import CliRunner, Result
from fakehost import Script
from sshserver import SSHD, Sshd

from gpuprep.cli import cli
from gpuprep.desired import loading
from gpuprep.errors import HostKeyRefused
from gpuprep.workflows import ownprofile, runs, targets

Serve = Callable[..., Sshd]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "home"
    (folder / ".ssh").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    for name in ("STATE", "CACHE", "CONFIG"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name.lower()))
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    return folder


@pytest.fixture
def server(tmp_path: Path, home: Path) -> Iterator[Sshd]:
    if SSHD is None:
        pytest.skip("there is no sshd")
    folder = tmp_path / "sshd"
    folder.mkdir()
    made = Sshd(folder, home)
    (home / ".ssh/id_ed25519").write_bytes(made.key.read_bytes())
    (home / ".ssh/id_ed25519").chmod(0o600)
    yield made
    made.stop()


@pytest.fixture(autouse=True)
def script(monkeypatch: pytest.MonkeyPatch) -> Script:
    made = Script(snapshots=[bare_snapshot()])
    monkeypatch.setattr(runs, "Host", made.host())
    return made


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, list(arguments), standalone_mode=False)


def fingerprint(server: Sshd) -> str:
    said = subprocess.run(["ssh-keygen", "-lf", str(server.host_key)], capture_output=True, text=True, check=True)
    return said.stdout.split()[1]


def test_from_an_ssh_key_to_the_next_command(server: Sshd, home: Path) -> None:
    host = f"127.0.0.1:{server.port}"
    made = run("init", host, "--yes")
    assert (made.exception, made.return_value) == (None, 0), made.output
    assert fingerprint(server) in made.stderr
    assert "not let in: debian with ~/.ssh/id_ed25519" in made.stderr
    assert f"logged in as {server.user} with ~/.ssh/id_ed25519" in made.stderr
    name = f"127.0.0.1-{server.port}"
    assert made.stdout.endswith(f"Next:\n  gpuprep provision {name} -i inventory --profile my-t4.yml\n")
    assert "Machine: 1 × T4\n" in made.stdout
    told = " ".join(made.stdout.split())
    assert "In all about 18 minutes, downloads about 2.8 GB, restarts the machine at most once" in told
    assert "an estimate from documented figures" in told
    (target,) = targets.parse([name], "inventory")
    assert (target.address, target.port, target.user) == ("127.0.0.1", server.port, server.user)
    assert target.identity_file == str(home / ".ssh/id_ed25519")
    assert ownprofile.problems("./my-t4.yml") == []
    assert loading.load("./my-t4.yml").gpus == ("t4",)
    again = run("init", host)  # the key is known now, and both files are there
    assert (again.exception, again.return_value) == (None, 0), again.output
    assert "there already" in again.stdout
    assert "host key" not in again.stderr


def test_without_a_terminal_a_host_key_is_not_accepted(server: Sshd) -> None:
    host = f"127.0.0.1:{server.port}"
    made = run("init", host)
    assert isinstance(made.exception, HostKeyRefused)
    assert f"gpuprep init {host} --accept-new-host-key" in made.exception.hint
    assert fingerprint(server) in made.stderr
    assert not server.known_hosts.exists()
    assert list(Path().iterdir()) == []
