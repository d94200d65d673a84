"""Two things timed in one run, in turns, and their ratio."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

BIN = Path(sys.executable).parent
GPUPREP = str(BIN / "gpuprep")


@dataclass(frozen=True)
class Ratio:
    what: str
    ours: float  # in `unit`
    theirs: float
    limit: float
    unit: str = "s"

    @property
    def value(self) -> float:
        return self.ours / self.theirs

    def __str__(self) -> str:
        word = "ok" if self.value <= self.limit else "TOO MUCH"
        ratio = f"{self.value:5.2f}x (limit {self.limit:.2f}x)"
        return f"{self.what:<58} {ratio} {self.ours:7.2f} {self.unit} / {self.theirs:.2f} {self.unit} {word}"


def run(*command: str, environment: dict[str, str] | None = None) -> str:
    """Its stdout. Ends the program where the command fails."""
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        env={**os.environ, **(environment or {})},
        check=False,
    )
    if done.returncode:
        sys.exit(f"{' '.join(command)}: exit {done.returncode}\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
    return done.stdout


def timed(action: Callable[[], object]) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def in_turns(ours: Callable[[], object], theirs: Callable[[], object], rounds: int) -> tuple[float, float]:
    """Medians of `rounds` rounds, each of both, after one of both that does not count."""
    ours()
    theirs()
    pairs = [(timed(ours), timed(theirs)) for _ in range(rounds)]
    return statistics.median(a for a, _ in pairs), statistics.median(b for _, b in pairs)
