"""Markdown with GitHub's tables: for a pull request, an issue or a wiki page."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence

from gpuprep.reports.markdown import paragraph, plain, table
from gpuprep.trace.advice import rules
from gpuprep.trace.document import Advice, TraceDocument
from gpuprep.trace.formats.numbers import cell
from gpuprep.trace.formats.sheets import Sheet, sheet

MOST_LETTERS = 240
LINK = re.compile(r"https?://[\w.-]+(?:/[\w./#%=&?+-]*)?", re.ASCII)
# Which tables, how many of their rows, and which of their columns; all columns where none are named.
TABLES: dict[str, tuple[int, tuple[str, ...]]] = {
    "summary": (100, ("Figure", "Value", "Unit")),
    "ops": (
        10,
        ("GPU time", "Op name", "Direction", "Op type", "Calls", "Could use Tensor Cores", "Uses Tensor Cores"),
    ),
    "kernels": (10, ("GPU time", "Kernel name", "Uses Tensor Cores", "Calls", "Average")),
    "roofs": (10, ("GPU time", "Op type", "Shape", "Data type", "Of the roof", "Why", "Better")),
    "gpus": (64, ("GPU", "Name", "Compute capability", "SMs", "Utilization", "Kernels", "Kernel time")),
    "machine": (50, ()),
    "notes": (50, ("Count", "What")),
}


def render(document: TraceDocument) -> str:
    parts = [f"# {plain(document.file.profile_name or document.file.name)}: where the time went"]
    parts += [paragraph(document.slowdown.words)] if document.slowdown.words else []
    if document.advice:
        parts.append("## What to change")
    for advice in document.advice:
        parts.append(_advice(advice))
    for name, (most, chosen) in TABLES.items():
        parts += section(sheet(document, name), most, chosen)
    return "\n\n".join(parts) + "\n"


def _advice(advice: Advice) -> str:
    """Each advice has a heading of its own, to link to; its link is written as one only if it is a plain URL."""
    saves = advice.gain.saves if advice.gain else ""
    end = f"saves about {saves}" if saves else advice.severity
    lines = [f"### {plain(rules()[advice.rule].title)} ({plain(advice.rule)}): {plain(end)}"]
    lines.append(f"{paragraph(advice.problem)} {plain(advice.recommendation)}")
    lines += [paragraph(f"Estimated: {advice.gain.how}.")] if advice.gain else []
    lines += [f"<{advice.link}>" if LINK.fullmatch(advice.link) else plain(advice.link)] if advice.link else []
    return "\n\n".join(lines)


def section(content: Sheet, most: int | None = None, chosen: Sequence[str] = ()) -> list[str]:
    """Heading and table of a sheet; [] without rows. `chosen`: titles of its columns, all where none are named."""
    titles = [column.title for column in content.columns]
    columns = [(place, content.columns[place]) for place in map(titles.index, chosen)] or list(
        enumerate(content.columns)
    )
    rows = list(itertools.islice(content.rows, most))
    if not rows:
        return []
    heads = [column.head(milliseconds=True) for _, column in columns]
    numbers = [head for head, (place, _) in zip(heads, columns, strict=True) if not isinstance(rows[0][place], str)]
    cells = [[plain(_short(cell(row[place], column.unit))) for place, column in columns] for row in rows]
    if content.name == "summary":  # its unit stands in a column
        cells = [_summary(row) for row in rows]
    return [f"## {content.title}\n\n{table(heads, cells, numbers)}"]


def _summary(row: tuple[str | int | float | None, ...]) -> list[str]:
    title, value, unit = row
    assert isinstance(title, str)
    assert isinstance(unit, str)
    return [plain(title), plain(_short(cell(value, unit))), {"us": "ms"}.get(unit, unit)]


def _short(text: str) -> str:
    return text if len(text) <= MOST_LETTERS else f"{text[: MOST_LETTERS - 1]}…"
