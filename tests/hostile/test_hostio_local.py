"""This machine as a host has the same limits: a command of it may be as wild as one of any other."""

from __future__ import annotations

import threading
import time

import pytest

from gpuprep import errors, remote
from gpuprep.remote import local


@pytest.mark.parametrize(
    ("command", "words"),
    [
        pytest.param("exec yes", "printed more than 1 MiB", id="floods"),
        pytest.param("exec cat /dev/zero", "printed more than 1 MiB", id="floods-nuls"),
        pytest.param("exec yes >&2", "took longer than 1 s", id="errors-for-ever"),
        pytest.param("while :; do echo x; sleep 0.02; done", "took longer than 1 s", id="drips"),
        pytest.param("exec sleep 60", "took longer than 1 s", id="says-nothing"),
        pytest.param("exec >&- 2>&-; exec sleep 60", "took longer than 1 s", id="closes-its-outputs-and-stays"),
        pytest.param("sleep 60 & echo done", "took longer than 1 s", id="leaves-a-child-with-its-output"),
    ],
)
def test_a_command_that_does_not_end_well(command: str, words: str) -> None:
    began = time.monotonic()
    with pytest.raises(errors.HostError, match=words):
        local.LocalConnection("here").execute(command, b"x" * 1_000_000, 10 if "MiB" in words else 1, most=1 << 20)
    assert time.monotonic() - began < 8


@pytest.mark.parametrize(
    ("command", "words"),
    [
        pytest.param("exec yes | tr -d '\\n'", "a line of more than 64 KiB", id="endless-line"),
        pytest.param("while :; do printf x; sleep 0.02; done", "did not answer within", id="drips-a-line"),
        pytest.param("exec sleep 60", "did not answer within", id="says-nothing"),
    ],
)
def test_a_line_that_does_not_end(command: str, words: str) -> None:
    process = local.LocalConnection("here").start(command)
    with pytest.raises(errors.HostError, match=words):
        process.read_line(0.5 if "within" in words else 10)
    local._give_up(process._process)  # type: ignore[attr-defined]
    process.close()


def test_ctrl_c_ends_a_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "STOP_SECONDS", 0.2)
    stop = threading.Event()
    threading.Timer(0.2, stop.set).start()
    began = time.monotonic()
    with pytest.raises(errors.Interrupted), remote.Host(remote.Target("here", local=True), stopped=stop.is_set) as host:
        host.run("exec sleep 60", timeout=60)
    assert time.monotonic() - began < 8


def test_a_short_command_still_ends_after_ctrl_c() -> None:
    with remote.Host(remote.Target("here", local=True), stopped=lambda: True) as host:
        assert host.run("echo done", timeout=60).stdout == "done\n"
