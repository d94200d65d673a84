"""The command line with hosts that answer from a script."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders import finished_snapshot
from commandline import Shell, own_folders
from fakehost import Script
from finishedt4 import ANSWERS, WANTED

from gpuprep.remote import Target
from gpuprep.workflows import firstmachine, runs


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


def inventory_of(target: Target) -> tuple[str, str]:
    """The name of the machine and the text of the inventory that `init` writes after a login."""
    name = firstmachine.inventory_name(target)
    return name, firstmachine.inventory_text(name, target)
