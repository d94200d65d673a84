"""RunRecord ─► rows of what the probes measured (docs/records.md), one small dataclass per table of all formats.

Rows do not judge a figure; the verdict does. Peaks come from the catalogue, for comparison. Absent values are left out.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from gpuprep import catalogue
from gpuprep.agent.compute import ncclplan
from gpuprep.checks.links import carries
from gpuprep.performance import roofline
from gpuprep.performance.attribution import Attribution, explain, sustained
from gpuprep.records import Missing, RunRecord, Source, Status, TaskResult
from gpuprep.records.evidence import Figure, bandwidth, cudnn, gemm, measured, nccl, throughput, transcode
from gpuprep.records.evidence.shared import AnyProbe, NamedGpu, Telemetry
from gpuprep.records.findings import PROBLEMS, findings_of
from gpuprep.reports.readings import answer, entries, known, probe

# docs/records.md
OUTCOMES = ("completed", "failed", "not_built", "not_run", "refused", "timed_out", "no_time", "interrupted", "unknown")
# "NxCxHxW * KxCxRxS" of a convolution.
SHAPE = re.compile(r"(\d{1,7})x(\d{1,7})x(\d{1,7})x(\d{1,7}) \* (\d{1,7})x(\d{1,7})x(\d{1,7})x(\d{1,7})")
# Which of several findings on one transcode counts. A transcode that ran does not become SKIP because one check was
# skipped.
GRAVEST = (*PROBLEMS, Status.WAIVED, Status.PASS, Status.SKIP)
_K = TypeVar("_K", bound=Hashable)
FAR_BEHIND = 0.8  # of the fastest product of its data type


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

    gpus: int
    operation: str
    bytes: int | None
    measured: nccl.Point = field(repr=False)
    wrong: int | None  # wrong results; None: not compared
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
    """One GPU while all GPUs of the host calculate."""

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
    decisive_line: str
    status: Status | None  # the worst of the checks' findings on it; None: not judged

    @property
    def result(self) -> str:
        return result(self.outcome, self.status)

    @property
    def subject(self) -> str:
        """What the checks call it."""
        return f"transcode {self.id}"


@dataclass(frozen=True)
class Step:
    sessions: int
    fps: float
    measured: throughput.Step = field(repr=False)


@dataclass(frozen=True)
class Series:
    gpu: Gpu
    kind: str
    codec: str
    preset: str
    size: str
    outcome: str
    decisive_line: str
    engines: int | None  # how many sessions keep all engines at work, by the catalogue
    steps: tuple[Step, ...]
    subject: str  # what the checks call it
    several: bool  # whether other series are of another GPU
    status: Status | None  # as of Transcode

    @property
    def result(self) -> str:
        return result(self.outcome, self.status)

    @property
    def name(self) -> str:
        return " ".join(part for part in (self.kind, self.codec, self.preset) if part)

    @property
    def engine_percent(self) -> float | None:
        """How busy the engine of this series was, at the best number of sessions."""
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

        The operations are the speed times the time; they also give the size of the output, so no padding is guessed.
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


@dataclass(frozen=True)
class Role:
    name: str
    seconds: float
    tasks: int
    changed: int
    percent: float | None  # of the longest


def result(outcome: str, status: Status | None) -> str:
    """The status of the verdict; without a verdict, what happened. An expected refusal is no failure.

    The host reports what happened, so its text must not look like a verdict.
    """
    return status.value if status else (outcome if outcome in OUTCOMES else "unknown").replace("_", " ")


def share(value: Figure, peak: float | None) -> float | None:
    read = known(value)
    return None if read is None or not peak else 100.0 * read / peak


def gpu_of(named: NamedGpu | None, record: RunRecord | None = None) -> Gpu:
    """With a record, also the catalogue's board."""
    if named is None:
        return Gpu(None, "", "", "")
    board = catalogue.board_in(record.after or record.before, named) if record else None
    return Gpu(named.index, named.uuid, named.name, named.pci_device_id, board)


