"""unprovision on the command line: what it refuses before any host is touched."""

from __future__ import annotations

from pathlib import Path

import pytest
from commandline import Shell, own_folders


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Shell:
    own_folders(monkeypatch, tmp_path)
    return Shell(capsys)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "`gpuprep unprovision` needs a HOST"),
        (["gpu-1"], "--yes is not given"),
        (["gpu-1", "--only", "kernel", "--yes"], "there is no step 'kernel'"),
        (["gpu-1", "--only", "", "--yes"], "--only is empty"),
        (["gpu-1", "--profile", "t4"], "No such option"),
    ],
)
def test_one_clear_line_and_exit_code_2(run: Shell, words: list[str], said: str) -> None:
    code, out, err = run("unprovision", *words)
    assert (code, out) == (2, "")
    assert said in err
