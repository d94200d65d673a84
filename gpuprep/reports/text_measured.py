"""The measurements of a run as tables that fit a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from gpuprep.checks.common import FIRST_FAILURE, INTERRUPTED
from gpuprep.records import RunRecord, Source
from gpuprep.reports import capacity, causes, columns, figures, glance, measured, text_columns
from gpuprep.reports.readings import IMPOSSIBLE, figure, known
from gpuprep.reports.rows import Gemm
from gpuprep.reports.text_columns import Page

Row = tuple[str, ...]
NOT_RUN = {INTERRUPTED: "the run was interrupted", FIRST_FAILURE: "the run ended at its first FAIL (--first-failure)"}
MOST_FIGURES = 10  # of the first screen of several GPUs


def first(page: Page, record: RunRecord) -> None:
    """The few figures that people look for."""
    if text_columns.first(page, record):
        return
    pairs = glance.lines(record)
    if pairs:
        page.heading("At a glance" + (" (SIMULATED)" if measured.simulated(record) else ""))
    for name, words in pairs:
        page.field(_cut(_plain(name), 16), _plain(words))


def short(page: Page, record: RunRecord) -> None:
    """The same in few lines: of several GPUs the lowest and the highest."""
    if record.command == "capacity":  # its tables are what was asked for
        capacity.text(page, record)
        return
    beside = columns.columns(record)
    if not beside.labels:
        first(page, record)
        return
    title = f"At a glance: {len(beside.labels)} GPUs" + (" (SIMULATED)" if measured.simulated(record) else "")
    page.heading(title)
    rows = [(f"{row.name} {row.unit}", _spread(row, beside.labels)) for row in beside.first]
    rows = [(_cut(_plain(name), text_columns.NAME), spread) for name, spread in rows if spread]
    wide = max((len(name) for name, _ in rows), default=0)
    kept = rows if len(rows) <= MOST_FIGURES else rows[: MOST_FIGURES - 1]
    for name, spread in kept:
        page.text(f"{name:<{wide}}  {spread}", indent="  ", later=" " * (wide + 4))
    if len(kept) < len(rows):
        page.text(f"and {len(rows) - len(kept)} more", indent="  ")


def _spread(row: columns.Row, labels: Sequence[str]) -> str:
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
    beside = text_columns.lines(page, record)
    if not beside:
        _gemms(page, record)
    _where_it_went(page, record)
    if not beside:
        _together(page, record)
        _bandwidths(page, record)
    _collectives(page, record)
    _convolutions(page, record)
    capacity.text(page, record)
    _transcodes(page, record)
    _throughputs(page, record, whole=not beside)
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


def _gemms(page: Page, record: RunRecord) -> None:
    rows, notes = [], []
    for row in measured.gemms(record):
        rows.append((row.gpu.label, row.type, row.shape, *figures.cells(figures.PRODUCT, row)))
        notes.append(row.error)
    heads = ("", "type", "shape", *figures.heads(figures.PRODUCT))
    _table(page, _title("Matrix products", record, "gemm"), heads, rows, notes, right_from=3)


def _where_it_went(page: Page, record: RunRecord) -> None:
    products = _explained_products(record)
    if products:
        page.heading(_title("Where the speed went", record, "gemm"))
    for row in products:
        why = row.attribution
        if why:
            head = f"  {row.gpu.label} {row.type} {row.shape}: "
            page.text(". ".join((why.words, *why.advice)), indent=head, later="      ")


def _explained_products(record: RunRecord) -> list[Gemm]:
    """Of several GPUs all products of the first, and of each data type the slowest GPU's."""
    rows = measured.telling(measured.gemms(record))
    labels = list(dict.fromkeys(row.gpu.label for row in rows))
    slowest: dict[str, Gemm] = {}
    for row in rows:
        of = slowest.setdefault(f"{row.type} {row.shape}", row)
        if (known(row.tflops) or 0.0) < (known(of.tflops) or 0.0):
            slowest[f"{row.type} {row.shape}"] = row
    return [row for row in rows if row.gpu.label == labels[0] or any(row is product for product in slowest.values())]


def _together(page: Page, record: RunRecord) -> None:
    every = [
        (row.label, row.dtype, figure(row.tflops), figures.percent(row.percent), figure(row.graphics_clock_mhz, 0))
        for row in measured.together(record)
    ]
    title = _title("All GPUs at once", record, "gemm")
    _table(page, title, ("", "type", "TFLOPS", "of fastest", "MHz"), every, right_from=2)


def _bandwidths(page: Page, record: RunRecord) -> None:
    rows = [(row.gpu.label, row.what, *figures.cells(figures.BANDWIDTH, row)) for row in measured.bandwidths(record)]
    heads = ("", "path", *figures.heads(figures.BANDWIDTH))
    _table(page, _title("Bandwidth", record, "bandwidth"), heads, rows, right_from=2)


