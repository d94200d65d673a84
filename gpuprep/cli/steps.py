"""Progress of a command that works on this computer: at least one line every 15 s."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from gpuprep.cli.console import Console


class Steps:
    """Call it at each step. `count` reports progress within a step: 412 of 980 "files compiled"."""

    def __init__(self, what: str, console: Console) -> None:
        self._what, self._console = what, console

    def __call__(self, step: str) -> None:
        self._tell("stage", step)

    def count(self, unit: str, done: int, of: int) -> None:
        self._tell("doing", "", unit, done, of)

    def _tell(self, kind: str, detail: str, unit: str = "", done: int = 0, of: int = 0) -> None:
        from gpuprep.provisioning.ansible_events import Progress

        self._console.progress(self._what, Progress(kind, "", kind, detail, 0.0, unit=unit, done=done, of=of))


@contextlib.contextmanager
def steps(what: str, *, quiet: bool) -> Iterator[Steps]:
    """`what` is the command: "sim up t4"."""
    with Console([what], verbose=0, quiet=quiet, no_color=False) as console:
        yield Steps(what, console)
