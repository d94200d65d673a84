"""The measurements of a run as tables that fit a terminal; of several GPUs side by side, as many columns as fit."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

from gpuprep.checks.common import FIRST_FAILURE, INTERRUPTED
from gpuprep.records import RunRecord, Source
from gpuprep.reports import capacity, figures, glance, measured
from gpuprep.reports.columns import LEGEND, LOWEST, MARKED, Columns, Row, columns
from gpuprep.reports.measured import Gemm
from gpuprep.reports.readings import IMPOSSIBLE, figure, known
from gpuprep.reports.terminal import Page, aligned, cut, plain

NOT_RUN = {INTERRUPTED: "the run was interrupted", FIRST_FAILURE: "the run ended at its first FAIL (--first-failure)"}
MOST_FIGURES = 10  # of the first screen of several GPUs
NAME = 28  # columns of the widest name of a row; a longer one is cut
CLAIM = "lowest"  # the last column
# Beside the speeds of several GPUs, which stand side by side already.
NO_SPEED = dataclasses.replace(figures.VIDEO, title="Video series without a speed", short=lambda row: row.best is None)


def first(page: Page, record: RunRecord) -> None:
    """The few figures that people look for."""
    if _first_beside(page, record):
        return
    pairs = glance.lines(record)
    if pairs:
        page.heading(_marked("At a glance", simulated=measured.simulated(record)))
    for name, words in pairs:
        page.field(cut(plain(name), 16), plain(words))


def short(page: Page, record: RunRecord) -> None:
    """The same in few lines: of several GPUs the lowest and the highest."""
    if record.command == "capacity":  # its tables are what was asked for
        capacity.text(page, record)
        return
    beside = columns(record)
    if not beside.labels:
        first(page, record)
        return
    title = f"At a glance: {len(beside.labels)} GPUs"
    page.heading(_marked(title, simulated=measured.simulated(record)))
    rows = [(f"{row.name} {row.unit}", _spread(row, beside.labels)) for row in beside.first]
    rows = [(cut(plain(name), NAME), spread) for name, spread in rows if spread]
    wide = max((len(name) for name, _ in rows), default=0)
    kept = rows if len(rows) <= MOST_FIGURES else rows[: MOST_FIGURES - 1]
    for name, spread in kept:
        page.text(f"{name:<{wide}}  {spread}", indent="  ", later=" " * (wide + 4))
    if len(kept) < len(rows):
        page.text(f"and {len(rows) - len(kept)} more", indent="  ")


def _spread(row: Row, labels: Sequence[str]) -> str:
    """ "265" of GPUs with equal figures; else "240 (GPU 1) to 265"; "impossible" if no figure can be true."""
    read = zip(map(known, row.values), labels, strict=True)
    pairs = [(value, label) for value, label in read if value is not None]
    if not pairs:
        return "" if row.is_empty else IMPOSSIBLE.reason
    low, high = min(pairs, key=lambda pair: pair[0]), max(pairs, key=lambda pair: pair[0])
    if not any(row.low):
        return figure(high[0]) + (f" ({high[1]})" if len(pairs) == 1 else "")
    return f"{figure(low[0])} ({low[1]}) to {figure(high[0])}"


def has_first(record: RunRecord) -> bool:
    return bool(glance.lines(record))


def lines(page: Page, record: RunRecord) -> None:
    beside = _beside(page, record)
    if not beside:
        _table(page, record, figures.PRODUCTS)
    _where_it_went(page, record)
    if not beside:
        _table(page, record, figures.TOGETHER)
        _table(page, record, figures.BANDWIDTHS)
    _table(page, record, figures.COLLECTIVES)
    _table(page, record, figures.CONVOLUTIONS)
    capacity.text(page, record)
    _table(page, record, figures.TRANSCODES)
    _table(page, record, NO_SPEED if beside else figures.VIDEO)
    silent = measured.unanswered(record)
    for reason, words in NOT_RUN.items():
        if rest := [probe for probe, missing in silent if missing.reason == reason]:
            page.heading(f"Not measured, because {words}")
            page.text(", ".join(rest), indent="  ")
    for probe, missing in silent:
        if missing.reason in NOT_RUN:
            continue
        page.heading(f"{probe}: no answer")
        page.text(f"{missing.reason.replace('_', ' ')}{': ' + missing.detail if missing.detail else ''}", indent="  ")


def _where_it_went(page: Page, record: RunRecord) -> None:
    """Of several GPUs all products of the first, and of each data type the slowest GPU's."""
    rows = measured.telling(measured.gemms(record))
    if rows:
        page.heading(_title("Where the speed went", record, "gemm"))
    slowest: dict[str, Gemm] = {}
    for row in rows:
        of = slowest.setdefault(f"{row.type} {row.shape}", row)
        if (known(row.tflops) or 0.0) < (known(of.tflops) or 0.0):
            slowest[f"{row.type} {row.shape}"] = row
    for row in rows:
        of, why = slowest[f"{row.type} {row.shape}"], row.attribution
        if why and (row.gpu.label == rows[0].gpu.label or of is row):
            head = f"  {row.gpu.label} {row.type} {row.shape}: "
            page.text(". ".join((why.words, *why.advice)), indent=head, later="      ")


