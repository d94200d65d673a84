"""bash, zsh and fish on a terminal of their own, with gpuprep's completion switched on as its help says."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import select
import shutil
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType

import click
import pytest
from pseudoterminal import Screen

from gpuprep.cli import candidates, cli
from gpuprep.cli.completion import completed

SHELLS = ("bash", "zsh", "fish")
SECONDS = 600.0
# gpuprep as a shell starts it. Its own limit of three seconds is for people: a busy machine may take longer.
PATIENT = "from gpuprep.cli import completion, main; completion.SECONDS = 300.0; main()"
PROMPT = "READY> "
# The start files of a user who did what `gpuprep completion --help` says.
START = {
    "bash": f'PS1="{PROMPT}"\nbind "set bell-style none"\neval "$(gpuprep completion bash)"\n',
    "zsh": f'PS1="{PROMPT}"\nunsetopt beep\nautoload -U compinit\ncompinit -u -d $ZDOTDIR/dump\n'
    'eval "$(gpuprep completion zsh)"\n',
    "fish": f"function fish_prompt; echo -n '{PROMPT}'; end\nfunction fish_greeting; end\n"
    "set -g fish_autosuggestion_enabled 0\ngpuprep completion fish | source\n",
}


def offered(line: str) -> list[str]:
    """What Tab offers behind `gpuprep` and this line."""
    return list(told(line))


def told(line: str) -> dict[str, str]:
    """The same, with what is said beside each."""
    *before, word = line.split(" ")
    return {one.value: one.help for one in completed(cli, before, word)}


def has_candidates(parameter: click.Parameter, path: str) -> bool:
    """Whether gpuprep itself knows values of this option or argument of a command."""
    return candidates.of(parameter, path) is not None


def needed(shell: str) -> str:
    """Where it is. CI must have it; elsewhere its tests are skipped."""
    found = shutil.which(shell)
    if found is None:
        if os.environ.get("GPUPREP_REQUIRE_E2E") == "1":
            raise AssertionError(f"{shell} is not installed: `make packages` installs it")
        pytest.skip(f"{shell} is not installed")
    return found


def program(folder: Path) -> Path:
    """A folder for PATH with `gpuprep`, run by the Python of the tests."""
    folder.mkdir(exist_ok=True)
    path = folder / "gpuprep"
    path.write_text(f'#!/bin/sh\nexec {sys.executable} -c "{PATIENT}" "$@"\n')
    path.chmod(0o755)
    return folder


def environment(folder: Path) -> dict[str, str]:
    """HOME and the XDG folders below `folder`, and `gpuprep` on the PATH."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("XDG_", "GPUPREP_", "_GPUPREP"))}
    home = folder / "home"
    home.mkdir(exist_ok=True)
    return {**kept, "HOME": str(home), "PATH": f"{program(folder / 'bin')}:{os.environ['PATH']}", "LC_ALL": "C.UTF-8"}


class Shell:
    """An interactive shell. `type` and `until` as a person would: letters go in, and the screen is looked at."""

    def __init__(self, name: str, folder: Path, env: Mapping[str, str], cwd: Path) -> None:
        place = folder / f"{name}-start"
        place.mkdir(exist_ok=True)
        start = place / (".zshrc" if name == "zsh" else "start")
        start.write_text(START[name])
        words = {
            "bash": ["bash", "--noprofile", "--rcfile", str(start), "-i"],
            "zsh": ["zsh", "-i"],
            "fish": ["fish", "--private", "--no-config", "--init-command", f"source {start}", "-i"],
        }[name]
        self.screen = Screen(columns=150, lines=50)
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 150, 0, 0))
        self._process = subprocess.Popen(
            ["setsid", "--ctty", *words],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            cwd=cwd,
            env={**env, "TERM": "xterm", "ZDOTDIR": str(place), "HISTFILE": ""},
        )
        os.close(theirs)
        self.until(lambda rows: rows[-1:] == [PROMPT.strip()])

    def __enter__(self) -> Shell:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(OSError):
            os.write(self._ours, b"\x15exit\r")
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(2)  # a shell that is busy is ended all the same
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait(SECONDS)
        os.close(self._ours)

    def tab(self, line: str, tabs: int = 1) -> None:
        """A new line with `line` on it, and so many presses of Tab."""
        self.screen = Screen(columns=150, lines=50)
        os.write(self._ours, b"\x15\x0c")  # the line and the screen are empty
        self.until(lambda rows: rows == [PROMPT.strip()])
        os.write(self._ours, line.encode())
        self.until(lambda rows: any(row.endswith(f"{PROMPT}{line}".rstrip()) for row in rows))
        for _ in range(tabs):
            os.write(self._ours, b"\t")

    def becomes(self, line: str, after: str) -> None:
        """`line` and one Tab stand as `after` on the command line."""
        self.tab(line)
        self.until(lambda rows: f"{PROMPT}{after}" in rows)

    def lists(self, line: str, *words: str) -> list[str]:
        """`line` and two Tabs show all of `words` below; returns the screen."""
        self.tab(line, 2)
        return self.until(lambda rows: all(any(word in row for row in rows) for word in words))

    def until(self, there: Callable[[list[str]], bool]) -> list[str]:
        deadline = time.monotonic() + SECONDS
        while not there(self.screen.shown):
            ready, _, _ = select.select([self._ours], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, "\n".join(["nothing more came, and this was the screen:", *self.screen.everything])
            try:
                data = os.read(self._ours, 1 << 16)
            except OSError:
                data = b""
            assert data, "\n".join(["the shell ended, and this was its screen:", *self.screen.everything])
            self.screen.feed(data)
        return self.screen.shown
