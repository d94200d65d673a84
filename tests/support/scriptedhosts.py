"""The command line with hosts that answer from a script."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders import finished_snapshot
from commandline import Shell, own_folders
from fakehost import Script
from scriptedanswers import ANSWERS, WANTED

from gpuprep.workflows import runs


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Script:
    own_folders(monkeypatch, tmp_path)
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    made = Script(snapshots=[finished_snapshot(WANTED)], probes=ANSWERS)
    monkeypatch.setattr(runs, "Host", made.host())
    return made


@pytest.fixture
def gpuprep(script: Script, capsys: pytest.CaptureFixture[str]) -> Shell:  # noqa: ARG001  its folders are needed
    return Shell(capsys)
