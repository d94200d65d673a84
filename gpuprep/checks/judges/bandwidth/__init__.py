"""Are memory and links of each GPU as fast as on healthy boards, as the link allows, and as on neighbouring GPUs?

Published figures (`published` names the source) contain only speeds: these are judged like any others, and missing
figures make no finding.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpuprep.checks import links
from gpuprep.checks.common import REMEDIES, skip, unknown
from gpuprep.checks.evidence import Evidence, absent_gpus, duplicate_gpus
from gpuprep.checks.judges.bandwidth import hostcopies, memoryspeed, peercopies
from gpuprep.checks.judges.bandwidth.memoryspeed import BINDINGS, occupied
from gpuprep.checks.links import named
from gpuprep.records import Finding, Missing, Status
from gpuprep.records.evidence.bandwidth import Bandwidth, BandwidthGpu


def findings(evidence: Evidence) -> list[Finding]:
    """Findings for each GPU (memory, link, copies to and from the host, slowdowns) and each pair (copies, NVLinks)."""
    if evidence.wanted.cuda.version == "none":
        return []
    values = evidence.of(Bandwidth, "bandwidth")
    if isinstance(values, Missing):
        return [unknown("bandwidth", "measured", values, expected="measured", remedy=BINDINGS)]
    if not values.gpus:
        nothing = Missing("not_recorded", "no GPU is listed")
        return [unknown("bandwidth", "measured", nothing, expected="measured", remedy="measure again")]
    seen = [gpu for gpu in values.gpus if not isinstance(gpu, Missing)]
    published = bool(values.published)
    gpu_findings = [] if published else absent_gpus(evidence, "bandwidth", seen, len(values.gpus) - len(seen))
    if published:
        why = f"figures that were published ({values.published}): nothing is known about the host"
        gpu_findings.append(skip("bandwidth", "host", expected="of this host", actual="published", reason=why))
    if doubled := duplicate_gpus("bandwidth", seen):
        return [*gpu_findings, *doubled]
    paired = {index for pair in values.peers for index in (pair.start, pair.end)}
    for gpu in seen:
        of_gpu = _gpu(evidence, gpu, seen, published=published)
        gpu_findings += of_gpu if of_gpu or gpu.index in paired else [_empty(named(gpu.index))]
    return [*gpu_findings, *peercopies.findings(evidence, values, seen)]


def _gpu(evidence: Evidence, gpu: BandwidthGpu, gpus: Sequence[BandwidthGpu], *, published: bool) -> list[Finding]:
    subject = named(gpu.index)
    if gpu.error:
        return [_failed(subject, gpu.error)]
    kin = _kin(evidence, gpu, gpus)
    busy = "" if published else occupied(gpu)
    undisturbed = [other for other in kin if not other.error and (published or not occupied(other))]
    findings = memoryspeed.findings(evidence, subject, gpu, busy, published=published)
    link = links.finding(evidence, subject, gpu, kin)
    if not published or not isinstance(gpu.pcie, Missing):
        findings.append(link)
    findings += hostcopies.findings(evidence, subject, gpu, link, busy, published=published)
    if not published or not isinstance(gpu.event_reasons, Missing) or gpu.telemetry:
        findings.append(memoryspeed.slowdowns(subject, gpu))
    if not busy:
        findings += memoryspeed.against_best(evidence, subject, gpu, undisturbed)
        findings += hostcopies.against_best(subject, gpu, undisturbed)
    return findings


def _empty(subject: str) -> Finding:
    why = f"nothing was measured of {subject}"
    return Finding(subject, "bandwidth", Status.UNKNOWN, "measured", "nothing", why, "measure again")


def _kin(evidence: Evidence, gpu: BandwidthGpu, gpus: Sequence[BandwidthGpu]) -> list[BandwidthGpu]:
    """The other GPUs of the same board."""
    ids, board = (gpu.pci_device_id.lower(), gpu.pci_subsystem_id.lower()), evidence.board(gpu)
    return [
        other
        for other in gpus
        if other is not gpu
        and (other.pci_device_id.lower(), other.pci_subsystem_id.lower()) == ids
        and evidence.board(other) == board
        and (board is not None or other.name == gpu.name)
    ]


def _failed(subject: str, error: str) -> Finding:
    """The finding for a failed measurement: FAIL for a lost GPU or wrong results, UNKNOWN for other CUDA errors."""
    why, prop = f"not measured: {error}", "bandwidth"
    if "lost" in error.lower():
        return Finding(subject, prop, Status.FAIL, "measured", "failed", why, REMEDIES["gpu_is_lost"])
    if "wrong" in error:
        remedy = "do not calculate on this GPU; ask for another, and show the provider this report"
        return Finding(subject, prop, Status.FAIL, "right results", "wrong results", error, remedy)
    remedy = "repair what the message names, then measure again"
    return Finding(subject, prop, Status.UNKNOWN, "measured", "failed", why, remedy)


def parts(measurement: Bandwidth) -> Iterator[str]:
    """The ways of each GPU that have a figure: "device copy"; and "peer copies" for each pair."""
    for gpu in measurement.gpus:
        if not isinstance(gpu, Missing):
            yield from (name for name, gb in {**gpu.memory, **gpu.host}.items() if not isinstance(gb, Missing))
    yield from (
        "peer copies" for peer in measurement.peers if not peer.error and not isinstance(peer.gb_per_s, Missing)
    )