def gemms(record: RunRecord) -> list[Gemm]:
    evidence, rows = answer(record, gemm.Gemm, "gemm"), []
    for measured_gpu in entries(evidence.gpus):
        gpu = gpu_of(measured_gpu, record)
        for product in entries(measured_gpu.gemms):
            long = sustained(product)
            short = explain(product, gpu.facts, measured_gpu) if gpu.facts else None
            lasting = explain(long, gpu.facts, measured_gpu) if gpu.facts and long else None
            row = Gemm(
                gpu=gpu,
                dtype=product.dtype,
                accumulate=product.accumulate,
                m=product.m,
                n=product.n,
                k=product.k,
                tflops=product.tflops,
                attribution=short if isinstance(short, Attribution) else None,
                lasting=lasting if isinstance(lasting, Attribution) else None,
                sustained_tflops=long.tflops if long else gemm.Sustained().tflops,
                exact=product.exact,
                error=product.error,
                telemetry=(long.telemetry if long else None) or product.telemetry or Telemetry(),
                measured=product,
            )
            rows.append(row)
    return rows


def fastest(rows: Iterable[Gemm], key: Callable[[Gemm], _K]) -> dict[_K, Gemm]:
    """The product of each key with the highest speed, in the order of the measurement."""
    best: dict[_K, Gemm] = {}
    for row in rows:
        of, speed = key(row), known(row.tflops)
        if speed is not None and (of not in best or speed > (known(best[of].tflops) or 0.0)):
            best[of] = row
    return best


def telling(rows: Sequence[Gemm]) -> list[Gemm]:
    """The products to explain first: for each GPU and data type the fastest, and those much slower."""
    best = fastest(rows, lambda row: (row.gpu.label, row.type))
    far_behind = {key: FAR_BEHIND * (known(row.tflops) or 0.0) for key, row in best.items()}
    return [
        row
        for row in rows
        if row.attribution
        and (speed := known(row.tflops)) is not None
        and (best[row.gpu.label, row.type] is row or speed < far_behind[row.gpu.label, row.type])
    ]


def together(record: RunRecord) -> list[Together]:
    listed = answer(record, gemm.Gemm, "gemm").together
    fastest = max((known(product.tflops) or 0.0 for product in listed), default=0.0)
    return [
        Together(
            label=gpu_of(NamedGpu(product.index)).label,
            dtype=product.dtype,
            tflops=product.tflops,
            graphics_clock_mhz=product.graphics_clock_mhz,
            percent=share(product.tflops, fastest),
        )
        for product in listed
    ]


def bandwidths(record: RunRecord) -> list[Bandwidth]:
    evidence, rows = answer(record, bandwidth.Bandwidth, "bandwidth"), []
    gpus = entries(evidence.gpus)
    for measured_gpu in gpus:
        gpu = gpu_of(measured_gpu, record)
        memory = gpu.facts.memory_gb_per_s if gpu.facts else None
        pcie = measured_gpu.pcie if isinstance(measured_gpu.pcie, bandwidth.Pcie) else bandwidth.Pcie()
        link = carries(pcie.max_generation, pcie.max_width)
        rows += [Bandwidth(gpu, what, speed, memory, "memory") for what, speed in measured_gpu.memory.items()]
        rows += [Bandwidth(gpu, what, speed, link, "link") for what, speed in measured_gpu.host.items()]
    indexed = {gpu.index: gpu_of(gpu) for gpu in gpus}
    for pair in evidence.peers:
        gpu = indexed.get(pair.start, gpu_of(NamedGpu(pair.start)))
        what = f"GPU {pair.start} to GPU {pair.end}"
        rows.append(Bandwidth(gpu, what, pair.gb_per_s, None, "peer"))
    return rows


def collectives(record: RunRecord) -> list[Collective]:
    evidence = answer(record, nccl.Nccl, "nccl")
    points = entries(evidence.points)
    largest = max((point.bytes or 0 for point in points), default=0)
    telling = {ncclplan.words(size) for size in (*ncclplan.QUICK_SIZES, largest)}
    return [
        Collective(
            gpus=len(evidence.gpus),
            operation=point.operation,
            bytes=point.bytes,
            measured=point,
            wrong=None if isinstance(point.wrong, Missing) else point.wrong,
            telling=point.bytes is not None and ncclplan.words(point.bytes) in telling,
        )
        for point in points
    ]


