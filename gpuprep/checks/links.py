"""PCIe and NVLink under load: does each run as fast and as wide as the device can?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gpuprep.checks.common import unknown
from gpuprep.checks.evidence import Evidence
from gpuprep.records import Finding, Missing, Status
from gpuprep.records.evidence.bandwidth import BandwidthGpu, Pcie, Peer

# GB/s of one lane in one direction, after line coding (PCI-SIG: 2.5, 5, 8, 16, 32, 64 GT/s; 8b/10b, then 128b/130b).
LANE_GB_PER_S = {1: 0.25, 2: 0.5, 3: 0.985, 4: 1.969, 5: 3.938, 6: 7.563}
# A provider may wire a GPU with half its lanes (AWS g4dn: a T4 with 8 of 16); less than half is a fault.
FAULT_SHARE = 0.5
NVLINK_GB_PER_S = 25.0  # of one link in one direction, NVLink 2 to 4
PEER_FLOOR_PERCENT = 60.0
AGAIN = "measure again"
RESEAT = "show the provider this report: the slot, the riser or the host's settings limit the link"


def named(index: int | None) -> str:
    return f"gpu {'?' if index is None else index}"


def rate(link: Pcie | Missing) -> float | None:
    """GB/s in one direction that the link carries; None where its generation or width is not known."""
    return None if isinstance(link, Missing) else _carries(link.generation, link.width)


def _carries(generation: int | None, width: int | None) -> float | None:
    lane = LANE_GB_PER_S.get(generation or 0)
    return lane * width if lane and width else None


def link(subject: str, gpu: BandwidthGpu) -> Finding:
    """Generation and width while copies kept the link busy, against the most that device and slot can do."""
    pcie = gpu.pcie if isinstance(gpu.pcie, Pcie) else Pcie()
    generation, width, best = pcie.generation, pcie.width, pcie.max_generation
    # NVML's maximum is that of device and slot together: a short slot would excuse itself.
    widest = max(pcie.max_width, pcie.device_width or 0) if pcie.max_width else None
    now, most = _carries(generation, width), _carries(best, widest)
    if now is None or most is None or not generation or not width or not best or not widest:
        said = gpu.pcie.detail if isinstance(gpu.pcie, Missing) else ""
        lacking = Missing("unparsable", said or "generation and width under load are not recorded")
        return unknown(
            subject, "pcie_link", lacking, expected="as wide and fast as the device", what="the PCIe link", remedy=AGAIN
        )
    shown = f"generation {generation} x{width}"
    expected = f"generation {best} x{widest}"
    faults = []
    if width < widest:
        faults.append(f"x{width} of x{widest}")
    if generation < best:
        faults.append(f"generation {generation} of {best}")
    if not faults:
        return Finding(subject, "pcie_link", Status.PASS, expected, shown)
    status = Status.FAIL if now < FAULT_SHARE * most * 0.99 else Status.WARN
    why = f"the PCIe link runs {' and '.join(faults)} under load: {now:.1f} of {most:.1f} GB/s"
    return Finding(subject, "pcie_link", status, expected, shown, why, RESEAT)


def peers(evidence: Evidence, pairs: Sequence[Peer], gpus: Sequence[BandwidthGpu]) -> list[Finding]:
    """Nothing on a machine with one GPU; UNKNOWN where several were not measured against each other."""
    if len(gpus) < 2:
        return []
    if not pairs:
        nothing = Missing("unparsable", "the probe lists no pair")
        return [
            unknown("gpus", "peers", nothing, expected="each pair measured", what="copies between GPUs", remedy=AGAIN)
        ]
    by_index = {gpu.index: gpu for gpu in gpus}
    found = [finding for pair in pairs for finding in _pair(evidence, pair, by_index)]
    measured = {_subject(pair.start, pair.end) for pair in pairs}
    wanted = [_subject(one, other) for one in by_index for other in by_index if one != other]
    gone = [pair for pair in wanted if pair not in measured]
    if gone:
        nothing = Missing("not_recorded", f"{', '.join(gone)} was not measured")
        found.append(unknown("gpus", "peers", nothing, expected="each pair measured", remedy=AGAIN))
    return found


def _subject(start: int | None, end: int | None) -> str:
    return f"{named(start)} to {named(end)}"


def _pair(evidence: Evidence, pair: Peer, gpus: Mapping[int | None, BandwidthGpu]) -> list[Finding]:
    subject = _subject(pair.start, pair.end)
    origin, target = gpus.get(pair.start, BandwidthGpu()), gpus.get(pair.end, BandwidthGpu())
    links = pair.nvlinks
    wanted = min(_switched(evidence, gpu) for gpu in (origin, target))
    active = 0 if isinstance(links, Missing) else int(links)
    found = [] if not wanted else [_nvlinks(subject, links, wanted)]
    return [*found, _speed(subject, pair, active, origin, target)]


def _switched(evidence: Evidence, gpu: BandwidthGpu) -> int:
    """How many NVLinks lead from this GPU through switches to every other one."""
    board = evidence.board(gpu)
    wired = board.nvlink if board else None
    return wired.links if wired and wired.how == "switch" else 0


def _nvlinks(subject: str, links: float | Missing, wanted: int) -> Finding:
    expected = f"{wanted} NVLinks active"
    if isinstance(links, Missing):
        return unknown(subject, "nvlinks", links, expected=expected, what=f"NVLinks of {subject}", remedy=AGAIN)
    if links >= wanted:
        return Finding(subject, "nvlinks", Status.PASS, expected, f"{links:.0f}")
    if links == 0:
        why = "no NVLink is active: the GPUs speak over PCIe"
        remedy = (
            "ask the provider whether this size of machine has NVLink; with NVSwitches see that Fabric Manager runs"
        )
        return Finding(subject, "nvlinks", Status.WARN, expected, "0", why, remedy)
    why = f"{links:.0f} of {wanted} NVLinks are active"
    return Finding(subject, "nvlinks", Status.FAIL, expected, f"{links:.0f}", why, "show the provider this report")


def _speed(subject: str, pair: Peer, links: int, origin: BandwidthGpu, target: BandwidthGpu) -> Finding:
    reached, error = pair.gb_per_s, pair.error
    if error:
        remedy = "see the kernel's log for Xid 74 (NVLink) and the state of Fabric Manager"
        return Finding(subject, "peer_copy", Status.FAIL, "copies", "failed", f"a copy failed: {error}", remedy)
    if isinstance(reached, Missing):
        return unknown(subject, "peer_copy", reached, expected="measured", what=f"copies {subject}", remedy=AGAIN)
    if pair.can_access is not True:
        why = "the GPUs have no access to each other: copies go through the host's memory"
        if links:
            why += f", although {links} NVLinks are active"
            return Finding(subject, "peer_copy", Status.FAIL, "direct", f"{reached:.0f} GB/s", why,
                           "see that Fabric Manager runs and that no IOMMU or compute mode forbids it")  # fmt: skip
        return Finding(subject, "peer_copy", Status.SKIP, "direct", f"{reached:.0f} GB/s", why)
    rates = [rate(gpu.pcie) for gpu in (origin, target)]
    slower = min((r for r in rates if r is not None), default=None)
    carries = links * NVLINK_GB_PER_S if links else slower
    if carries is None:
        return Finding(subject, "peer_copy", Status.UNKNOWN, "a floor", f"{reached:.0f} GB/s",
                       "neither the number of NVLinks nor the PCIe link is known", "measure again")  # fmt: skip
    by = f"{links} NVLinks" if links else "PCIe"
    expected = f"≥ {PEER_FLOOR_PERCENT:g} % of {carries:.0f} GB/s ({by})"
    shown = f"{reached:.0f} GB/s, {100 * reached / carries:.0f} %"
    if 100 * reached / carries >= PEER_FLOOR_PERCENT:
        return Finding(subject, "peer_copy", Status.PASS, expected, shown)
    why = f"copies reach {reached:.0f} of the {carries:.0f} GB/s that {by} carry"
    if links:
        remedy = "see the kernel's log for Xid 74 (NVLink) and nvidia-smi nvlink -e; show the provider this report"
        return Finding(subject, "peer_copy", Status.FAIL, expected, shown, why, remedy)
    remedy = "copies that cross the CPU are slower: see nvidia-smi topo -m, and keep work on neighbouring GPUs"
    return Finding(subject, "peer_copy", Status.WARN, expected, shown, why, remedy)
