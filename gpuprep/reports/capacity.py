"""How many streams a host carries: rows for all formats, lines for a terminal, and a part of the JSON document."""

from __future__ import annotations

from dataclasses import dataclass

from gpuprep import catalogue
from gpuprep.checks.judges.throughput import capacity
from gpuprep.checks.judges.throughput.capacity import STREAM_FPS, Row
from gpuprep.records import Missing, RunRecord, Source
from gpuprep.records.evidence import throughput
from gpuprep.reports import measured
from gpuprep.reports.readings import answer, figure, known
from gpuprep.reports.terminal import Page, aligned

TITLES = {
    "decode": "decode",
    "encode": "encode (pictures are decoded on the GPU at a quarter of the rate)",
    "transcode": "transcode 1:1 (decode H.264, encode)",
    "ladder": "ladder: 1080p in, 1080p + 720p + 480p out",
    "download": "decode and copy to the host's memory",
    "software": "decode on the GPU, encode on the CPU",
}
HEADROOM = f"A stream is {STREAM_FPS} pictures a second: streams = floor(fps / {STREAM_FPS}), nothing kept in reserve."
CATALOGUE = "catalogue: NVIDIA's published rates times the engines, at the highest clock: an estimate."
HEADS = ("codec", "preset", "1080p30", "4K30", "catalogue", "PSNR", "XPSNR", "ms", "limit")  # the limit may be long


@dataclass(frozen=True)
class Line:
    """One codec and preset of one kind of work: 1080p and 4K side by side. None: not measured at that size."""

    gpu: int | None
    kind: str
    codec: str
    preset: str
    usual: Row | None
    large: Row | None

    @property
    def rows(self) -> list[Row]:
        return [row for row in (self.usual, self.large) if row is not None]


def rows(record: RunRecord) -> list[Row]:
    """Of the record's throughput; [] where it was not measured."""
    values = answer(record, throughput.Throughput, "throughput")
    if values.published:
        return []
    listed = [gpu for gpu in (*values.gpus, values.gpu) if isinstance(gpu, throughput.ThroughputGpu)]
    facts = record.after or record.before
    boards = {gpu.index: catalogue.board_in(facts, gpu) for gpu in listed} if facts else {}
    rows = capacity.rows(values, boards)
    # The table of series also shows rows without a speed: here only planning needs them.
    return rows if values.capacity else [row for row in rows if row.streams is not None]


def lines_of(record: RunRecord) -> list[Line]:
    """Rows of the same work in both sizes as one line."""
    by_work: dict[tuple[int | None, str, str, str], dict[str, Row]] = {}
    for row in rows(record):
        by_work.setdefault((row.gpu, row.kind, row.codec, row.preset), {}).setdefault(row.size, row)
    return [Line(*key, sizes.get("1080p"), sizes.get("4K")) for key, sizes in by_work.items()]


def cells(line: Line) -> tuple[str, ...]:
    """One line of the table, by HEADS. "–": not measured."""
    main = line.usual if line.usual and line.usual.streams is not None else line.large
    main = main or line.usual
    assert main is not None
    late, good = main.latency, main.quality
    return (
        line.codec,
        line.preset or "–",
        _streams(line.usual),
        _streams(line.large),
        _expected(line),
        figure(known(good.psnr_db) if good else None, 1),
        figure(known(good.xpsnr_db) if good else None, 1),
        figure(known(late.median_ms) if late else None, 1),
        main.limit_words if main.streams is not None else ("cannot" if not main.can else "UNKNOWN"),
    )


def tables(record: RunRecord) -> dict[str, list[tuple[str, ...]]]:
    """A table for each kind of work: its title, and its rows by HEADS."""
    every = lines_of(record)
    several = len({line.gpu for line in every}) > 1
    by_title: dict[str, list[tuple[str, ...]]] = {}
    for line in every:
        title = TITLES.get(line.kind, line.kind)
        by_title.setdefault(f"GPU {line.gpu}: {title}" if several else title, []).append(cells(line))
    return by_title


def _streams(row: Row | None) -> str:
    if row is None:
        return "–"
    if row.streams is None:
        return "cannot" if not row.can else "UNKNOWN"
    return f"{row.streams}{'!' if row.below else ''}"


def _expected(line: Line) -> str:
    shown = [str(row.expected) if row.expected is not None else "–" for row in line.rows]
    return " / ".join(shown) if any(cell != "–" for cell in shown) else "–"


