"""What rich draws on a terminal: the live display below the lines of progress, with one bar per host; tables of lists.

Only this module imports rich, and it is imported only for a terminal: without a terminal, cli/console.py and
cli/output.py print plain lines.

Everything drawn is a rich.text.Text, in which rich interprets no markup, no emoji names and no links.
"""

from __future__ import annotations

import io
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import IO

from rich.cells import cell_len
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from gpuprep.cli.running import Running, clock, counted, steady

HOST_COLUMNS = 24
STEP_COLUMNS = 10
BAR_COLUMNS = 20
# Free at the end of a row: the terminal shows a Ctrl-C there as ^C, which must not begin a new row.
MARGIN = 4
# Below this width a bar and its words do not fit.
NARROW = 60
LEAST_COLUMNS = 12  # for the widest cells of a list
COLORS = {"ok": "green", "failed": "red", "unknown": "magenta", "refused": "red", "stopped": "yellow"}


class _Terminal(Console):
    def show_cursor(self, show: bool = True) -> bool:  # noqa: ARG002
        """The cursor stays: nothing has to bring it back after kill -9 or Ctrl-Z."""
        return False


def _terminal(stream: IO[str], color: bool, columns: int | None = None) -> Console:
    return _Terminal(
        file=stream,
        width=columns,
        force_terminal=True,
        force_interactive=True,
        color_system="standard" if color else None,
        no_color=not color,
        markup=False,
        emoji=False,
        highlight=False,
        legacy_windows=False,
    )


class Display:
    """Lines that stay, and below them the current state of the hosts. `hosts` may be called in any thread."""

    def __init__(self, stream: IO[str], color: bool, hosts: Callable[[], Sequence[Running]]) -> None:
        self._console = _terminal(stream, color)
        self._hosts = hosts
        self._live = Live(
            console=self._console,
            auto_refresh=False,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._lines: list[Text] = []

    def start(self) -> None:
        self._live.start()

    def stop(self) -> None:
        self.refresh()
        self._live.stop()

    def refresh(self) -> None:
        lines, self._lines = self._lines, []
        with self._console:  # all in one write
            if lines:  # rich draws the display with each print: an empty one costs nothing
                self._live.update(Text(), refresh=True)
                self._console.print(Text("\n").join(lines), soft_wrap=True)
            self._live.update(self._draw(), refresh=True)

    def line(self, parts: Iterable[tuple[str, str]]) -> None:
        """Add a line of (text, style) that stays. It appears with the next refresh, so many lines cost one drawing."""
        self._lines.append(Text.assemble(*parts))

    def _draw(self) -> RenderableType:
        hosts, now, size = list(self._hosts()), time.monotonic(), self._console.size
        # While lines are printed, the cursor is in the row below the last one.
        return drawn(hosts, now, columns=size.width, rows=size.height - 1)


def drawn(hosts: Sequence[Running], now: float, *, columns: int, rows: int) -> RenderableType:
    """One row per host; if there are more hosts than `rows`, only the hosts at work, and how many have ended."""
    several = len(hosts) > 1
    shown = [host for host in hosts if several or host.at_work]
    if len(shown) <= rows:
        return _table(shown, now, columns, several)
    at_work = [host for host in hosts if host.at_work]
    room = rows - 1 if len(at_work) < rows else rows - 2
    rest = len(at_work) - max(room, 0)
    more = [_cut(f"and {rest} more at work", columns)] if rest > 0 and rows > 1 else []
    table = [_table(at_work[:room], now, columns, several)] if room > 0 and at_work else []
    return Group(*table, *more, _cut(counted(list(hosts)), columns))


def _table(hosts: Sequence[Running], now: float, columns: int, several: bool) -> RenderableType:
    table = Table.grid(padding=(0, 1, 0, 0))
    if several:
        table.add_column(no_wrap=True, max_width=HOST_COLUMNS if columns >= NARROW else HOST_COLUMNS // 2)
    table.add_column(no_wrap=True, max_width=STEP_COLUMNS)
    if columns >= NARROW:
        table.add_column(no_wrap=True, width=BAR_COLUMNS)
    table.add_column(no_wrap=True, justify="right")
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True, ratio=1)
    for host in hosts:
        table.add_row(*_cells(host, now, columns, several))
    table.width = max(1, columns - MARGIN)
    return table


def _cells(host: Running, now: float, columns: int, several: bool) -> Iterable[RenderableType]:
    if several:
        yield Text(steady(host.host))
    yield Text(host.outcome or (steady(host.step) if host.at_work else "waiting"), style=COLORS.get(host.outcome, ""))
    if columns >= NARROW:
        color = COLORS.get(host.outcome, "cyan")
        yield ProgressBar(
            total=1.0,
            completed=host.fraction(now),
            width=BAR_COLUMNS,
            style="bright_black",
            complete_style=color,
            finished_style=color,
        )
    yield Text("" if host.began is None else clock(host.elapsed(now)))
    yield Text(host.time_left(now), style="bold")
    yield Text(steady(host.what(now)), style="bright_black")


def _cut(text: str, columns: int) -> Text:
    made = Text(text, no_wrap=True)
    made.truncate(max(1, columns - MARGIN), overflow="ellipsis")
    return made


def table(rows: Sequence[Sequence[str]], *, columns: int, color: bool, colors: Mapping[str, str]) -> list[str]:
    """Lines of at most `columns` columns: the cells of the widest column are wrapped, so ids stay in one piece.

    If the other columns leave no room for the widest, the lines are longer than `columns`; nothing is cut.
    """
    if not rows:
        return []
    widths = [max(map(cell_len, column)) for column in zip(*rows, strict=True)]
    widest = widths.index(max(widths))
    whole = sum(widths) + 2 * len(widths)
    fits = columns - (whole - widths[widest]) >= LEAST_COLUMNS
    grid = Table.grid(padding=(0, 2, 0, 0))
    for place in range(len(widths)):
        grid.add_column(no_wrap=place != widest or not fits, overflow="fold")
    for row in rows:
        grid.add_row(*(Text(cell, style=colors.get(cell, "")) for cell in row))
    stream = io.StringIO()
    _terminal(stream, color, columns if fits else whole).print(grid)
    return [line.rstrip() for line in stream.getvalue().splitlines()]
