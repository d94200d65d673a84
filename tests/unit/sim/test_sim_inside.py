"""Commands inside a machine: what its shutdown stops and ends does not hang here, and with it the machine."""

from __future__ import annotations

import pytest

from gpuprep.errors import SimError
from gpuprep.sim import inside


@pytest.fixture
def stopping(monkeypatch: pytest.MonkeyPatch) -> None:
    """In place of nsenter: a program that stops itself, as nsenter does with its program."""
    line = ["sh", "-c", "kill -STOP $$; cat; exit 7"]
    monkeypatch.setattr(inside, "command", lambda *_, **__: line)


@pytest.mark.usefixtures("stopping")
def test_a_program_that_stopped_is_continued() -> None:
    assert inside.run("t4", ["true"]) == 7
    done = inside.output("t4", ["true"], stdin="words")
    assert (done.returncode, done.stdout) == (7, "words")


def test_a_program_that_does_not_end_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inside, "command", lambda *_, **__: ["sleep", "infinity"])
    monkeypatch.setattr(inside, "OUTPUT_SECONDS", 0.1)
    with pytest.raises(SimError, match="true in t4 did not end within"):
        inside.output("t4", ["true"])
