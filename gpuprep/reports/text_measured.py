"""The measurements of a run as tables that fit a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from gpuprep.records import RunRecord, Source
from gpuprep.reports import measured
from gpuprep.reports.readings import figure, known
from gpuprep.reports.rows import Step

Row = tuple[str, ...]


class Page(Protocol):
    """What these tables need of the page of reports/text.py."""

    width: int
    lines: list[str]

    def heading(self, text: str) -> None: ...
    def text(self, text: str, indent: str = "", later: str | None = None) -> None: ...


def lines(page: Page, record: RunRecord) -> None:
    _gemms(page, record)
    _bandwidths(page, record)
    _collectives(page, record)
    _convolutions(page, record)
    _transcodes(page, record)
    _throughputs(page, record)
    for probe, missing in measured.unanswered(record):
        page.heading(f"{probe}: no answer")
        page.text(f"{missing.reason.replace('_', ' ')}{': ' + missing.detail if missing.detail else ''}", indent="  ")


def _gemms(page: Page, record: RunRecord) -> None:
    rows, notes = [], []
    for row in measured.gemms(record):
        rows.append(
            (
                row.gpu.label, row.type, row.shape, figure(row.tflops), _percent(row.percent),
                figure(row.sustained_tflops), figure(row.graphics_clock_mhz, 0), figure(row.power_watts, 0),
            )
        )  # fmt: skip
        notes.append(row.error)
    heads = ("", "type", "shape", "TFLOPS", "of peak", "long run", "MHz", "W")
    _table(page, _title("Matrix products", record, "gemm"), heads, rows, notes, right_from=3)

    told = measured.telling(measured.gemms(record))
    if told:
        page.heading(_title("Where the speed went", record, "gemm"))
    for row in told:
        why = row.attribution
        if why:
            head = f"  {row.gpu.label} {row.type} {row.shape}: "
            page.text(". ".join((why.words, *why.advice)), indent=head, later="      ")
    every = [
        (row.label, row.dtype, figure(row.tflops), _percent(row.percent), figure(row.graphics_clock_mhz, 0))
        for row in measured.together(record)
    ]
    title = _title("All GPUs at once", record, "gemm")
    _table(page, title, ("", "type", "TFLOPS", "of fastest", "MHz"), every, right_from=2)


def _bandwidths(page: Page, record: RunRecord) -> None:
    rows = [
        (row.gpu.label, row.what, figure(row.gb_per_s), figure(row.peak_gb_per_s), _percent(row.percent))
        for row in measured.bandwidths(record)
    ]
    _table(page, _title("Bandwidth", record, "bandwidth"), ("", "path", "GB/s", "peak", "of peak"), rows, right_from=2)


def _collectives(page: Page, record: RunRecord) -> None:
    """The sizes that tell most; the other formats have all."""
    made = [row for row in measured.collectives(record) if row.telling or row.wrong]
    rows = [
        (row.name, row.size, figure(row.microseconds), figure(row.algbw_gb_per_s), figure(row.busbw_gb_per_s))
        for row in made
    ]
    title = f"Collectives over {made[0].gpus} GPUs (NCCL)" if made else ""
    heads = ("", "size", "µs", "algbw GB/s", "busbw GB/s")
    _table(page, _title(title, record, "nccl"), heads, rows, [row.error for row in made], right_from=1)


def _convolutions(page: Page, record: RunRecord) -> None:
    made = measured.convolutions(record)
    rows = [(row.dtype, row.layout, row.shape, figure(row.tflops), figure(row.microseconds)) for row in made]
    heads = ("type", "layout", "shape", "TFLOPS", "µs")
    _table(page, _title("Convolutions", record, "cudnn"), heads, rows, [row.error for row in made], right_from=3)


def _transcodes(page: Page, record: RunRecord) -> None:
    cases = measured.transcodes(record)
    rows = [(row.id, row.result, figure(row.seconds), figure(row.fps, 0), figure(row.psnr_db, 1)) for row in cases]
    heads = ("case", "result", "s", "fps", "PSNR dB")
    notes = [row.decisive_line for row in cases]
    _table(page, _title("Transcodes", record, "transcode"), heads, rows, notes, right_from=2)


def _throughputs(page: Page, record: RunRecord) -> None:
    rows, notes = [], []
    every = measured.throughputs(record)
    several = len({series.gpu.index for series in every}) > 1
    for series in every:
        best = series.best
        reading: Row = ("–",) * 4
        if best:
            busy, clock = _percent(_engine(series.kind, best)), figure(best.video_clock_mhz, 0)
            reading = (str(best.sessions), figure(best.fps, 0), busy, clock)
        name = f"{series.gpu.label} {series.name}" if several else series.name
        rows.append((name, series.size, series.result, *reading))
        notes.append(series.decisive_line)
    heads = ("series", "size", "result", "sessions", "fps", "engine", "MHz")
    _table(page, _title("Throughput", record, "throughput"), heads, rows, notes, right_from=3)


def _engine(kind: str, step: Step) -> float | None:
    return known(step.decoder_percent if kind == "decode" else step.encoder_percent)


def _title(name: str, record: RunRecord, probe: str) -> str:
    return f"{name} (SIMULATED)" if measured.source_of(record, probe) is Source.SIMULATED else name


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{value:.0f} %"


def _table(
    page: Page, title: str, heads: Row, rows: Sequence[Row], notes: Sequence[str] = (), *, right_from: int
) -> None:
    """Aligned columns; those from `right_from` on are numbers. A cell too long for the page is cut with an ellipsis."""
    if not rows:
        return
    page.heading(title)
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
