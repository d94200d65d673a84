"""RunRecord ─► rows of what the probes measured (docs/records.md). Absent values are left out."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from gpuprep import catalogue
from gpuprep.agent.compute import ncclplan
from gpuprep.checks.links import carries
from gpuprep.performance.attribution import Attribution, explain, sustained
from gpuprep.records import Missing, RunRecord, Source, Status
from gpuprep.records.evidence import bandwidth, cudnn, gemm, measured, nccl, throughput, transcode
from gpuprep.records.evidence.shared import AnyProbe, NamedGpu, Telemetry
from gpuprep.records.findings import PROBLEMS, findings_of
from gpuprep.reports.readings import answer, entries, known, probe
from gpuprep.reports.rows import Bandwidth, Collective, Convolution, Gemm, Gpu, Series, Step, Together, Transcode, share

# What counts of several findings on one transcode. One that ran is not skipped because one check of it was.
GRAVEST = (*PROBLEMS, Status.WAIVED, Status.PASS, Status.SKIP)
FAR_BEHIND = 0.8  # of the fastest product of its data type


def gpu_of(named: NamedGpu | None, record: RunRecord | None = None) -> Gpu:
    """With a record, also the catalogue's board."""
    if named is None:
        return Gpu(None, "", "", "")
    board = catalogue.board_in(record.after or record.before, named) if record else None
    return Gpu(named.index, named.uuid, named.name, named.pci_device_id, board)


def gemms(record: RunRecord) -> list[Gemm]:
    evidence, source = answer(record, gemm.Gemm, "gemm"), source_of(record, "gemm")
    return [
        _gemm(gpu_of(gpu, record), gpu, product, source)
        for gpu in entries(evidence.gpus)
        for product in entries(gpu.gemms)
    ]


def telling(rows: Sequence[Gemm]) -> list[Gemm]:
    """The products to explain first: for each GPU and data type the fastest, and those much slower."""
    best: dict[tuple[str, str], float] = {}
    for row in rows:
        key = (row.gpu.label, row.type)
        best[key] = max(best.get(key, 0.0), known(row.tflops) or 0.0)
    fastest = set()
    gemms = []
    for row in rows:
        key, speed = (row.gpu.label, row.type), known(row.tflops)
        if speed is None or not row.attribution:
            continue
        first = speed == best[key] and key not in fastest
        if first or speed < FAR_BEHIND * best[key]:
            gemms.append(row)
        if first:
            fastest.add(key)
    return gemms


def _gemm(gpu: Gpu, of: gemm.GemmGpu, product: gemm.Product, source: Source) -> Gemm:
    long = sustained(product)
    short = explain(product, gpu.facts, of) if gpu.facts else None
    lasting = explain(long, gpu.facts, of) if gpu.facts and long else None
    return Gemm(
        gpu=gpu,
        source=source,
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
    evidence, source, rows = answer(record, bandwidth.Bandwidth, "bandwidth"), source_of(record, "bandwidth"), []
    gpus = entries(evidence.gpus)
    for measured_gpu in gpus:
        gpu = gpu_of(measured_gpu, record)
        memory = gpu.facts.memory_gb_per_s if gpu.facts else None
        pcie = measured_gpu.pcie if isinstance(measured_gpu.pcie, bandwidth.Pcie) else bandwidth.Pcie()
        link = carries(pcie.max_generation, pcie.max_width)
        rows += [Bandwidth(gpu, source, what, speed, memory, "memory") for what, speed in measured_gpu.memory.items()]
        rows += [Bandwidth(gpu, source, what, speed, link, "link") for what, speed in measured_gpu.host.items()]
    indexed = {gpu.index: gpu_of(gpu) for gpu in gpus}
    for pair in evidence.peers:
        gpu = indexed.get(pair.start, gpu_of(NamedGpu(pair.start)))
        what = f"GPU {pair.start} to GPU {pair.end}"
        rows.append(Bandwidth(gpu, source, what, pair.gb_per_s, None, "peer"))
    return rows


def collectives(record: RunRecord) -> list[Collective]:
    evidence, source = answer(record, nccl.Nccl, "nccl"), source_of(record, "nccl")
    points = entries(evidence.points)
    largest = max((point.bytes or 0 for point in points), default=0)
    telling = {ncclplan.words(size) for size in (*ncclplan.QUICK_SIZES, largest)}
    return [
        Collective(
            source=source,
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
    source, cases = source_of(record, "transcode"), answer(record, transcode.Transcode, "transcode").cases
    return [_transcode(case, source, _judged(record, f"transcode {case.id}")) for case in cases]


def transcode_subject(case: Transcode) -> str:
    """What the checks call it."""
    return f"transcode {case.id}"


def series_subject(series: Series, *, several: bool) -> str:
    """What the checks call it; with `several` GPUs it names its GPU."""
    return f"throughput {series.name}" + (f" gpu {series.gpu.index}" if several else "")


def several_gpus(series: Sequence[Series]) -> bool:
    return len({row.gpu.index for row in series}) > 1


def _judged(record: RunRecord, subject: str) -> Status | None:
    """The most severe status of the findings on `subject`."""
    statuses = {finding.status for finding in findings_of(record) if finding.subject == subject}
    return next((status for status in GRAVEST if status in statuses), None)


def _transcode(case: transcode.Case, source: Source, status: Status | None) -> Transcode:
    frames = [known(output.frames) for output in case.outputs]
    lasted = known(case.seconds)
    read = [count for count in frames if count is not None]
    psnr = [value for output in case.outputs if (value := known(output.psnr_db)) is not None]
    ssim = [value for output in case.outputs if (value := known(output.ssim)) is not None]
    return Transcode(
        id=case.id,
        number=case.number,
        title=case.title,
        command=case.command,
        outcome=case.outcome or "unknown",
        measured=case,
        fps=sum(read) / lasted if read and len(read) == len(frames) and lasted else None,
        psnr_db=min(psnr, default=None),
        ssim=min(ssim, default=None),
        decisive_line=case.decisive_line,
        source=source,
        status=status,
    )


def throughputs(record: RunRecord) -> list[Series]:
    evidence, source = answer(record, throughput.Throughput, "throughput"), source_of(record, "throughput")
    several = len(evidence.gpus) > 1
    made = []
    for series in evidence.series:
        named = evidence.gpu if isinstance(series.gpu, Missing) else series.gpu or evidence.gpu
        row = _series(gpu_of(named, record), series, source)
        made.append(dataclasses.replace(row, status=_judged(record, series_subject(row, several=several))))
    return made


def _series(gpu: Gpu, series: throughput.Series, source: Source) -> Series:
    steps = []
    for step in series.steps:
        fps = known(step.fps)
        if step.sessions is not None and fps is not None and fps > 0:  # sessions that all died delivered nothing
            steps.append(Step(step.sessions, fps, step))
    return Series(
        gpu=gpu,
        source=source,
        kind=series.kind or "?",
        codec=series.codec,
        preset=series.preset,
        size="" if series.width is None or series.height is None else f"{series.width}×{series.height}",
        outcome=series.outcome or "unknown",
        decisive_line=series.decisive_line,
        engines=series.engines,
        steps=tuple(steps),
        status=None,
    )


def convolutions(record: RunRecord) -> list[Convolution]:
    evidence = answer(record, cudnn.Cudnn, "cudnn")
    gpu = gpu_of(evidence.gpu, record)
    return [Convolution(gpu, convolution) for convolution in evidence.convolutions]


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