def transcodes(record: RunRecord) -> list[Transcode]:
    rows = []
    for case in answer(record, transcode.Transcode, "transcode").cases:
        frames = [known(output.frames) for output in case.outputs]
        lasted = known(case.seconds)
        read = [count for count in frames if count is not None]
        psnr = [value for output in case.outputs if (value := known(output.psnr_db)) is not None]
        row = Transcode(
            id=case.id,
            number=case.number,
            title=case.title,
            command=case.command,
            outcome=case.outcome or "unknown",
            measured=case,
            fps=sum(read) / lasted if read and len(read) == len(frames) and lasted else None,
            psnr_db=min(psnr, default=None),
            decisive_line=case.decisive_line,
            status=None,
        )
        rows.append(dataclasses.replace(row, status=_judged(record, row.subject)))
    return rows


def throughputs(record: RunRecord) -> list[Series]:
    evidence, rows = answer(record, throughput.Throughput, "throughput"), []
    for series in evidence.series:
        steps = []
        for step in series.steps:
            fps = known(step.fps)
            if step.sessions is not None and fps is not None and fps > 0:  # sessions that all died delivered nothing
                steps.append(Step(step.sessions, fps, step))
        named = evidence.gpu if isinstance(series.gpu, Missing) else series.gpu or evidence.gpu
        row = Series(
            gpu=gpu_of(named, record),
            kind=series.kind or "?",
            codec=series.codec,
            preset=series.preset,
            size="" if series.width is None or series.height is None else f"{series.width}×{series.height}",
            outcome=series.outcome or "unknown",
            decisive_line=series.decisive_line,
            engines=series.engines,
            steps=tuple(steps),
            subject="",
            several=False,
            status=None,
        )
        subject = f"throughput {row.name}" + (f" gpu {row.gpu.index}" if len(evidence.gpus) > 1 else "")
        rows.append(dataclasses.replace(row, subject=subject, status=_judged(record, subject)))
    several = len({row.gpu.index for row in rows}) > 1
    return [dataclasses.replace(row, several=several) for row in rows]


def _judged(record: RunRecord, subject: str) -> Status | None:
    """The most severe status of the findings on `subject`."""
    statuses = {finding.status for finding in findings_of(record) if finding.subject == subject}
    return next((status for status in GRAVEST if status in statuses), None)


def convolutions(record: RunRecord) -> list[Convolution]:
    evidence = answer(record, cudnn.Cudnn, "cudnn")
    gpu = gpu_of(evidence.gpu, record)
    return [Convolution(gpu, convolution) for convolution in evidence.convolutions]


def roles(record: RunRecord) -> list[Role]:
    """The roles that ran, in their order; tasks of a playbook itself are "playbook"."""
    by_name: dict[str, list[TaskResult]] = {}
    for task in record.playbook.tasks if record.playbook else ():
        by_name.setdefault(task.role.removeprefix("gpu_") or "playbook", []).append(task)
    took = {name: sum(task.seconds for task in tasks) for name, tasks in by_name.items()}
    longest = max(took.values(), default=0.0)
    return [
        Role(name, took[name], len(tasks), sum(task.outcome == "changed" for task in tasks), share(took[name], longest))
        for name, tasks in by_name.items()
    ]


def unanswered(record: RunRecord) -> list[tuple[str, Missing]]:
    """Probes that gave no answer at all, and why."""
    read = [(result.probe, measured(AnyProbe, result.values or None)) for result in record.measurements]
    return [(probe, values) for probe, values in read if isinstance(values, Missing)]


def source_of(record: RunRecord, name: str) -> Source:
    measurement = probe(record, name)
    return measurement.source if measurement else record.source


def simulated(record: RunRecord) -> bool:
    """Whether any part of the record is simulated."""
    return record.source is Source.SIMULATED or any(result.source is Source.SIMULATED for result in record.measurements)