def notes(record: RunRecord) -> list[str]:
    """Notes below the table: how streams are counted, what is below the catalogue, what is not known and why."""
    every = rows(record)
    if not every:
        return []
    lines = [HEADROOM]
    reasons: dict[str, list[str]] = {}
    for row in every:
        if row.streams is None:
            reasons.setdefault(row.why, []).append(f"{row.name} {row.size}")
    lines += [f"{', '.join(names)}: {why}" for why, names in reasons.items()]
    lines += [
        f"! {row.name} {row.size}: {row.streams} streams, and {row.expected} by the catalogue at the highest clock"
        for row in every
        if row.below
    ]
    if any(row.expected is not None for row in every):
        lines.append(CATALOGUE)
    values = answer(record, throughput.Throughput, "throughput")
    lines += _absent(values)
    if how := next((measured.how for measured in values.latency if measured.how), ""):
        lines.append(f"ms: the median time of one picture, {how}")
    if rate := next((known(measured.asked_kbps) for measured in values.quality if known(measured.asked_kbps)), None):
        lines.append(f"PSNR and XPSNR in dB: of a clip encoded at {rate:.0f} kbit/s, compared with that clip by FFmpeg")
    if not values.capacity:
        lines.append("4K, the other presets, ladder, quality and latency: gpuprep capacity measures them")
    return lines


def _absent(values: throughput.Throughput) -> list[str]:
    """Why a figure of quality or latency is missing, each reason once."""
    reasons: dict[str, None] = {}
    for coded in values.quality:
        for name, value in (("PSNR", coded.psnr_db), ("XPSNR", coded.xpsnr_db)):
            if isinstance(value, Missing):
                reasons[f"{name} is UNKNOWN: {value.detail or value.reason.replace('_', ' ')}"] = None
    for row in values.latency:
        if isinstance(row.median_ms, Missing):
            why = row.median_ms.detail or row.median_ms.reason.replace("_", " ")
            reasons[f"latency of {row.kind} is UNKNOWN: {why}"] = None
    return list(reasons)


@dataclass(frozen=True)
class StreamLine:
    """A row for programs. None: not measured, `why` says why."""

    host: str
    gpu: int | None
    kind: str
    codec: str
    preset: str | None
    size: str
    fps: float | None
    sessions: int | None
    streams: int | None
    limit: str | None
    evidence: dict[str, float | None]  # per cent of each part that was sampled
    catalogue_streams: float | None
    below_catalogue: bool
    latency_ms: float | None
    psnr_db: float | None
    xpsnr_db: float | None
    why: str | None
    source: Source


def lines(record: RunRecord) -> tuple[StreamLine, ...]:
    source = measured.source_of(record, "throughput")
    return tuple(
        StreamLine(
            host=record.host,
            gpu=row.gpu,
            kind=row.kind,
            codec=row.codec,
            preset=row.preset or None,
            size=row.size,
            fps=row.fps,
            sessions=row.sessions,
            streams=row.streams,
            limit=row.limit or None,
            evidence={load.part: None if load.percent is None else round(load.percent, 1) for load in row.evidence},
            catalogue_streams=row.expected,
            below_catalogue=row.below,
            latency_ms=known(row.latency.median_ms) if row.latency else None,
            psnr_db=known(row.quality.psnr_db) if row.quality else None,
            xpsnr_db=known(row.quality.xpsnr_db) if row.quality else None,
            why=row.why or None,
            source=Source.SIMULATED if source is Source.SIMULATED else Source.MEASURED,
        )
        for row in rows(record)
    )


def text(page: Page, record: RunRecord) -> None:
    """The tables on a terminal, without columns that say nothing."""
    every = tables(record)
    if every:
        simulated = measured.source_of(record, "throughput") is Source.SIMULATED
        page.heading("Streams (SIMULATED)" if simulated else "Streams")
    for title, rows in every.items():
        page.text(title, indent="  ")
        kept = [at for at in range(len(HEADS)) if at < 3 or any(row[at] not in ("–", "") for row in rows)]
        numbers = [place for place, at in enumerate(kept) if 2 <= at < len(HEADS) - 1]
        shown = aligned([[row[at] for at in kept] for row in (HEADS, *rows)], numbers)
        page.lines += [f"    {'  '.join(row)}".rstrip() for row in shown]
    for note in notes(record):
        page.text(note, indent="  ", later="      ")
