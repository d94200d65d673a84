"""Copies between GPUs: each pair and direction, compared with the speed of its links and with pairs of its kind."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gpuprep.catalogue import topologies
from gpuprep.catalogue.topologies import Family, Machine
from gpuprep.checks import links as pcie
from gpuprep.checks.common import unknown
from gpuprep.checks.evidence import Evidence
from gpuprep.checks.floors import FAIL_SHARE, Floor, Limits, apart, figure, healthy_limits, percents
from gpuprep.checks.judges.bandwidth.memoryspeed import ALONE, occupied
from gpuprep.checks.links import AGAIN, PCIE_MOST, named, nvlinks
from gpuprep.records import Finding, Missing, Status
from gpuprep.records.evidence.bandwidth import Bandwidth, BandwidthGpu, Pcie, Peer

PROP = "peer_copy"
NCCL_RATE = re.compile(r"(?<!/)\bnccl-tests\b(?! issue)|\bbus ?bandwidth\b|\bbusbw\b|\bsendrecv|_perf\b", re.IGNORECASE)
PEER_FLOOR = Floor(60.0, "gpuprep", FAIL_SHARE)  # of what joins the two
NEAR = ("PIX", "PXB", "PHB")  # below one CPU socket's root complex; NODE and SYS cross more, and are slower
# Through the host's memory healthy machines gave 34 to 70 % of the link (RTX 3090, 4090, 5090, A100 PCIe).
STAGED_PERCENT = 20.0
# Healthy machines differ by 17 % between pairs of one kind (A100 with switches: 430 and 520 GB/s both ways).
PAIR_WARN_PERCENT, PAIR_FAIL_PERCENT = 20.0, 50.0
NVLINK_GB_PER_S = 25.0  # of one link in one direction, NVLink 2 to 4, where the catalogue lacks the board
NVLINK_MOST = 0.98  # of what the links carry; on healthy boards 97 % at most (V100)
XID_74 = "see the kernel's log for Xid 74 (NVLink) and nvidia-smi nvlink -e; show the provider this report"
TOPOLOGY = "copies that cross the CPU are slower: see nvidia-smi topo -m, and keep work on neighbouring GPUs"
FORBIDDEN = "see that Fabric Manager runs and that no IOMMU or compute mode forbids it"


@dataclass(frozen=True)
class Pair:
    peer: Peer
    origin: BandwidthGpu
    target: BandwidthGpu
    family: Family | None  # of both; None where they differ or are not known
    links: int  # that are recorded as active; 0 where none is, or nothing is known
    published: bool

    @property
    def subject(self) -> str:
        return f"{named(self.peer.start)} to {named(self.peer.end)}"


def findings(evidence: Evidence, values: Bandwidth, gpus: Sequence[BandwidthGpu]) -> list[Finding]:
    """Findings for all pairs; [] on a machine with one GPU; UNKNOWN if pairs were not measured."""
    by_index = {gpu.index: gpu for gpu in gpus if gpu.index is not None}
    strays = _strays(values.peers, by_index)
    if len(gpus) < 2:
        return strays
    published = bool(values.published)
    if not values.peers:
        nothing = Missing("not_recorded", "no pair is listed")
        what = "copies between GPUs"
        silent = unknown("gpus", "peers", nothing, expected="each pair measured", what=what, remedy=AGAIN)
        return [] if published else [silent]
    # the first entry of a pair; a second one is reported
    once = {(peer.start, peer.end): peer for peer in reversed(values.peers)}
    pairs = [
        _pair(evidence, peer, by_index, published=published)
        for peer in reversed(once.values())
        if peer.start in by_index and peer.end in by_index and peer.start != peer.end
    ]
    if NCCL_RATE.search(values.published or ""):
        why = f"NCCL's rates ({values.published}) are lower than those of plain copies, for which the floors are made"
        remedy = "give them as `points` of the probe nccl (docs/records.md)"
        return [*strays, Finding("gpus", "peers", Status.UNKNOWN, "copies", "NCCL's rates", why, remedy)]
    findings = [*strays, *_links(evidence, pairs), *(_copy(evidence, pair) for pair in pairs)]
    findings += _beside_each_other(evidence, pairs)
    unmeasured = _gone(pairs, by_index)
    if unmeasured and not published:
        nothing = Missing("not_recorded", f"{', '.join(unmeasured)} was not measured")
        findings.append(unknown("gpus", "peers", nothing, expected="each pair measured", remedy=AGAIN))
    return findings


def _strays(peers: Sequence[Peer], gpus: Mapping[int, BandwidthGpu]) -> list[Finding]:
    """UNKNOWN for pairs with a GPU that is not recorded or was not measured, and for pairs that are recorded twice."""
    nameless = [peer for peer in peers if peer.start is None or peer.end is None]
    if nameless:
        why = f"between which GPUs {len(nameless)} of {len(peers)} copies went is not recorded (from, to)"
        shown = "not recorded"
        return [Finding("gpus", "pairs", Status.UNKNOWN, "both GPUs of each pair", shown, why, AGAIN)]
    pairs = [
        f"{named(peer.start)} to {named(peer.end)}"
        for peer in peers
        if peer.start not in gpus or peer.end not in gpus or peer.start == peer.end
    ]
    counted = Counter((peer.start, peer.end) for peer in peers)
    pairs += [f"{named(start)} to {named(end)} (twice)" for (start, end), count in counted.items() if count > 1]
    if not pairs:
        return []
    why = f"the record lists impossible pairs: {', '.join(pairs[:5])}"
    return [Finding("gpus", "pairs", Status.UNKNOWN, "pairs of the GPUs that are there", "others", why, AGAIN)]


def _gone(pairs: Sequence[Pair], gpus: Mapping[int, BandwidthGpu]) -> list[str]:
    measured = {(pair.peer.start, pair.peer.end) for pair in pairs}
    return [
        f"{named(gpu)} to {named(other)}"
        for gpu in gpus
        for other in gpus
        if gpu != other and (gpu, other) not in measured
    ]


def _pair(evidence: Evidence, peer: Peer, gpus: Mapping[int, BandwidthGpu], *, published: bool) -> Pair:
    origin, target = gpus[peer.start or 0], gpus[peer.end or 0]
    families = [topologies.family(evidence.board(gpu)) for gpu in (origin, target)]
    family = families[0] if families[0] == families[1] else None
    links = 0 if isinstance(peer.nvlinks, Missing) or peer.nvlinks < 0 else int(peer.nvlinks)
    return Pair(peer, origin, target, family, links, published)


# ---------------------------------------------------------------- NVLinks


def _links(evidence: Evidence, pairs: Sequence[Pair]) -> list[Finding]:
    findings = [finding for pair in pairs if (finding := _unlike(evidence, pair)) is not None]
    for family in {pair.family.key: pair.family for pair in pairs if pair.family}.values():
        findings += _of_family(evidence, family, [pair for pair in pairs if pair.family == family])
    return findings


def _unlike(evidence: Evidence, pair: Pair) -> Finding | None:
    """UNKNOWN for NVLinks between two known boards of different families, which no machine combines; else None."""
    boards = [evidence.board(gpu) for gpu in (pair.origin, pair.target)]
    names = [board.name for board in boards if board is not None]
    if not pair.links or pair.family is not None or len(names) < 2 or names[0] == names[1]:
        return None
    why = f"{pair.links} NVLinks between {names[0]} and {names[1]} are recorded, but NVLink cannot join such boards"
    shown = f"{pair.links} NVLinks"
    return Finding(pair.subject, nvlinks.PROP, Status.UNKNOWN, "no NVLinks", shown, why, AGAIN)


def _of_family(evidence: Evidence, family: Family, pairs: Sequence[Pair]) -> list[Finding]:
    rows: dict[int, dict[int, int]] = {}
    for pair in pairs:
        if not isinstance(pair.peer.nvlinks, Missing):
            rows.setdefault(pair.peer.start or 0, {})[pair.peer.end or 0] = pair.links
    gpus = {index for pair in pairs for index in (pair.peer.start, pair.peer.end)}
    published = any(pair.published for pair in pairs)  # often one pair of a larger machine
    part = topologies.part_of(family, [pair.links for pair in pairs], len(gpus), evidence.snapshot.nvswitches)
    if part is not None and not published:
        return [_of_part(pair, family, part, len(gpus)) for pair in pairs]
    machine = nvlinks.wiring(family, rows, len(gpus), evidence.snapshot.nvswitches, some=published)
    some = bool(evidence.snapshot.nvswitches) or any(pair.links for pair in pairs)
    pair_findings = [_links_of(pair, family, machine, rows, some=some) for pair in pairs]
    names = {start: named(start) for start in rows}
    whole = [] if published else nvlinks.of_rows(family, rows, machine, names)
    return [*(finding for finding in pair_findings if finding is not None), *whole]


def _of_part(pair: Pair, family: Family, machine: Machine, gpus: int) -> Finding:
    """WARN for a part of a larger machine: normal if its other GPUs are hidden; otherwise most links are down."""
    shown, most = f"{pair.links} NVLinks", family.links or 0
    why = (
        f"{pair.links} of {most} NVLinks are active: as between {gpus} of a machine with {machine.name}; "
        f"behind switches {most - pair.links} links would be down"
    )
    remedy = "see whether other GPUs of the machine are hidden from this job; else: " + nvlinks.LOOK
    return Finding(pair.subject, nvlinks.PROP, Status.WARN, "as wired", shown, why, remedy)


def _links_of(
    pair: Pair, family: Family, machine: Machine | None, rows: Mapping[int, Mapping[int, int]], *, some: bool
) -> Finding | None:
    links = pair.peer.nvlinks
    if isinstance(links, Missing):
        if family.joined == "none" or (pair.published and links.reason == "not_recorded"):
            return None
        return unknown(
            pair.subject, nvlinks.PROP, links, expected="as wired", what=f"NVLinks of {pair.subject}", remedy=AGAIN
        )
    back = rows.get(pair.peer.end or 0, {}).get(pair.peer.start or 0)
    return nvlinks.of_pair(pair.subject, family, links, back, machine, some=some)


# ---------------------------------------------------------------- speed


def _copy(evidence: Evidence, pair: Pair) -> Finding:
    subject, reached, error = pair.subject, pair.peer.gb_per_s, pair.peer.error
    if error:
        remedy = "see the kernel's log for Xid 74 (NVLink) and the state of Fabric Manager"
        return Finding(subject, PROP, Status.FAIL, "copies", "failed", f"a copy failed: {error}", remedy)
    if isinstance(reached, Missing):
        return unknown(subject, PROP, reached, expected="measured", what=f"copies {subject}", remedy=AGAIN)
    shown = f"{reached:.0f} GB/s"
    busy = "" if pair.published else next(filter(None, map(occupied, (pair.origin, pair.target))), "")
    if busy:
        return Finding(subject, PROP, Status.UNKNOWN, "measured alone", shown, busy, ALONE)
    if reached <= 0:
        why = f"{reached:g} GB/s is not a possible speed: nothing was measured"
        return Finding(subject, PROP, Status.UNKNOWN, "a speed", shown, why, AGAIN)
    carries, by = _joined(evidence, pair)
    if why := _unknown_links(pair, reached, carries):
        return Finding(subject, PROP, Status.UNKNOWN, "a floor", shown, why, AGAIN)
    if carries is None:
        why = "generation and width of their PCIe links are not recorded"
        return Finding(subject, PROP, Status.UNKNOWN, "a floor", shown, why, AGAIN)
    if _impossible(evidence, pair, reached):
        speed, possible = apart(reached, _most(pair) * carries)
        why = (
            f"{by} carry {figure(carries)} GB/s in one direction, of which a copy gets {possible} at most, and {speed}"
            " are recorded: the speed or the recorded links are wrong"
        )
        return Finding(subject, PROP, Status.UNKNOWN, f"≤ {possible} GB/s", f"{speed} GB/s", why, AGAIN)
    if pair.peer.can_access is None and not pair.published:
        why = "whether the GPUs have access to each other is not recorded"
        return Finding(subject, PROP, Status.UNKNOWN, "direct", shown, why, AGAIN)
    if pair.peer.can_access is False:
        return _staged(pair, reached, carries)
    return _direct(pair, reached, carries, by)


def _unknown_links(pair: Pair, reached: float, pcie_carries: float | None) -> str:
    """Why nothing is known of the NVLinks that may have carried a copy; "" if they are known, or PCIe is enough."""
    read, family = pair.peer.nvlinks, pair.family
    if not isinstance(read, Missing):
        most = family.links if family else None
        if most is not None and pair.links > most:
            return (
                f"{pair.links} NVLinks are recorded, and the board has {most}: the links between the GPUs are not known"
            )
        return ""
    if (family and family.joined == "none") or pair.peer.can_access is False:
        return ""
    if pcie_carries is not None and reached <= PCIE_MOST * pcie_carries and pair.published:
        return ""  # as in most published figures: as fast as PCIe, and compared with PCIe
    return "how many NVLinks join the two GPUs is not recorded (nvlinks), so what the copy can reach is not known"


def _impossible(evidence: Evidence, pair: Pair, reached: float) -> bool:
    """Whether the copy is faster than the links between the two GPUs can be."""
    carries, _ = _joined(evidence, pair)
    return carries is not None and reached > _most(pair) * carries


def _most(pair: Pair) -> float:
    """The highest share of the links' speed that a copy reaches."""
    return NVLINK_MOST if pair.links else PCIE_MOST


