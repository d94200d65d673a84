"""Rows of what was measured, one small dataclass per table. All formats show these same figures.

These rows do not judge a figure; the verdict does. Peaks come from the catalogue, for comparison.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from gpuprep import catalogue
from gpuprep.agent.compute import ncclplan
from gpuprep.performance import roofline
from gpuprep.performance.attribution import Attribution
from gpuprep.records import Source, Status
from gpuprep.records.evidence import cudnn, gemm, nccl, throughput, transcode
from gpuprep.records.evidence.decode import Figure
from gpuprep.records.evidence.shared import Telemetry
from gpuprep.reports.readings import known

# docs/records.md
OUTCOMES = ("completed", "failed", "not_built", "not_run", "refused", "timed_out", "no_time", "interrupted", "unknown")
# "NxCxHxW * KxCxRxS" of a convolution.
SHAPE = re.compile(r"(\d{1,7})x(\d{1,7})x(\d{1,7})x(\d{1,7}) \* (\d{1,7})x(\d{1,7})x(\d{1,7})x(\d{1,7})")


@dataclass(frozen=True)
class Gpu:
    index: int | None
    uuid: str
    name: str
    pci_device_id: str
    facts: catalogue.Board | None = field(default=None, repr=False, compare=False)  # None: not in the catalogue

    @property
    def kind(self) -> str:
        """The same for GPUs that are one board."""
        return self.facts.key if self.facts else self.pci_device_id

    @property
    def label(self) -> str:
        return "GPU" if self.index is None else f"GPU {self.index}"


@dataclass(frozen=True)
class Gemm:
    gpu: Gpu
    source: Source
    dtype: str
    accumulate: str
    m: int | None
    n: int | None
    k: int | None
    tflops: Figure
    attribution: Attribution | None  # None: no speed, no shape, or no peak in the catalogue
    lasting: Attribution | None  # the same of the long run
    sustained_tflops: Figure
    exact: bool | None
    error: str
    telemetry: Telemetry = field(repr=False, compare=False)  # of the long run where there was one
    measured: gemm.Product = field(repr=False, compare=False)

    @property
    def shape(self) -> str:
        sizes = (self.m, self.n, self.k)
        if None in sizes:
            return "?"
        return f"{self.m}³" if len(set(sizes)) == 1 else "×".join(str(size) for size in sizes)

    @property
    def type(self) -> str:
        """The data type, and the type of the sums if it is not the usual type."""
        usual = {"fp64": "fp64", "int8": "int32"}.get(self.dtype, "fp32")
        return self.dtype if self.accumulate in ("", usual) else f"{self.dtype}+{self.accumulate}"

    @property
    def title(self) -> str:
        name, _, sums = self.type.upper().partition("+")
        return f"{name} ({sums} sums)" if sums else name

    @property
    def unit(self) -> str:
        """The unit of its speed."""
        return roofline.speed_unit(self.dtype)

    @property
    def percent(self) -> float | None:
        """Of the catalogue's peak at boost clock."""
        return self.attribution.percent_of_peak if self.attribution else None


@dataclass(frozen=True)
class Bandwidth:
    gpu: Gpu
    source: Source
    what: str
    gb_per_s: Figure
    peak_gb_per_s: float | None
    crosses: str  # "memory", "link" or "peer"

    @property
    def percent(self) -> float | None:
        return share(self.gb_per_s, self.peak_gb_per_s)


@dataclass(frozen=True)
class Collective:
    """One collective of NCCL over all GPUs, in one size."""

    source: Source
    gpus: int
    operation: str
    bytes: int | None
    measured: nccl.Point = field(repr=False)
    wrong: int | None  # results that were not right; None where they were not compared
    telling: bool  # whether a short table shows it, too

    @property
    def name(self) -> str:
        return self.operation.replace("_", "-")

    @property
    def size(self) -> str:
        return "?" if self.bytes is None else ncclplan.words(self.bytes)

    @property
    def error(self) -> str:
        return f"{self.wrong} results are wrong" if self.wrong else ""


@dataclass(frozen=True)
class Together:
    """One GPU while all of the host calculate."""

    label: str
    dtype: str
    tflops: Figure
    graphics_clock_mhz: Figure
    percent: float | None  # of the fastest


@dataclass(frozen=True)
class Transcode:
    id: str
    number: int | None
    title: str
    command: str
    outcome: str
    measured: transcode.Case = field(repr=False)
    fps: float | None  # frames of the outputs in all, divided by the seconds of the process
    psnr_db: float | None  # the lowest of the outputs
    ssim: float | None
    decisive_line: str
    source: Source
    status: Status | None  # the worst of the checks' findings on it; None: not judged

    @property
    def result(self) -> str:
        return result(self.outcome, self.status)


@dataclass(frozen=True)
class Step:
    sessions: int
    fps: float
    measured: throughput.Step = field(repr=False)


@dataclass(frozen=True)
class Series:
    gpu: Gpu
    source: Source
    kind: str
    codec: str
    preset: str
    size: str
    outcome: str
    decisive_line: str
    engines: int | None  # how many sessions keep all engines at work, by the catalogue
    steps: tuple[Step, ...]
    status: Status | None  # as of Transcode

    @property
    def result(self) -> str:
        return result(self.outcome, self.status)

    @property
    def name(self) -> str:
        return " ".join(part for part in (self.kind, self.codec, self.preset) if part)

    @property
    def engine_percent(self) -> float | None:
        """How busy the engine was that this series is about, at the best number of sessions."""
        if self.best is None:
            return None
        step = self.best.measured
        return known(step.decoder_utilization_percent if self.kind == "decode" else step.encoder_utilization_percent)

    @property
    def best(self) -> Step | None:
        return max(self.steps, key=lambda step: step.fps, default=None)


@dataclass(frozen=True)
class Convolution:
    gpu: Gpu
    measured: cudnn.Convolution

    @property
    def name(self) -> str:
        """ "fp16 NHWC 32x64x56x56 * 64x64x3x3"."""
        return f"{self.measured.dtype} {self.measured.layout} {self.measured.shape}"

    @property
    def intensity(self) -> float | None:
        """Operations per byte if input, filter and output cross the memory bus once.

        The operations are the speed times the time; they tell the size of the output too, so no padding is guessed.
        """
        sizes = SHAPE.fullmatch(self.measured.shape)
        tflops, microseconds = known(self.measured.tflops), known(self.measured.microseconds)
        item = roofline.INPUT_BYTES.get(self.measured.dtype)
        if not sizes or not tflops or not microseconds or item is None:
            return None
        n, c, h, w, k, _, r, s = map(int, sizes.groups())
        operations = tflops * microseconds * 1e6
        output = operations / max(1, 2 * c * r * s)
        moved = item * (n * c * h * w + k * c * r * s + output)
        return operations / moved if moved > 0 and operations > 0 else None


def result(outcome: str, status: Status | None) -> str:
    """The status of the verdict; without a verdict, what happened. An expected refusal is no failure.

    The host reports what happened, so none of its own words may look like a verdict.
    """
    return status.value if status else (outcome if outcome in OUTCOMES else "unknown").replace("_", " ")


def share(value: Figure, peak: float | None) -> float | None:
    read = known(value)
    return None if read is None or not peak else 100.0 * read / peak
