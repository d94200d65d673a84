"""This machine as a host, where a command cannot be ended: as sudo's cannot by the user who called it."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
import sshserver

from gpuprep import errors, remote

HERE = remote.Target("here", local=True)
LONG = "exec sleep infinity"


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Commands that nobody may kill, until the test is over."""
    made: list[subprocess.Popen[bytes]] = []

    class Kept(subprocess.Popen):  # type: ignore[type-arg]
        def __init__(self, *arguments: Any, **named: Any) -> None:
            super().__init__(*arguments, **named)
            made.append(self)

    def not_permitted(group: int, number: int) -> None:
        raise PermissionError(1, f"no signal {number} to {group}")

    with monkeypatch.context() as patched:
        patched.setattr(subprocess, "Popen", Kept)
        patched.setattr(os, "killpg", not_permitted)
        sshserver.impatient(patched)
        yield made
    for process in made:
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def closed(process: subprocess.Popen[bytes]) -> bool:
    return all(pipe is None or pipe.closed for pipe in (process.stdin, process.stdout, process.stderr))


def test_a_command_that_cannot_be_ended_ends_the_waiting(started: list[subprocess.Popen[bytes]]) -> None:
    with pytest.raises(errors.HostError, match=r"took longer than 0\.2 s: exec sleep infinity") as caught:
        remote.Host(HERE).run(LONG, timeout=0.2)
    (process,) = started
    assert process.poll() is None  # it still runs, and nobody waits for it
    assert closed(process)
    assert f"still runs (see `ps -s {process.pid}`)" in caught.value.hint


def test_input_that_such_a_command_never_read_is_no_matter(started: list[subprocess.Popen[bytes]]) -> None:
    with pytest.raises(errors.HostError, match="took longer"):
        remote.Host(HERE).run(LONG, stdin=b"x" * 5_000_000, timeout=0.2)
    assert started[0].poll() is None
    assert closed(started[0])


def test_one_that_talks_and_does_not_leave_is_left(started: list[subprocess.Popen[bytes]]) -> None:
    process = remote.Host(HERE).start(f"echo ready; {LONG}")
    assert process.read_line(300) == b"ready"
    process.close()
    assert started[0].poll() is None
    assert closed(started[0])


def test_a_command_that_can_be_ended_is_gone_and_nothing_else_is_said() -> None:
    with pytest.raises(errors.HostError, match="took longer") as caught:
        remote.Host(HERE).run(LONG, timeout=0.2)
    assert "still runs" not in caught.value.hint
