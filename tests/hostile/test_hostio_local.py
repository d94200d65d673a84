"""This machine as a host has the same limits: a command of it may be as wild as one of any other."""

from __future__ import annotations

from pathlib import Path

import pytest
import sshserver

from gpuprep import errors, remote

HERE = remote.Target("here", local=True)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    sshserver.impatient(monkeypatch)


@pytest.mark.parametrize(
    ("command", "words"),
    [
        # Finite, a little above what is allowed: what is let through is an answer, and this computer has room for it.
        pytest.param("yes | head -c 40000000", "printed more than 32 MiB", id="floods"),
        pytest.param("head -c 40000000 /dev/zero", "printed more than 32 MiB", id="floods-nuls"),
        pytest.param("exec yes >&2", "took longer than 1 s", id="errors-for-ever"),
        pytest.param("while :; do echo x; sleep 0.02; done", "took longer than 1 s", id="drips"),
        pytest.param("exec sleep infinity", "took longer than 1 s", id="says-nothing"),
        pytest.param("exec >&- 2>&-; exec sleep infinity", "took longer than 1 s", id="closes-its-outputs-and-stays"),
        pytest.param("sleep infinity & echo done", "took longer than 1 s", id="leaves-a-child-with-its-output"),
    ],
)
def test_a_command_that_does_not_end_well(command: str, words: str) -> None:
    with pytest.raises(errors.HostError, match=words):
        remote.Host(HERE).run(command, stdin=b"x" * 1_000_000, timeout=300 if "MiB" in words else 1)


@pytest.mark.parametrize(
    ("command", "words"),
    [
        pytest.param("head -c 1000000 /dev/zero", "a line of more than 64 KiB", id="endless-line"),
        pytest.param("while :; do printf x; sleep 0.02; done", "did not answer within", id="drips-a-line"),
        pytest.param("exec sleep infinity", "did not answer within", id="says-nothing"),
    ],
)
def test_a_line_that_does_not_end(command: str, words: str) -> None:
    process = remote.Host(HERE).start(command)
    with pytest.raises(errors.HostError, match=words):
        process.read_line(0.5 if "within" in words else 300)
    process.close()


def test_ctrl_c_ends_a_command(tmp_path: Path) -> None:
    with pytest.raises(errors.Interrupted), remote.Host(HERE, stopped=(tmp_path / "began").exists) as host:
        host.run(f"touch {tmp_path}/began; exec sleep infinity")


def test_a_short_command_still_ends_after_ctrl_c(monkeypatch: pytest.MonkeyPatch) -> None:
    sshserver.impatient(monkeypatch, stopping=300.0)
    with remote.Host(HERE, stopped=lambda: True) as host:
        assert host.run("echo done").stdout == "done\n"
