"""Rows of text as aligned columns."""

from __future__ import annotations

from collections.abc import Sequence

from gpuprep.reports.terminal import COLORS, aligned, painted
from gpuprep.untrusted.plaintext import one_line

MOST_LETTERS = 255  # of a cell


def lines(
    rows: Sequence[Sequence[str]], *, color: bool = False, indent: str = "", columns: int | None = None
) -> list[str]:
    """One line per row, each column as wide as its widest cell; words of COLORS get their colour.

    `columns` of a terminal: cells are made to fit, a row may take several lines.
    """
    # Names of hosts, facts and ids of runs come from other machines: a cell is one line, whatever they hold.
    rows = [[one_line(cell, MOST_LETTERS) for cell in row] for row in rows]
    if columns is not None:
        from gpuprep.cli import drawing

        drawn = drawing.table(rows, columns=columns - len(indent), color=color, colors=COLORS)
        return [indent + line for line in drawn]
    painted_rows = [[painted(cell, COLORS.get(cell, "")) for cell in row] for row in rows] if color else rows
    return [(indent + "  ".join(cells)).rstrip() for cells in aligned(painted_rows)]


def fitting(
    rows: Sequence[tuple[str, ...]], columns: int | None, optional: Sequence[str], folded: str, least: int = 0
) -> list[tuple[str, ...]]:
    """`rows` without empty columns and without those `optional` columns that do not fit; the first are kept first.

    Cells of the column `folded` are wrapped (cli/drawing.py), so a long cell does not push other columns out. It gets
    `least` characters of width before optional columns are shown.
    """
    heads = rows[0]
    filled = [place for place, _ in enumerate(heads) if any(row[place] for row in rows[1:])]
    widths = [max(len(row[place]) for row in rows) + 2 for place, _ in enumerate(heads)]
    wide = heads.index(folded)
    widest = max(width for place, width in enumerate(widths) if place != wide)
    widths[wide] = min(widths[wide], max(widest + 1, least))
    keep = {place for place in filled if heads[place] not in optional}
    for place in sorted(set(filled) - keep, key=lambda place: optional.index(heads[place])):
        if columns is None or sum(widths[column] for column in (*keep, place)) <= columns:
            keep.add(place)
    return [tuple(row[place] for place in sorted(keep)) for row in rows]
