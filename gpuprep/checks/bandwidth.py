"""Are memory and links of each GPU as fast as the catalogue and the link itself allow?"""

from __future__ import annotations

from gpuprep import catalogue
from gpuprep.checks import gpuprocesses
from gpuprep.checks.common import COMPARE_IT, REMEDIES, unknown
from gpuprep.checks.evidence import Evidence, absent_gpus
from gpuprep.checks.floors import Floor, figure, floor
from gpuprep.checks.links import link, named, peers, rate
from gpuprep.records import Finding, Missing, Status
from gpuprep.records.evidence.bandwidth import Bandwidth, BandwidthGpu
from gpuprep.records.evidence.decode import Figure

# A copy engine's copy does not reach what kernels reach: on one A100 SXM4 of 80 GB 1371 and 1769 GB/s (SuperBench's
# D2D and gpu-benches' stream, both right). The profile's floor is for kernels.
COPY_SHARE = 0.8
FULL_CLOCK = 0.98  # of the highest memory clock; below it the clock explains a slow memory
BINDINGS = (
    "gpuprep provision gives the agent its CUDA bindings; they need CUDA 12 or newer (driver.source: nvidia offers it)"
)
INCREDIBLE_PERCENT = 103.0
INCREDIBLE = "that is more than it can carry: the measurement or the catalogue's figure is wrong"
ALONE = "stop what uses the GPU (nvidia-smi shows it), then measure again"


def findings(evidence: Evidence) -> list[Finding]:
    """Three of memory, two of copies to and from the host and one of the link for each GPU; one or two a pair."""
    if evidence.wanted.cuda.version == "none":
        return []
    values = evidence.of(Bandwidth, "bandwidth")
    if isinstance(values, Missing):
        return [unknown("bandwidth", "measured", values, expected="measured", remedy=BINDINGS)]
    if not values.gpus:
        nothing = Missing("unparsable", "the probe lists no GPU")
        return [unknown("bandwidth", "measured", nothing, expected="measured", remedy="measure again")]
    seen = [gpu for gpu in values.gpus if not isinstance(gpu, Missing)]
    found = absent_gpus(evidence, "bandwidth", seen, len(values.gpus) - len(seen))
    found += [finding for gpu in seen for finding in _gpu(evidence, gpu)]
    return [*found, *peers(evidence, values.peers, seen)]


def _gpu(evidence: Evidence, gpu: BandwidthGpu) -> list[Finding]:
    subject = named(gpu.index)
    if gpu.error:
        return [_failed(subject, gpu.error)]
    busy = occupied(gpu)
    memory = [_memory(evidence, subject, gpu, what, reached, busy) for what, reached in gpu.memory.items()]
    host = [_host(evidence, subject, gpu, what, reached, busy) for what, reached in gpu.host.items()]
    return [*memory, link(subject, gpu), *host]


def _failed(subject: str, error: str) -> Finding:
    """FAIL for a lost GPU and wrong results; any other CUDA error says nothing about the GPU: UNKNOWN."""
    why, prop = f"not measured: {error}", "bandwidth"
    if "lost" in error.lower():
        return Finding(subject, prop, Status.FAIL, "measured", "failed", why, REMEDIES["gpu_is_lost"])
    if "wrong" in error:
        remedy = "do not calculate on this GPU; ask for another, and show the provider this report"
        return Finding(subject, prop, Status.FAIL, "right results", "wrong results", error, remedy)
    remedy = "mend what the message names, then measure again"
    return Finding(subject, prop, Status.UNKNOWN, "measured", "failed", why, remedy)


def occupied(gpu: BandwidthGpu) -> str:
    """Why the figures of this GPU do not count; "" if no other process used it, or the record does not say."""
    others = gpu.other_processes
    if isinstance(others, Missing):
        return "whether another process used the GPU could not be read"
    names = gpuprocesses.listed([one for one in others if not isinstance(one, Missing)][:3])
    return f"another process used the GPU while it was measured: {names}" if names else ""


