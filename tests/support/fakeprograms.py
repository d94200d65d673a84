"""Programs of a test in the place of the machine's own: for a login, and for the agent itself."""

from __future__ import annotations

import os
import pwd
import sys
from pathlib import Path

import pytest

from gpuprep.agent.programs import run as agent_run
from gpuprep.agent.video import clips


def program(path: Path, script: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def home(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """From now on the home of this process's user, whose profile scripts a login runs."""
    account = pwd.getpwuid(os.getuid())
    moved = pwd.struct_passwd((*account[:5], str(folder), account.pw_shell))
    monkeypatch.setattr("pwd.getpwuid", lambda _: moved)


def login(monkeypatch: pytest.MonkeyPatch, folder: Path, path: str) -> None:
    """A login has this PATH, by a profile script in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / ".bash_profile").write_text(f"PATH='{path}'\n")
    home(monkeypatch, folder)


def encoders(monkeypatch: pytest.MonkeyPatch, folder: Path, *ffmpegs: Path) -> None:
    """These programs, each called ffmpeg, are all of the machine's, in this order."""
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    monkeypatch.setattr(clips, "AGENT", folder / "no agent")
    login(monkeypatch, folder, ":".join(str(each.parent) for each in ffmpegs) or str(folder))


def ldconfig(monkeypatch: pytest.MonkeyPatch, folder: Path, *libraries: Path) -> None:
    """The loader knows these libraries and no others; they are of this machine."""
    kind = {"x86_64": "libc6,x86-64", "aarch64": "libc6,AArch64"}.get(os.uname().machine, "libc6")
    rows = "".join(f"\t{library.name} ({kind}) => {library}\n" for library in libraries)
    program(folder / "ldconfig", f"cat <<'END'\n{rows}END")
    monkeypatch.setattr(agent_run, "SEARCH_PATH", f"{folder}:{agent_run.SEARCH_PATH}")
