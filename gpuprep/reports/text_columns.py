"""Several GPUs side by side on a terminal: as many columns as fit, the others in a block below."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from gpuprep.records import RunRecord, Status
from gpuprep.reports import figures, measured
from gpuprep.reports.columns import LEGEND, LOWEST, MARKED, Columns, Row, columns

NAME = 28  # columns of the widest name; a longer one is cut
CLAIM = "lowest"  # the last column


class Page(Protocol):
    """What these tables need of the page of reports/text.py."""

    width: int
    lines: list[str]

    def paint(self, text: str, key: Status | str) -> str: ...
    def heading(self, text: str) -> None: ...
    def field(self, name: str, value: str) -> None: ...
    def text(self, text: str, indent: str = "", later: str | None = None) -> None: ...


def first(page: Page, record: RunRecord) -> bool:
    """What people look for first; False where fewer than two GPUs were measured."""
    beside = columns(record)
    if not beside.labels:
        return False
    page.heading(_title("At a glance", record))
    shared = _blocks(page, beside, beside.first, states=True)
    page.text(LEGEND if shared else MARKED, indent="  ")
    return True


def lines(page: Page, record: RunRecord) -> bool:
    """All figures; False where fewer than two GPUs were measured."""
    beside = columns(record)
    for part in beside.parts:
        page.heading(_title(part.title, record))
        _blocks(page, beside, part.rows)
    return bool(beside.labels)


def _title(words: str, record: RunRecord) -> str:
    return f"{words} (SIMULATED)" if measured.simulated(record) else words


def _blocks(page: Page, beside: Columns, rows: Sequence[Row], *, states: bool = False) -> bool:
    """`rows` for as many GPUs as fit into the width, then for the next ones. True if there was room for shares."""
    last = False
    names = [_cut(_plain(f"{row.name} {row.unit}")) for row in rows]
    wide = max(map(len, names), default=0)
    cells = [[f"{cell}{LOWEST if low else ' '}" for cell, low in zip(row.cells, row.low, strict=True)] for row in rows]
    shares = ["" if row.share is None else figures.percent(row.share) for row in rows]
    every = [*(cell for line in cells for cell in line), *(f"{label} " for label in beside.labels)]
    every += [f"{state.value} " for state in beside.states if state and states]
    size = max(map(len, every)) + 1
    for start, end in _fitting(len(beside.labels), page.width - 2 - wide, size):
        last = end == len(beside.labels) and page.width - 2 - wide - size * (end - start) > len(CLAIM) and any(shares)
        heads = [f"{label} " for label in beside.labels[start:end]]
        page.lines.append(_line("", wide, heads, size, CLAIM if last else ""))
        if states:
            page.lines.append(_states(page, beside.states[start:end], wide, size))
        for name, line, share in zip(names, cells, shares, strict=True):
            page.lines.append(_line(name, wide, line[start:end], size, share if last else ""))
    return last


def _fitting(count: int, room: int, size: int) -> Iterator[tuple[int, int]]:
    """(0, 8): where each block of columns begins and ends; blocks of nearly one size."""
    fit = max(1, room // size)
    blocks = -(-count // fit)
    fit = -(-count // blocks)
    yield from ((start, min(start + fit, count)) for start in range(0, count, fit))


def _line(name: str, wide: int, cells: Sequence[str], size: int, share: str) -> str:
    return f"  {name:<{wide}}{''.join(f'{cell:>{size}}' for cell in cells)}{share:>{len(CLAIM) + 1}}".rstrip()


def _states(page: Page, states: Sequence[Status | None], wide: int, size: int) -> str:
    """The worst status of each GPU."""
    shown = [state.value if state else "–" for state in states]
    painted = [
        " " * (size - 1 - len(word)) + (page.paint(word, status) if status else word) + " "
        for word, status in zip(shown, states, strict=True)
    ]
    return f"  {'checks':<{wide}}{''.join(painted)}".rstrip()


def _cut(text: str) -> str:
    return text if len(text) <= NAME else text[: NAME - 1] + "…"


def _plain(text: str) -> str:
    """Without what would move the cursor or colour the terminal."""
    return "".join(letter if letter.isprintable() else " " for letter in text)
