"""A command line as a user types it, in this process."""

from __future__ import annotations

import pytest

from gpuprep.cli import cli, edge


class Shell:
    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *words: str) -> tuple[int, str, str]:
        """Exit code, stdout and stderr of one command line."""
        code = edge.run(cli, list(words))
        captured = self._capsys.readouterr()
        assert "Traceback" not in captured.out + captured.err
        return code, captured.out, captured.err
