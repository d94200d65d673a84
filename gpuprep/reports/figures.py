"""Which tables of measurements do reports have, and which figures do these show? Declared once, for all formats.

TABLES has an entry a probe. PRODUCT, BANDWIDTH, … have an entry a figure, in the order of the columns. A new figure of
a probe is a new entry: its value is mostly an attribute of `row.measured`, the evidence. Each name decides whether a
format has the figure.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, TypeVar

from gpuprep.records import RunRecord
from gpuprep.records.evidence import Figure
from gpuprep.reports import causes, glance, measured
from gpuprep.reports.measured import Bandwidth, Collective, Convolution, Gemm, Gpu, Series, Together, Transcode
from gpuprep.reports.readings import figure, known

R = TypeVar("R")
PERCENT = "%"
SPEED = "TFLOPS"  # of a product


@dataclass(frozen=True)
class Shown(Generic[R]):
    """One figure of a row, as each format shows it. A format leaves it out if its name is missing here."""

    value: Callable[[R], Figure | None]
    unit: str
    head: str = ""  # of its column in text and Markdown
    digits: int | None = None  # behind the point; None: three significant digits
    csv: str | None = None  # behind the name of the row; "": the row is named after this figure
    metric: str = ""  # of Prometheus, without prefix
    factor: float = 1.0  # from `unit` to the base unit of the metric
    help: str = ""  # of the metric
    beside: str | None = None  # behind the name of the row, in the table of several GPUs side by side
    marked: bool = True  # in that table: whether the lowest is the worst
    page: str | None = None  # head of its column on the HTML page, where that is not `head`
    narrow: bool = True  # whether a narrow page has room for it

    @property
    def page_head(self) -> str:
        return self.head if self.page is None else self.page

    def cell(self, row: R) -> str:
        value = self.value(row)
        return percent(known(value)) if self.unit == PERCENT else figure(value, self.digits)


def percent(value: float | None) -> str:
    """Rounded down: 39.96 never looks like the floor of 40 that it is below."""
    if value is None or not math.isfinite(value):
        return "–"
    return f"{math.floor(10 * value + 1e-6) / 10:.1f} %"


@dataclass(frozen=True)
class Words(Generic[R]):
    """A column of words beside the figures. A format leaves it out if its head is None here."""

    cell: Callable[[R], str]
    text: str | None
    markdown: str | None
    right: bool = False  # below each other's ends
    page: Literal["", "name", "beneath", "result"] = ""  # where the HTML page has it: "beneath" the name, smaller


@dataclass(frozen=True)
class Table(Generic[R]):
    """What a probe measured: the rows and their columns, in text, Markdown, HTML, CSV and Prometheus."""

    probe: str
    title: str  # {0} is the first row
    rows: Callable[[RunRecord], Sequence[R]]
    names: tuple[Words[R], ...]
    figures: tuple[Shown[R], ...]
    csv: Callable[[R], tuple[str, str]] = lambda _: ("", "")  # the subject, and how the names of its figures begin
    labels: Mapping[str, Callable[[R], str]] = field(default_factory=dict)  # of the metrics
    notes: tuple[Words[R], ...] = ()  # in text beneath a row, in Markdown the last columns
    # The rows to show, and those that were skipped for one cause, which are one line.
    fold: Callable[[Sequence[R], RunRecord], tuple[list[R], list[tuple[causes.Group, list[R]]]]] | None = None
    short: Callable[[R], bool] = lambda _: True  # whether a terminal has the row, too

    def few(self, rows: Sequence[R]) -> list[R]:
        return [row for row in rows if self.short(row)]

    def on_page(self, row: R, place: str) -> list[str]:
        """The words of a row at this place of the HTML page (Words.page)."""
        return [cell for each in (*self.names, *self.notes) if each.page == place and (cell := each.cell(row))]


@dataclass(frozen=True)
class Filled:
    """The texts of a table in one format."""

    title: str
    heads: tuple[str, ...]
    rows: list[tuple[str, ...]]
    right: set[int]  # the columns of numbers
    note_heads: tuple[str, ...]
    notes: list[tuple[str, ...]]  # of each row
    left_out: list[str]  # a line for each cause for which rows were skipped


def filled(table: Table[R], record: RunRecord, form: Literal["text", "markdown"]) -> Filled:
    rows, left_out = table.rows(record), []
    if table.fold:
        rows, more = table.fold(rows, record)
        left_out = [f"{len(listed)} skipped: {group.cause}" for group, listed in more]
    if form == "text":
        rows = table.few(rows)
    names = [column for column in table.names if getattr(column, form) is not None]
    notes = [column for column in table.notes if getattr(column, form) is not None]
    shown = [figure for figure in table.figures if figure.head]
    heads = (*(getattr(column, form) for column in names), *(figure.head for figure in shown))
    return Filled(
        table.title.format(*rows[:1]) if rows else table.title,
        heads,
        [(*(name.cell(row) for name in names), *(figure.cell(row) for figure in shown)) for row in rows],
        {place for place in range(len(heads)) if place >= len(names) or names[place].right},
        tuple(getattr(column, form) for column in notes),
        [tuple(note.cell(row) for note in notes) for row in rows],
        left_out,
    )


PRODUCT: tuple[Shown[Gemm], ...] = (
    Shown(lambda row: row.tflops, SPEED, "TFLOPS", csv=""),  # nightly/metrics.py has its metric
    Shown(
        lambda row: row.percent, PERCENT, "of peak", csv="of peak",
        metric="gemm_peak_ratio", factor=0.01, help="Matrix product: share of the peak at boost clock.",
    ),
    Shown(
        lambda row: row.sustained_tflops, SPEED, "long run", csv="sustained", beside="long run",
        metric="gemm_sustained_operations_per_second", factor=1e12, help="Matrix product: speed of a long run.",
    ),
    Shown(
        lambda row: row.measured.graphics_clock_mhz, "MHz", "MHz", 0, csv="graphics clock", beside="", narrow=False,
        metric="gemm_graphics_clock_hertz", factor=1e6, help="Clock of the SMs, mean during the product.",
    ),
    Shown(
        lambda row: row.measured.power_watts, "W", "W", 0, csv="power", beside="", marked=False, narrow=False,
        metric="gemm_power_watts", help="Power drawn during the product.",
    ),
    Shown(
        lambda row: row.measured.temperature_c, "°C", "", 0, csv="temperature", page="°C", narrow=False,
        metric="gemm_temperature_celsius", help="Temperature of the GPU during the product.",
    ),
)  # fmt: skip

BANDWIDTH: tuple[Shown[Bandwidth], ...] = (
    Shown(lambda row: row.gb_per_s, "GB/s", "GB/s", csv=""),  # nightly/metrics.py has its metric
    Shown(lambda row: row.peak_gb_per_s, "GB/s", "peak"),
    Shown(
        lambda row: row.percent, PERCENT, "of peak", csv="of peak",
        metric="bandwidth_peak_ratio", factor=0.01, help="Share of the peak of the memory or the link.",
    ),
)  # fmt: skip

COLLECTIVE: tuple[Shown[Collective], ...] = (
    Shown(
        lambda row: row.measured.microseconds, "µs", "µs", csv="duration",
        metric="nccl_duration_seconds", factor=1e-6, help="How long a collective takes; of small messages the latency.",
    ),
    Shown(
        lambda row: row.measured.algbw_gb_per_s, "GB/s", "algbw GB/s", csv="algorithm bandwidth", narrow=False,
        metric="nccl_algorithm_bytes_per_second", factor=1e9, help="Collective of NCCL: size divided by duration.",
    ),
    Shown(
        lambda row: row.measured.busbw_gb_per_s, "GB/s", "busbw GB/s", csv="bus bandwidth",
        metric="nccl_bus_bytes_per_second", factor=1e9, help="Collective of NCCL over all GPUs: bus bandwidth.",
    ),
)  # fmt: skip

CONVOLUTION: tuple[Shown[Convolution], ...] = (
    Shown(
        lambda row: row.measured.tflops, "TFLOPS", "TFLOPS", csv="",
        metric="convolution_operations_per_second", factor=1e12, help="Convolution through cuDNN.",
    ),
    Shown(
        lambda row: row.measured.microseconds, "µs", "µs", csv="duration",
        metric="convolution_duration_seconds", factor=1e-6, help="How long the convolution takes.",
    ),
    Shown(lambda row: row.measured.max_relative_error, "", digits=4, page="largest error", narrow=False),
)  # fmt: skip

TRANSCODE: tuple[Shown[Transcode], ...] = (
    Shown(
        lambda row: None if row.outcome in ("not_built", "not_run") else float(row.outcome == "completed"), "",
        metric="transcode_completed", help="1 where the transcode ran to its end, else 0.",
    ),
    Shown(
        lambda row: row.measured.seconds, "s", "s", csv="duration",
        metric="transcode_duration_seconds", help="How long the transcode took.",
    ),
    Shown(  # text and Markdown do not show it: the frames per second of such short clips are no speed
        lambda row: row.fps, "fps", csv="speed",
        metric="transcode_frames_per_second", help="Frames of all outputs, divided by the duration.",
    ),
    Shown(
        lambda row: row.psnr_db, "dB", "PSNR dB", 1, csv="PSNR",
        metric="transcode_psnr_decibels", help="PSNR against the source; of several outputs the lowest.",
    ),
)  # fmt: skip

SERIES: tuple[Shown[Series], ...] = (
    Shown(lambda row: glance.streams(row.best.fps) if row.best else None, "streams", digits=0, page="streams"),
    Shown(
        lambda row: row.best.sessions if row.best else None, "sessions", "sessions", 0, csv="sessions", narrow=False,
        metric="throughput_sessions", help="The number of sessions with the most frames a second.",
    ),
    Shown(
        lambda row: row.best.fps if row.best else None, "fps", "fps", 0, csv="",
        metric="throughput_frames_per_second", help="Frames a second of all sessions, at the best number of sessions.",
    ),
    Shown(lambda row: row.engine_percent, PERCENT, "engine", narrow=False),
    Shown(lambda row: row.best.measured.video_clock_mhz if row.best else None, "MHz", "MHz", 0, narrow=False),
)  # fmt: skip


def _subject(gpu: Gpu) -> str:
    return gpu.label.lower() if gpu.index is not None else gpu.label


def _shape(row: Gemm) -> str:
    return "x".join("?" if size is None else str(size) for size in (row.m, row.n, row.k))


def _filling(row: Series) -> str:
    """ "2 sessions fill the engines"."""
    if not (row.engines and row.best):
        return ""
    return "1 session fills the engines" if row.engines == 1 else f"{row.engines} sessions fill the engines"


def _by_sessions(row: Series) -> str:
    steps = ", ".join(f"{step.sessions} give {figure(step.fps, 0)}" for step in row.steps)
    return f"fps by sessions: {steps}" if len(row.steps) > 1 else ""


EXACT = {True: "exact", False: "NOT EXACT", None: ""}  # whether the sums of integers were
_GPU: Mapping[str, Callable[[Any], str]] = {
    "gpu": lambda row: "" if row.gpu.index is None else str(row.gpu.index),
    "uuid": lambda row: row.gpu.uuid,
}
PRODUCTS = Table[Gemm](
    "gemm",
    "Matrix products",
    measured.gemms,
    (
        Words(lambda row: row.gpu.label, "", "GPU", page="beneath"),
        Words(lambda row: row.type, "type", "Type", page="name"),
        Words(lambda row: row.shape, "shape", "Shape", page="name"),
    ),
    PRODUCT,
    lambda row: (_subject(row.gpu), f"{row.type} {_shape(row)}"),
    {**_GPU, "dtype": lambda row: row.dtype, "accumulate": lambda row: row.accumulate, "shape": _shape},
    notes=(
        Words(lambda row: EXACT[row.exact], None, None, page="beneath"),
        Words(lambda row: row.error, "", None, page="beneath"),
        Words(
            lambda row: row.error or (row.attribution.words if row.attribution else ""), None, "Where the speed went"
        ),
    ),
)
BANDWIDTHS = Table[Bandwidth](
    "bandwidth",
    "Bandwidth",
    measured.bandwidths,
    (
        Words(lambda row: row.gpu.label, "", "GPU", page="beneath"),
        Words(lambda row: row.what, "path", "Path", page="name"),
    ),
    BANDWIDTH,
    lambda row: (_subject(row.gpu), row.what),
    {**_GPU, "path": lambda row: row.what},
)
COLLECTIVES = Table[Collective](
    "nccl",
    "Collectives over {0.gpus} GPUs (NCCL)",
    measured.collectives,
    (
        Words(lambda row: row.name, "", "Collective", page="name"),
        Words(lambda row: row.size, "size", "Size", right=True, page="name"),
    ),
    COLLECTIVE,
    lambda row: (f"{row.gpus} GPUs", f"{row.operation} {row.bytes} bytes"),
    {
        "operation": lambda row: row.operation,
        "bytes": lambda row: str(row.bytes or ""),
        "gpus": lambda row: str(row.gpus),
    },
    notes=(Words(lambda row: row.error, "", "Error", page="beneath"),),
    short=lambda row: row.telling or bool(row.wrong),
)
CONVOLUTIONS = Table[Convolution](
    "cudnn",
    "Convolutions",
    measured.convolutions,
    (
        Words(lambda row: row.measured.dtype, "type", "Type", page="name"),
        Words(lambda row: row.measured.layout, "layout", "Layout", page="name"),
        Words(lambda row: row.measured.shape, "shape", "Shape", page="beneath"),
    ),
    CONVOLUTION,
    lambda row: (_subject(row.gpu), f"convolution {row.name}"),
    {
        "dtype": lambda row: row.measured.dtype,
        "layout": lambda row: row.measured.layout,
        "shape": lambda row: row.measured.shape,
    },
    notes=(Words(lambda row: row.measured.error, "", "Error", page="beneath"),),
)
TRANSCODES = Table[Transcode](
    "transcode",
    "Transcodes",
    measured.transcodes,
    (
        Words(lambda row: "" if row.number is None else str(row.number), None, "#", right=True),
        Words(lambda row: row.id, "case", None),
        Words(lambda row: row.title or row.id, None, "Transcode"),
        Words(lambda row: row.result, "result", "Result"),
    ),
    TRANSCODE,
    lambda row: (row.subject, ""),
    {"case": lambda row: row.id, "title": lambda row: row.title},
    notes=(Words(lambda row: row.decisive_line, "", "Decisive line"),),
    fold=causes.folded,
)
VIDEO = Table[Series](
    "throughput",
    "Throughput",
    measured.throughputs,
    (
        Words(lambda row: f"{row.gpu.label} {row.name}" if row.several else row.name, "series", None),
        Words(lambda row: row.gpu.label, None, "GPU", page="beneath"),
        Words(lambda row: row.name, None, "Series", page="name"),
        Words(lambda row: row.size, "size", "Size", page="name"),
        Words(lambda row: row.result, "result", "Result", page="result"),
    ),
    SERIES,
    lambda row: (_subject(row.gpu), f"{row.name} {row.size}".strip().replace("×", "x")),
    {
        **_GPU,
        "kind": lambda row: row.kind,
        "codec": lambda row: row.codec,
        "preset": lambda row: row.preset,
        "size": lambda row: row.size,
    },
    notes=(
        Words(_filling, None, None, page="beneath"),
        Words(lambda row: row.decisive_line, "", "Decisive line", page="beneath"),
        Words(_by_sessions, None, None, page="beneath"),
    ),
    fold=causes.folded,
)
TOGETHER = Table[Together](
    "gemm",
    "All GPUs at once",
    measured.together,
    (
        Words(lambda row: row.label, "", "GPU", page="name"),
        Words(lambda row: row.dtype, "type", "Type", page="name"),
    ),
    (
        Shown(lambda row: row.tflops, SPEED, "TFLOPS"),
        Shown(lambda row: row.percent, PERCENT, "of fastest"),
        Shown(lambda row: row.graphics_clock_mhz, "MHz", "MHz", 0),
    ),
)
# Those of Markdown, CSV and Prometheus; TOGETHER is in text and HTML alone.
TABLES: tuple[Table[Any], ...] = (PRODUCTS, BANDWIDTHS, COLLECTIVES, CONVOLUTIONS, TRANSCODES, VIDEO)


def product_unit(unit: str, row: Gemm) -> str:
    """The unit of a figure of PRODUCT in this row: a speed of integers is in TOPS."""
    return row.unit if unit == SPEED else unit
