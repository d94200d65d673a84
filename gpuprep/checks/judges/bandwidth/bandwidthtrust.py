"""Can the figures of the bandwidth probe be trusted: no other process, no slowdown, each entry for one GPU?"""

from __future__ import annotations

from gpuprep.checks import conditions, gpuprocesses
from gpuprep.checks.conditions import GRAVE, mask
from gpuprep.records import Finding, Missing
from gpuprep.records.evidence.bandwidth import BandwidthGpu


def occupied(gpu: BandwidthGpu) -> str:
    """Why the figures of this GPU do not count (another process used it); "" if they do."""
    others = gpu.other_processes
    if isinstance(others, Missing):
        return f"whether another process used the GPU is not known{f' ({others.detail})' if others.detail else ''}"
    unread = ["an entry that is not valid"] if any(isinstance(process, Missing) for process in others) else []
    listed = gpuprocesses.listed([process for process in others if not isinstance(process, Missing)][:3])
    names = ", ".join([*([listed] if listed else []), *unread])
    return f"another process used the GPU while it was measured: {names}" if names else ""


def slowdowns(subject: str, gpu: BandwidthGpu) -> Finding:
    """As for matrix products: FAIL for hardware slowdowns, WARN for heat; the power cap is normal for these cards."""
    samples = _samples(gpu)
    grave = sum(1 for sample in samples if (sample or 0) & GRAVE)
    return conditions.slowdowns(
        subject, "bandwidth_slowdowns", [mask(gpu.event_reasons)], sampled=samples, grave_samples=grave,
        samples=len(samples), measured="the memory", clock="clocks",
    )  # fmt: skip


def _samples(gpu: BandwidthGpu) -> list[int | None]:
    read = gpu.telemetry.event_reasons if gpu.telemetry else ()
    return [mask(reasons) for reasons in read if reasons is not None]