def _table(page: Page, record: RunRecord, table: figures.Table[Any]) -> None:
    made = figures.filled(table, record, "text")
    if made.rows or made.left_out:
        page.heading(_title(made.title, record, table.probe))
    if made.rows:
        page.table(made.heads, made.rows, made.right, ["".join(notes) for notes in made.notes])
    for line in made.left_out:
        page.text(" ".join(plain(line).split()), indent="  ", later="      ")


def _title(name: str, record: RunRecord, probe: str) -> str:
    return _marked(name, simulated=measured.source_of(record, probe) is Source.SIMULATED)


def _marked(title: str, *, simulated: bool) -> str:
    return f"{title} (SIMULATED)" if simulated else title


# ---------------------------------------------------------------- several GPUs side by side


def _first_beside(page: Page, record: RunRecord) -> bool:
    """What people look for first; False where fewer than two GPUs were measured."""
    beside = columns(record)
    if not beside.labels:
        return False
    page.heading(_marked("At a glance", simulated=measured.simulated(record)))
    shared = _blocks(page, beside, beside.first, states=True)
    page.text(LEGEND if shared else MARKED, indent="  ")
    return True


def _beside(page: Page, record: RunRecord) -> bool:
    """All figures; False where fewer than two GPUs were measured."""
    beside = columns(record)
    for part in beside.parts:
        page.heading(_marked(part.title, simulated=measured.simulated(record)))
        _blocks(page, beside, part.rows)
    return bool(beside.labels)


def _blocks(page: Page, beside: Columns, rows: Sequence[Row], *, states: bool = False) -> bool:
    """`rows` for as many GPUs as fit into the width, then for the next ones. True if there was room for shares."""
    last = False
    names = [cut(plain(f"{row.name} {row.unit}"), NAME) for row in rows]
    cells = [[f"{cell}{LOWEST if low else ' '}" for cell, low in zip(row.cells, row.low, strict=True)] for row in rows]
    shares = ["" if row.share is None else figures.percent(row.share) for row in rows]
    worst = [[state.value if state else "–" for state in beside.states]] if states else []
    size = (
        max(
            len(cell)
            for line in (*cells, *([f"{word} " for word in line] for line in (beside.labels, *worst)))
            for cell in line
        )
        + 1
    )
    lines = [["", *(f"{label:>{size - 1}} " for label in beside.labels), f" {CLAIM}"]]
    lines += [["checks", *(f"{page.paint(word, word)} " for word in line), ""] for line in worst]
    lines += [[name, *line, share] for name, line, share in zip(names, cells, shares, strict=True)]
    room = page.width - 2 - max(map(len, names), default=0)
    for start, end in _fitting(len(beside.labels), room, size):
        last = end == len(beside.labels) and room - size * (end - start) > len(CLAIM) and any(shares)
        columns = [0, *range(1 + start, 1 + end), *([-1] if last else [])]
        block = aligned([[line[place] for place in columns] for line in lines], range(1, len(columns)))
        page.lines += [f"  {''.join(line)}".rstrip() for line in block]
    return last


def _fitting(count: int, room: int, size: int) -> Iterator[tuple[int, int]]:
    """(0, 8): where each block of columns begins and ends; blocks of nearly one size."""
    fit = max(1, room // size)
    blocks = -(-count // fit)
    fit = -(-count // blocks)
    yield from ((start, min(start + fit, count)) for start in range(0, count, fit))
