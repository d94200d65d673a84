"""Can the figures of the bandwidth probe be trusted: no other process, no slowdown, entries that name one GPU each?"""

from __future__ import annotations

from gpuprep.checks import gpuprocesses
from gpuprep.checks.conditions import GRAVE, MANY_SAMPLES, SHOW_PROVIDER, mask
from gpuprep.performance.clock_events import SW_THERMAL, SYNC_BOOST, named
from gpuprep.records import Finding, Missing, Status
from gpuprep.records.evidence.bandwidth import BandwidthGpu

AGAIN = "measure again"


def occupied(gpu: BandwidthGpu) -> str:
    """Why the figures of this GPU do not count; "" if no other process used it."""
    others = gpu.other_processes
    if isinstance(others, Missing):
        return f"whether another process used the GPU is not known{f' ({others.detail})' if others.detail else ''}"
    unread = ["an entry that is not valid"] if any(isinstance(process, Missing) for process in others) else []
    listed = gpuprocesses.listed([process for process in others if not isinstance(process, Missing)][:3])
    names = ", ".join([*([listed] if listed else []), *unread])
    return f"another process used the GPU while it was measured: {names}" if names else ""


def slowdowns(subject: str, gpu: BandwidthGpu) -> Finding:
    """As for matrix products: hardware slowdowns fail, heat warns, the power cap is how these cards work."""
    prop, expected = "bandwidth_slowdowns", "no slowdown by heat or by the hardware"
    whole, samples = mask(gpu.event_reasons), _samples(gpu)
    seen = 0
    for sample in [whole, *samples]:
        seen |= sample or 0
    shown = ", ".join(reason.name for reason in named(seen)) or "none"
    if seen & GRAVE:
        hits = sum(1 for sample in samples if (sample or 0) & GRAVE)
        passing = len(samples) >= MANY_SAMPLES and hits <= 1
        share = f" in {hits} of {len(samples)} samples" if samples else ""
        why = f"{', '.join(reason.name for reason in named(seen & GRAVE))} while the memory was measured{share}"
        return Finding(subject, prop, Status.WARN if passing else Status.FAIL, expected, shown, why, SHOW_PROVIDER)
    if whole is None or None in samples:
        why = "NVML's event reasons, which explain the clocks, could not be read"
        return Finding(subject, prop, Status.UNKNOWN, expected, "not readable", why, AGAIN)
    if seen & SW_THERMAL:
        why = "the driver lowered the clocks because of heat while the memory was measured"
        return Finding(subject, prop, Status.WARN, expected, shown, why, "look at the machine's cooling")
    if seen & SYNC_BOOST:
        why = "a slower GPU of its sync boost group kept the clocks low while the memory was measured"
        remedy = "take the GPUs out of the sync boost group (dcgmi config), and measure again"
        return Finding(subject, prop, Status.WARN, expected, shown, why, remedy)
    return Finding(subject, prop, Status.PASS, expected, shown)


def _samples(gpu: BandwidthGpu) -> list[int | None]:
    read = gpu.telemetry.event_reasons if gpu.telemetry else ()
    return [mask(reasons) for reasons in read if reasons is not None]
