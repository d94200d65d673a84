"""A command line as a user types it, in this process."""

from __future__ import annotations

import dataclasses
import socket
from pathlib import Path
from typing import Any

import pseudoterminal
import pytest

from gpuprep.cli import cli, run_command, run_hosts


def own_folders(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """All that gpuprep keeps for a user is below `folder`, and nothing of who runs the tests counts."""
    for name in ("STATE", "CACHE", "CONFIG"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(folder / name.lower()))
    for name in ("GPUPREP_STORE", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)


def nothing_may_listen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that was to refuse its options and listens after all ends with exit code 3, and is not waited for."""

    def listen(listening: socket.socket, *_: object) -> None:
        raise AssertionError(f"it listens on {listening.getsockname()}")

    monkeypatch.setattr(socket.socket, "listen", listen)


def kept_options(**typed: Any) -> dict[str, Any]:
    """What a record keeps of the options of a command that were typed."""
    fields = {field.name: None for field in dataclasses.fields(run_hosts.Request)}
    request = run_hosts.Request(**{**fields, "hosts": (), **typed})
    return run_hosts._asked(request)


class Shell:
    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *words: str) -> tuple[int, str, str]:
        """Exit code, stdout and stderr of one command line."""
        code = run_command.run(cli, list(words))
        captured = self._capsys.readouterr()
        assert "Traceback" not in captured.out + captured.err
        return code, captured.out, captured.err

    def on_terminal(self, monkeypatch: pytest.MonkeyPatch, *words: str, columns: int = 80) -> tuple[int, str, str]:
        """The same where stdout is a terminal."""
        terminal = pseudoterminal.Terminal()
        with monkeypatch.context() as patch:
            patch.setenv("COLUMNS", str(columns))
            patch.setenv("TERM", "xterm")
            patch.setattr("sys.stdout", terminal)
            code, _, err = self(*words)
        return code, terminal.getvalue(), err
