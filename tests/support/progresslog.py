"""What a command says of its progress, by a clock that the test drives."""

from __future__ import annotations

import io
import itertools
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TextIO

from gpuprep.cli import console
from gpuprep.cli.console import Steps, steps
from gpuprep.cli.running import Running
from gpuprep.codecbuild import build
from gpuprep.provisioning.ansible_events import Progress

TICK = 0.5


def folders(tmp_path: Path) -> dict[str, str]:
    """The environment of a program whose folders are the test's."""
    return {f"XDG_{name}_HOME": str(tmp_path / name.lower()) for name in ("STATE", "CACHE", "CONFIG")}


def event(kind: str, detail: str = "", **more: object) -> Progress:
    named = {"role": "", "task": "", "elapsed_seconds": 0.0, **more}
    return Progress(kind, detail=detail, **named)  # type: ignore[arg-type]


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Log:
    """Progress of these hosts. `lines` are (seconds, line), unless a `stream` takes them."""

    def __init__(self, *hosts: str, quiet: bool = False, no_color: bool = False, stream: TextIO | None = None) -> None:
        self.clock, self._kept = Clock(), io.StringIO()
        self.console = console.Console(
            hosts, verbose=0, quiet=quiet, no_color=no_color, stream=stream or self._kept, now=self.clock
        )
        self.lines: list[tuple[float, str]] = []

    def tell(self, kind: str, detail: str = "", host: str = "gpu-01", **more: object) -> None:
        self.console.progress(host, event(kind, detail, **more))
        self._read()

    def ended(self, host: str, exit_code: int, error: str | None = None, run_id: str = "") -> None:
        self.console.ended(host, exit_code, error, run_id)
        self._read()

    def wait(self, seconds: float) -> None:
        until = self.clock.now + seconds
        while self.clock.now < until:
            self.clock.now += TICK
            self.console.tick()
            self._read()

    def close(self) -> None:
        """The command ends."""
        with self.console:
            pass
        self._read()

    def _read(self) -> None:
        self.lines += [(self.clock.now - 1000.0, line) for line in self._kept.getvalue().splitlines()]
        self._kept.seek(0)
        self._kept.truncate()

    @property
    def said(self) -> list[str]:
        return [line for _, line in self.lines]

    @property
    def longest_silence(self) -> float:
        moments = [0.0, *(moment for moment, _ in self.lines), self.clock.now - 1000.0]
        return max(after - before for before, after in itertools.pairwise(moments))


def part_done(events: Iterable[Progress]) -> float:
    """How much of a run is done, from 0 to 1, a second after the last of its events."""
    running, now = Running("a"), 0.0
    for now, one in enumerate(events):
        running.take(one, float(now))
    return running.fraction(now + 1.0)


def on_this_computer(what: str, tell: Callable[[Steps], None], *, quiet: bool = False) -> str:
    """A command that works here; returns what it says 72 seconds after `tell`, if it goes on."""
    with steps(what, quiet=quiet) as say:
        tell(say)
        running = [*say._console._running.values()]
        return running[0].line(running[0].title_began + 72.0) if running else ""


def compiled(folder: Path) -> list[tuple[str, int, int]]:
    """What a build whose work is in this folder tells: a unit, how many are done, of how many."""
    counted: list[tuple[str, int, int]] = []
    build._count(folder, lambda *what: counted.append(what))
    return counted