def _joined(evidence: Evidence, pair: Pair) -> tuple[float | None, str]:
    """(GB/s in one direction of the links between the two GPUs, name of these links)."""
    if pair.links and pair.peer.can_access is not False:
        each = pair.family.gb_per_s if pair.family else NVLINK_GB_PER_S
        return pair.links * (each or NVLINK_GB_PER_S), f"{pair.links} NVLinks"
    rates = [_rate(evidence, gpu, published=pair.published) for gpu in (pair.origin, pair.target)]
    known = [rate for rate in rates if rate is not None]
    return (min(known) if len(known) == len(rates) else None), "their PCIe links"


def _rate(evidence: Evidence, gpu: BandwidthGpu, *, published: bool) -> float | None:
    """GB/s of the GPU's link to the host as it is; a link below its nominal speed has its own finding."""
    if isinstance(gpu.pcie, Missing) and published:
        return pcie.device_of(Pcie(), evidence.board(gpu)).gb_per_s
    return pcie.rate(gpu.pcie)


def _staged(pair: Pair, reached: float, carries: float) -> Finding:
    percent = 100 * reached / carries
    shown = f"{reached:.0f} GB/s, {percents(percent, STAGED_PERCENT)[0]} %"
    why = "the GPUs have no access to each other: copies go through the host's memory"
    if pair.links:
        why += f", although {pair.links} NVLinks are active"
        return Finding(pair.subject, PROP, Status.FAIL, "direct", shown, why, FORBIDDEN)
    expected = f"≥ {STAGED_PERCENT:g} % of {carries:.0f} GB/s, through the host's memory"
    if percent >= STAGED_PERCENT:
        return Finding(pair.subject, PROP, Status.PASS, expected, shown, why)
    why += f"; healthy machines reach a third of the {carries:.0f} GB/s of their links and more"
    return Finding(pair.subject, PROP, Status.WARN, expected, shown, why, TOPOLOGY)