def _memory(evidence: Evidence, subject: str, gpu: BandwidthGpu, what: str, reached: Figure, busy: str) -> Finding:
    prop = what.replace("device ", "memory_")
    facts = evidence.board(gpu)
    peak, least = facts.memory_gb_per_s if facts else None, floor(evidence, "memory_percent_of_peak", facts)
    if isinstance(reached, Missing):
        said = f"the {what} of {subject}"
        return unknown(subject, prop, reached, expected="measured", what=said, remedy=BINDINGS)
    if peak is None or least is None:
        lacks = "the catalogue has no bandwidth of this GPU" if peak is None else "the profile sets no floor"
        remedy = "say memory_percent_of_peak under thresholds in the profile" if peak is not None else COMPARE_IT
        return Finding(subject, prop, Status.UNKNOWN, "a floor", f"{reached:.0f} GB/s", lacks, remedy)
    if what == "device copy":
        least = Floor(round(least.percent * COPY_SHARE, 1), least.source)
    expected = least.of(peak, "GB/s")
    percent = 100 * reached / peak
    shown = f"{reached:.0f} GB/s, {percent:.0f} %"
    if settled := _settled(subject, prop, expected, shown, percent, least, busy):
        return settled
    why, remedy = _slow(gpu, facts, f"the {what} reaches {figure(reached)} of {figure(peak)} GB/s ({percent:.0f} %)")
    return Finding(subject, prop, Status.FAIL, expected, shown, why, remedy)


def _settled(
    subject: str, prop: str, expected: str, shown: str, percent: float, least: Floor, busy: str
) -> Finding | None:
    """The finding for a figure that does not count, or is fast enough. None: it is too low and needs a reason."""
    if busy:
        return Finding(subject, prop, Status.UNKNOWN, expected, shown, busy, ALONE)
    if percent > INCREDIBLE_PERCENT:
        return Finding(subject, prop, Status.UNKNOWN, expected, shown, INCREDIBLE, "measure again")
    return Finding(subject, prop, Status.PASS, expected, shown) if percent >= least.percent else None


def _slow(gpu: BandwidthGpu, facts: catalogue.Board | None, said: str) -> tuple[str, str]:
    """(why the memory is slow, what to do): its clock, or the memory itself."""
    clock, top = gpu.memory_clock_mhz, facts.memory_mhz if facts else None
    if isinstance(clock, Missing) or top is None:
        return f"{said}; its clock is not known", "measure again; if it stays, show the provider this report"
    if clock < FULL_CLOCK * top:
        why = f"{said}, because the memory clock was {clock:.0f} of {top} MHz"
        return why, "gpuprep tune sets the clocks; a clock that stays low is a fault to show the provider"
    why = f"{said} although the memory clock was full ({clock:.0f} of {top} MHz)"
    return why, "see remapped rows and ECC errors (nvidia-smi -q -d ECC,ROW_REMAPPER), and ask for another GPU"


def _host(evidence: Evidence, subject: str, gpu: BandwidthGpu, what: str, reached: Figure, busy: str) -> Finding:
    """Against what the link carries as it is: a link below its own maximum is the link's finding."""
    prop = what.replace(" ", "_")
    least = floor(evidence, "host_link_percent_of_peak")
    carries = rate(gpu.pcie)
    if isinstance(reached, Missing):
        said = f"the copy {what} of {subject}"
        return unknown(subject, prop, reached, expected="measured", what=said, remedy="measure again")
    if carries is None or least is None:
        lacks = "the profile sets no floor" if least is None else "generation and width of the link are not known"
        remedy = "say host_link_percent_of_peak under thresholds in the profile" if least is None else "measure again"
        return Finding(subject, prop, Status.UNKNOWN, "a floor", f"{reached:.1f} GB/s", lacks, remedy)
    expected, percent = least.of(carries, "GB/s"), 100 * reached / carries
    shown = f"{reached:.1f} GB/s, {percent:.0f} %"
    if settled := _settled(subject, prop, expected, shown, percent, least, busy):
        return settled
    why = f"copies {what} reach {reached:.1f} of the {carries:.1f} GB/s that the link carries ({percent:.0f} %)"
    remedy = "look for another load on the host's memory, and whether the VM's memory is on the GPU's own NUMA node"
    return Finding(subject, prop, Status.FAIL, expected, shown, why, f"{remedy}; else show the provider this report")
