"""The live view of `gpuprep watch`, drawn by rich. All that is drawn is plain text: nothing of a host is markup.

The cursor stays shown and the screen is no second one, so that nothing has to be put back after kill -9.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import IO, TYPE_CHECKING

from rich.cells import cell_len
from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from gpuprep.cli import watchrows
from gpuprep.cli.drawing import _terminal
from gpuprep.cli.running import steady

if TYPE_CHECKING:
    from gpuprep.workflows.watch import Watched

DRAWN_SECONDS = 0.25  # at least, between two drawings
STILL_SECONDS = 1.0  # at most
LEAST_NOTES = 24  # columns for errors and processes, before columns of figures are left out
LEFT_OUT = ("MEMORY MiB", "MEM MHz", "DEC%", "ENC%", "°C", "SM%")  # in this order, on a narrow terminal
MARGIN = 1


def show(
    stream: IO[str],
    color: bool,
    hosts: Callable[[], Sequence[Watched]],
    wait: Callable[[float], None],
    interval: float,
) -> None:
    """Draw until the user interrupts: raises KeyboardInterrupt. The last drawing stays."""
    console = _terminal(stream, color)
    with Live(
        console=console, auto_refresh=False, transient=False, redirect_stdout=False, redirect_stderr=False
    ) as live:
        while True:
            size = console.size
            live.update(drawn(hosts(), interval, columns=size.width, rows=size.height - 1), refresh=True)
            began = time.monotonic()
            wait(STILL_SECONDS)
            time.sleep(max(0.0, DRAWN_SECONDS - (time.monotonic() - began)))


def drawn(hosts: Sequence[Watched], interval: float, *, columns: int, rows: int) -> RenderableType:
    """A heading, one row per GPU, and a key to the figures; if not all GPUs fit, only the worst."""
    table = watchrows.rows(hosts)
    room = max(1, rows - 4)
    rest = len(table) - room
    shown = table[: room - 1] if rest > 0 else table
    clock = time.strftime("%H:%M:%S")
    parts: list[RenderableType] = [
        _cut(f"{watchrows.counted(hosts)}   {clock}, every {interval:g} s, Ctrl-C ends", columns, "bold"),
        _table(shown, columns),
    ]
    if rest > 0:
        parts.append(_cut(f"and {len(table) - len(shown)} more; a taller terminal or --json shows them", columns))
    parts.append(_cut(watchrows.KEY, columns, "bright_black"))
    return Group(*parts)


def _table(rows: Sequence[Sequence[str]], columns: int) -> Table:
    every = [watchrows.HEAD, *([steady(cell) for cell in row] for row in rows)]
    kept = _kept(every, columns)
    grid = Table.grid(padding=(0, 1, 0, 0))
    for place in kept:
        figures = 3 <= place <= 10
        last = place == len(watchrows.HEAD) - 1
        grid.add_column(no_wrap=True, justify="right" if figures else "left", ratio=1 if last else None)
    for number, row in enumerate(every):
        style = "bright_black" if number == 0 else ""
        grid.add_row(*(Text(row[place], style=style or watchrows.COLORS.get(row[place], "")) for place in kept))
    grid.width = max(1, columns - MARGIN)
    return grid


def _kept(rows: Sequence[Sequence[str]], columns: int) -> list[int]:
    """The places of the columns that fit."""
    widths = [max(cell_len(row[place]) for row in rows) for place in range(len(watchrows.HEAD))]
    kept = list(range(len(watchrows.HEAD)))
    for name in LEFT_OUT:
        if sum(widths[place] + 1 for place in kept[:-1]) + min(widths[-1], LEAST_NOTES) <= columns - MARGIN:
            break
        kept.remove(watchrows.HEAD.index(name))
    return kept


def _cut(text: str, columns: int, style: str = "") -> Text:
    made = Text(text, style=style, no_wrap=True)
    made.truncate(max(1, columns - MARGIN), overflow="ellipsis")
    return made