def _direct(pair: Pair, reached: float, carries: float, by: str) -> Finding:
    limit, percent = _limits(pair), 100 * reached / carries
    share = percents(percent, limit.passes)[0]
    expected, shown = f"{limit.of(carries, percent)}, {by}", f"{reached:.0f} GB/s, {share} %"
    status = Status(limit.status(percent))
    if status is Status.PASS:
        return Finding(pair.subject, PROP, status, expected, shown)
    why = f"copies reach {reached:.0f} of the {carries:.0f} GB/s that {by} carry"
    if pair.links:
        why += limit.beside(status.value)
        return Finding(pair.subject, PROP, status, expected, shown, why, XID_74)
    return Finding(pair.subject, PROP, Status.WARN, expected, shown, why, TOPOLOGY)


def _limits(pair: Pair) -> Limits:
    if pair.links:
        return healthy_limits(PEER_FLOOR, pair.family.healthy if pair.family else None, "NVLink between two")
    links = (pair.origin.pcie, pair.target.pcie)
    generations = [link.generation if isinstance(link, Pcie) else None for link in links]
    near = pair.peer.topology in NEAR and all(generations)
    lowest = min((generation for generation in generations if generation), default=0)
    return healthy_limits(PEER_FLOOR, topologies.healthy_pcie(lowest, "h2d") if near else None, "PCIe below one CPU")


