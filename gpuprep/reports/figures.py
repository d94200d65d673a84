"""Which figures do reports show of each row of measurements? Listed once, for text, Markdown, CSV, Prometheus and HTML.

PRODUCT, BANDWIDTH, … have an entry a figure, in the order of the columns. A new figure of a probe is a new entry: its
value is mostly an attribute of `row.measured`, the evidence. Each name decides whether a format has the figure.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from gpuprep.nightly.exposition import Metric, times
from gpuprep.records.evidence.decode import Figure
from gpuprep.reports.readings import figure, known
from gpuprep.reports.rows import Bandwidth, Collective, Convolution, Gemm, Series, Transcode

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
    under_load: bool = False  # whether it is in the column "under load" of the HTML page

    def cell(self, row: R) -> str:
        value = self.value(row)
        return percent(known(value)) if self.unit == PERCENT else figure(value, self.digits)


def heads(figures: Sequence[Shown[R]]) -> tuple[str, ...]:
    return tuple(shown.head for shown in figures if shown.head)


def cells(figures: Sequence[Shown[R]], row: R) -> tuple[str, ...]:
    """The texts below `heads`."""
    return tuple(shown.cell(row) for shown in figures if shown.head)


def metrics(figures: Sequence[Shown[R]], labels: tuple[str, ...]) -> dict[str, Metric]:
    return {shown.metric: Metric(labels, shown.help) for shown in figures if shown.metric}


def samples(figures: Sequence[Shown[R]], row: R) -> Iterator[tuple[str, float | None]]:
    """The name of each metric, and its value in base units; None where nothing can be true."""
    return ((shown.metric, times(shown.value(row), shown.factor)) for shown in figures if shown.metric)


def percent(value: float | None) -> str:
    """Rounded down: 39.96 never looks like the floor of 40 that it is below."""
    if value is None or not math.isfinite(value):
        return "–"
    return f"{math.floor(10 * value + 1e-6) / 10:.1f} %"


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
        lambda row: row.measured.graphics_clock_mhz, "MHz", "MHz", 0, csv="graphics clock", beside="", under_load=True,
        metric="gemm_graphics_clock_hertz", factor=1e6, help="Clock of the SMs, mean during the product.",
    ),
    Shown(
        lambda row: row.measured.power_watts, "W", "W", 0, csv="power", beside="", marked=False, under_load=True,
        metric="gemm_power_watts", help="Power drawn during the product.",
    ),
    Shown(
        lambda row: row.measured.temperature_c, "°C", "", 0, csv="temperature", under_load=True,
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
        lambda row: row.measured.algbw_gb_per_s, "GB/s", "algbw GB/s", csv="algorithm bandwidth",
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
)  # fmt: skip

TRANSCODE: tuple[Shown[Transcode], ...] = (
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
    Shown(
        lambda row: row.best.sessions if row.best else None, "sessions", "sessions", 0, csv="sessions",
        metric="throughput_sessions", help="The number of sessions with the most frames a second.",
    ),
    Shown(
        lambda row: row.best.fps if row.best else None, "fps", "fps", 0, csv="",
        metric="throughput_frames_per_second", help="Frames a second of all sessions, at the best number of sessions.",
    ),
    Shown(lambda row: row.engine_percent, PERCENT, "engine"),
    Shown(lambda row: row.best.measured.video_clock_mhz if row.best else None, "MHz", "MHz", 0),
)  # fmt: skip


def product_unit(unit: str, row: Gemm) -> str:
    """The unit of a figure of PRODUCT in this row: a speed of integers is in TOPS."""
    return row.unit if unit == SPEED else unit


def under_load(row: Gemm) -> list[str]:
    """What the GPU did during a product: "1590 MHz", "68 W", "61 °C"."""
    return [f"{shown.cell(row)} {shown.unit}" for shown in PRODUCT if shown.under_load]
