"""RunRecord ─► rows of what the probes measured (docs/records.md). Absent values are left out."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from gpuprep.performance.attribution import Attribution, explain, sustained
from gpuprep.records import Missing, RunRecord, Source, Status
from gpuprep.records.findings import PROBLEMS, findings_of
from gpuprep.reports.readings import NOT_READ, View, known, probe, values
from gpuprep.reports.rows import Bandwidth, Convolution, Gemm, Gpu, Series, Step, Together, Transcode, share

BANDWIDTHS = (  # key, words, what it crosses
    ("copy_gb_per_s", "device copy", "memory"), ("read_gb_per_s", "device read", "memory"),
    ("triad_gb_per_s", "device triad", "memory"), ("h2d_gb_per_s", "host to device", "link"),
    ("d2h_gb_per_s", "device to host", "link"),
)  # fmt: skip
# What counts of several findings on one transcode. One that ran is not skipped because one check of it was.
GRAVEST = (*PROBLEMS, Status.WAIVED, Status.PASS, Status.SKIP)
FAR_BEHIND = 0.8  # of the fastest product of its data type
# GB/s a lane and direction after line coding, by PCIe generation (PCI Express Base Specification).
PCIE_GB_PER_S = {1: 0.25, 2: 0.5, 3: 0.985, 4: 1.969, 5: 3.938, 6: 7.563}


def gpu_of(view: View) -> Gpu:
    return Gpu(view.whole("index"), view.text("uuid"), view.text("name"), view.text("pci_device_id"))


def gemms(record: RunRecord) -> list[Gemm]:
    found = values(record, "gemm")
    return [_gemm(gpu, one, source_of(record, "gemm")) for gpu in found.views("gpus") for one in gpu.views("gemms")]


def telling(rows: Sequence[Gemm]) -> list[Gemm]:
    """The products to explain first: for each GPU and data type the fastest, and those much slower."""
    best: dict[tuple[str, str], float] = {}
    for row in rows:
        key = (row.gpu.label, row.type)
        best[key] = max(best.get(key, 0.0), known(row.tflops) or 0.0)
    fastest = set()
    found = []
    for row in rows:
        key, speed = (row.gpu.label, row.type), known(row.tflops)
        if speed is None or not row.attribution:
            continue
        first = speed == best[key] and key not in fastest
        if first or speed < FAR_BEHIND * best[key]:
            found.append(row)
        if first:
            fastest.add(key)
    return found


def _gemm(of: View, one: View, source: Source) -> Gemm:
    gpu, dtype = gpu_of(of), one.text("dtype")
    short = explain(one.raw, gpu.facts, of.raw) if gpu.facts else None
    lasting = explain(sustained(one.raw), gpu.facts, of.raw) if gpu.facts else None
    return Gemm(
        gpu=gpu,
        source=source,
        dtype=dtype or "?",
        accumulate=one.text("accumulate"),
        m=one.whole("m"),
        n=one.whole("n"),
        k=one.whole("k"),
        tflops=one.number("tflops"),
        attribution=short if isinstance(short, Attribution) else None,
        lasting=lasting if isinstance(lasting, Attribution) else None,
        graphics_clock_mhz=one.number("graphics_clock_mhz"),
        power_watts=one.number("power_watts"),
        temperature_c=one.number("temperature_c"),
        sustained_tflops=one.view("sustained").number("tflops"),
        exact=one.flag("exact"),
        error=one.text("error"),
        values=one.raw,
        telemetry=one.view("sustained").view("telemetry") or one.view("telemetry"),
    )


def together(record: RunRecord) -> list[Together]:
    views = values(record, "gemm").views("together")
    fastest = max((known(view.number("tflops")) or 0.0 for view in views), default=0.0)
    return [
        Together(
            label=f"GPU {index}" if (index := view.whole("index")) is not None else "GPU",
            dtype=view.text("dtype") or "?",
            tflops=view.number("tflops"),
            graphics_clock_mhz=view.number("graphics_clock_mhz"),
            percent=share(view.number("tflops"), fastest),
        )
        for view in views
    ]


def bandwidths(record: RunRecord) -> list[Bandwidth]:
    found, source, rows = values(record, "bandwidth"), source_of(record, "bandwidth"), []
    for view in found.views("gpus"):
        gpu = gpu_of(view)
        memory = gpu.facts.memory_gb_per_s if gpu.facts else None
        pcie = view.view("pcie")
        lane = PCIE_GB_PER_S.get(pcie.whole("max_generation") or 0)
        link = lane * (pcie.whole("max_width") or 0) if lane else None
        for key, what, crosses in BANDWIDTHS:
            peak = memory if crosses == "memory" else link
            rows.append(Bandwidth(gpu, source, what, view.number(key), peak, crosses))
    indexed = {gpu_of(view).index: gpu_of(view) for view in found.views("gpus")}
    for view in found.views("peers"):
        start, end = view.whole("from"), view.whole("to")
        gpu = indexed.get(start, Gpu(start, "", "", ""))
        rows.append(Bandwidth(gpu, source, f"GPU {start} to GPU {end}", view.number("gb_per_s"), None, "peer"))
    return rows


def transcodes(record: RunRecord) -> list[Transcode]:
    source = source_of(record, "transcode")
    cases = values(record, "transcode").views("cases")
    return [_transcode(view, source, _judged(record, f"transcode {view.text('id')}")) for view in cases]


def _judged(record: RunRecord, subject: str) -> Status | None:
    """The most severe status of the findings on `subject`."""
    said = {one.status for one in findings_of(record) if one.subject == subject}
    return next((status for status in GRAVEST if status in said), None)


def _transcode(view: View, source: Source, status: Status | None) -> Transcode:
    outputs, seconds = view.views("outputs"), view.number("seconds")
    frames = [known(output.number("frames")) for output in outputs]
    lasted = known(seconds)
    read = [count for count in frames if count is not None]
    psnr = [value for output in outputs if (value := known(output.number("psnr_db"))) is not None]
    ssim = [value for output in outputs if (value := known(output.number("ssim"))) is not None]
    return Transcode(
        id=view.text("id") or "?",
        number=view.whole("number"),
        title=view.text("title"),
        command=view.text("command"),
        outcome=view.text("outcome") or "unknown",
        seconds=seconds,
        fps=sum(read) / lasted if read and len(read) == len(frames) and lasted else None,
        psnr_db=min(psnr, default=None),
        ssim=min(ssim, default=None),
        decisive_line=view.text("decisive_line"),
        outputs=tuple(outputs),
        source=source,
        status=status,
    )


def throughputs(record: RunRecord) -> list[Series]:
    found, source = values(record, "throughput"), source_of(record, "throughput")
    several = len(found.views("gpus")) > 1
    made = []
    for view in found.views("series"):
        one = _series(gpu_of(view.view("gpu") or found.view("gpu")), view, source)
        subject = f"throughput {one.name}" + (f" gpu {one.gpu.index}" if several else "")
        made.append(dataclasses.replace(one, status=_judged(record, subject)))
    return made


def _series(gpu: Gpu, view: View, source: Source) -> Series:
    steps = []
    for step in view.views("steps"):
        sessions, fps = step.whole("sessions"), known(step.number("fps"))
        if sessions is not None and fps is not None and fps > 0:  # sessions that all died delivered nothing to count
            encoder, decoder = (step.number(f"{engine}_utilization_percent") for engine in ("encoder", "decoder"))
            steps.append(Step(sessions, fps, encoder, decoder, step.number("video_clock_mhz")))
    width, height = view.whole("width"), view.whole("height")
    return Series(
        gpu=gpu,
        source=source,
        kind=view.text("kind") or "?",
        codec=view.text("codec"),
        preset=view.text("preset"),
        size="" if width is None or height is None else f"{width}×{height}",
        outcome=view.text("outcome") or "unknown",
        decisive_line=view.text("decisive_line"),
        engines=view.whole("engines"),
        steps=tuple(steps),
        status=None,
    )


def convolutions(record: RunRecord) -> list[Convolution]:
    found = values(record, "cudnn")
    return [
        Convolution(
            gpu_of(found.view("gpu")),
            view.text("dtype") or "?",
            view.text("layout"),
            view.text("shape"),
            view.number("tflops"),
            view.number("microseconds"),
            view.number("max_relative_error"),
            view.text("error"),
        )
        for view in found.views("convolutions")
    ]


def unanswered(record: RunRecord) -> list[tuple[str, Missing]]:
    """Probes that gave no answer at all, and why."""
    return [
        (result.probe, View(result.values).missing or NOT_READ)
        for result in record.measurements
        if not View(result.values)
    ]


def source_of(record: RunRecord, name: str) -> Source:
    found = probe(record, name)
    return found.source if found else record.source


def simulated(record: RunRecord) -> bool:
    """Whether any part of the record is simulated."""
    return record.source is Source.SIMULATED or any(result.source is Source.SIMULATED for result in record.measurements)