# ---------------------------------------------------------------- pair beside pair


def _beside_each_other(evidence: Evidence, pairs: Sequence[Pair]) -> list[Finding]:
    """WARN for pairs far behind the best pair of the same kind: same boards, number of links and PCIe path."""
    findings = []
    kinds: dict[tuple[object, ...], list[tuple[float, Pair]]] = {}
    for pair in pairs:
        reached = pair.peer.gb_per_s
        if not isinstance(reached, Missing) and reached > 0 and not _impossible(evidence, pair, reached):
            boards = frozenset((gpu.pci_device_id, gpu.pci_subsystem_id) for gpu in (pair.origin, pair.target))
            key = (boards, pair.links, pair.peer.topology, pair.peer.can_access)
            kinds.setdefault(key, []).append((reached, pair))
    for several in kinds.values():
        best, fastest = max(several, key=lambda one: one[0])
        findings += [one for reached, pair in several if (one := _behind(pair, reached, best, fastest)) is not None]
    return findings


def _behind(pair: Pair, reached: float, best: float, fastest: Pair) -> Finding | None:
    percent = 100 * (1 - reached / best)
    if percent < PAIR_WARN_PERCENT:
        return None
    shown = f"{reached:.0f} of {best:.0f} GB/s ({fastest.subject})"
    why = f"copies are {percent:.0f} % slower than those of the best pair with the same kind of link"
    comparable = bool(pair.links or pair.peer.topology)  # else one pair may cross the CPU and the other not
    status = Status.FAIL if comparable and percent >= PAIR_FAIL_PERCENT else Status.WARN
    remedy = XID_74 if pair.links else TOPOLOGY
    expected = f"less than {PAIR_WARN_PERCENT:g} % below the best pair"
    return Finding(pair.subject, "peer_against_best", status, expected, shown, why, remedy)