def _collectives(page: Page, record: RunRecord) -> None:
    """The sizes that tell most; the other formats have all."""
    made = [row for row in measured.collectives(record) if row.telling or row.wrong]
    rows = [(row.name, row.size, *figures.cells(figures.COLLECTIVE, row)) for row in made]
    title = f"Collectives over {made[0].gpus} GPUs (NCCL)" if made else ""
    heads = ("", "size", *figures.heads(figures.COLLECTIVE))
    _table(page, _title(title, record, "nccl"), heads, rows, [row.error for row in made], right_from=1)


def _convolutions(page: Page, record: RunRecord) -> None:
    made = measured.convolutions(record)
    rows = [
        (row.measured.dtype, row.measured.layout, row.measured.shape, *figures.cells(figures.CONVOLUTION, row))
        for row in made
    ]
    heads = ("type", "layout", "shape", *figures.heads(figures.CONVOLUTION))
    notes = [row.measured.error for row in made]
    _table(page, _title("Convolutions", record, "cudnn"), heads, rows, notes, right_from=3)


def _transcodes(page: Page, record: RunRecord) -> None:
    cases, more = causes.folded(measured.transcodes(record), measured.transcode_subject, record)
    rows = [(row.id, row.result, *figures.cells(figures.TRANSCODE, row)) for row in cases]
    heads = ("case", "result", *figures.heads(figures.TRANSCODE))
    notes = [row.decisive_line for row in cases]
    title = _title("Transcodes", record, "transcode")
    _table(page, title, heads, rows, notes, right_from=2, more=_more(more))


def _throughputs(page: Page, record: RunRecord, *, whole: bool) -> None:
    """Without `whole` only those that gave no speed: the speeds stand side by side already."""
    rows, notes = [], []
    every = measured.throughputs(record)
    several = measured.several_gpus(every)
    shown, more = causes.folded(every, lambda series: measured.series_subject(series, several=several), record)
    for series in shown if whole else [row for row in shown if row.best is None]:
        name = f"{series.gpu.label} {series.name}" if several else series.name
        rows.append((name, series.size, series.result, *figures.cells(figures.SERIES, series)))
        notes.append(series.decisive_line)
    heads = ("series", "size", "result", *figures.heads(figures.SERIES))
    title = _title("Throughput" if whole else "Video series without a speed", record, "throughput")
    _table(page, title, heads, rows, notes, right_from=3, more=_more(more))


def _more(folded: Sequence[tuple[causes.Group, Sequence[object]]]) -> list[str]:
    return [f"{len(listed)} skipped: {group.cause}" for group, listed in folded]


def _title(name: str, record: RunRecord, probe: str) -> str:
    return f"{name} (SIMULATED)" if measured.source_of(record, probe) is Source.SIMULATED else name


def _table(
    page: Page,
    title: str,
    heads: Row,
    rows: Sequence[Row],
    notes: Sequence[str] = (),
    *,
    right_from: int,
    more: Sequence[str] = (),
) -> None:
    """Aligned columns; those from `right_from` on are numbers. A cell too long for the page is cut with an ellipsis.

    `more` are lines below the table.
    """
    if rows or more:
        page.heading(title)
    if rows:
        _aligned(page, heads, rows, notes, right_from)
    for line in more:
        page.text(" ".join(_plain(line).split()), indent="  ", later="      ")


def _aligned(page: Page, heads: Row, rows: Sequence[Row], notes: Sequence[str], right_from: int) -> None:
    widths = [max(len(_plain(row[column])) for row in (heads, *rows)) for column in range(len(heads))]
    over = 2 * len(widths) + sum(widths) - page.width
    if over > 0:  # the widest words give way, not the numbers
        widest = max(range(right_from), key=lambda column: widths[column])
        widths[widest] = max(4, widths[widest] - over)
    for number, row in enumerate((heads, *rows)):
        cells = [_cut(_plain(cell), widths[column]) for column, cell in enumerate(row)]
        line = "  ".join(
            f"{cell:>{width}}" if column >= right_from else f"{cell:<{width}}"
            for column, (cell, width) in enumerate(zip(cells, widths, strict=True))
        )
        page.lines.append(f"  {line}".rstrip())
        # A note that the next rows share stands once, beneath the last of them.
        if number and notes and notes[number - 1] and notes[number - 1 : number] != notes[number : number + 1]:
            page.text(" ".join(_plain(notes[number - 1]).split()), indent="      ")


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"


def _plain(text: str) -> str:
    """Without what would move the cursor or colour the terminal."""
    return "".join(letter if letter.isprintable() else " " for letter in text)
