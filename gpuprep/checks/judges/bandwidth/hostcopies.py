"""Are copies between host memory and a GPU as fast as the present link, and as the link that should be there?"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from gpuprep.catalogue import Board
from gpuprep.catalogue.topologies import (
    chip_to_chip_carries,
    healthy_chip_to_chip,
    healthy_pcie,
    is_chip_to_chip,
    wired_with,
)
from gpuprep.checks import links
from gpuprep.checks.common import unknown
from gpuprep.checks.evidence import Evidence
from gpuprep.checks.floors import ROUNDING, Floor, Limits, apart, floor, healthy_limits, is_shipped, percents
from gpuprep.checks.judges.bandwidth.memoryspeed import ALONE, speed
from gpuprep.records import Finding, Missing, Status
from gpuprep.records.evidence import Figure
from gpuprep.records.evidence.bandwidth import BandwidthGpu

FLOOR = "host_link_percent_of_peak"
KEYS = {"host to device": "h2d", "device to host": "d2h"}
# Copies of two GPUs of one host differ by their NUMA nodes: 23.9 and 26.0 GB/s on a healthy machine with eight A100.
NEIGHBOUR_WARN_PERCENT, NEIGHBOUR_FAIL_PERCENT = 15.0, 45.0
# slower than the other direction by this: the link is not the cause, as it is equally fast both ways
ONE_WAY_PERCENT = 25.0
NUMA = "look for another load on the host's memory, and whether the VM's memory is on the GPU's own NUMA node"
ELSE = f"{NUMA}; else show the provider this report"


def findings(
    evidence: Evidence, subject: str, gpu: BandwidthGpu, link: Finding, busy: str, *, published: bool
) -> list[Finding]:
    """A finding for each direction; for published figures only for those that exist. `link`: the link's own finding."""
    return [
        _copy(evidence, subject, gpu, what, reached, link, busy, published=published)
        for what, reached in gpu.host.items()
        if not (published and isinstance(reached, Missing) and reached.reason == "not_recorded")
    ]


def _copy(
    evidence: Evidence, subject: str, gpu: BandwidthGpu, what: str, reached: Figure, link: Finding, busy: str, *,
    published: bool,
) -> Finding:  # fmt: skip
    prop = what.replace(" ", "_")
    if isinstance(reached, Missing):
        missing = f"the copy {what} of {subject}"
        return unknown(subject, prop, reached, expected="measured", what=missing, remedy="measure again")
    shown = f"{reached:.1f} GB/s"
    if busy:
        return Finding(subject, prop, Status.UNKNOWN, "measured alone", shown, busy, ALONE)
    if gpu.pinned is False:
        why = "the copy was made from pageable memory of the host: that is the speed of the CPU's copy, not of the link"
        return Finding(subject, prop, Status.UNKNOWN, "from pinned memory", shown, why, "measure it from pinned memory")
    if reached <= 0:
        why = f"{reached:g} GB/s is not a possible speed: nothing was measured"
        return Finding(subject, prop, Status.UNKNOWN, "a speed", shown, why, "measure again")
    board, least = evidence.board(gpu), floor(evidence, FLOOR)
    if least is None:
        remedy = f"say {FLOOR} under thresholds in the profile"
        return Finding(subject, prop, Status.UNKNOWN, "a floor", shown, "the profile sets no floor", remedy)
    if board and is_chip_to_chip(board):
        return _over_chip_to_chip(evidence, subject, prop, what, reached, board, least)
    return _over_pcie(evidence, subject, gpu, what, reached, link, least, published=published)


def _over_chip_to_chip(
    evidence: Evidence, subject: str, prop: str, what: str, reached: float, board: Board, least: Floor
) -> Finding:
    healthy, most = healthy_chip_to_chip(board), chip_to_chip_carries()
    if reached > ROUNDING * most:
        why = f"NVLink-C2C carries {most:.0f} GB/s in one direction: the measurement is wrong"
        return Finding(subject, prop, Status.UNKNOWN, "a speed", f"{reached:.1f} GB/s", why, "measure again")
    if healthy is None:
        why = "no figure of a healthy board was published"
        return Finding(subject, prop, Status.UNKNOWN, "a floor", f"{reached:.1f} GB/s", why, "compare it with another")
    least = dataclasses.replace(
        least,
        percent=least.percent * healthy.percent / 100,
        source=f"{least.source}: {least.percent:g} % of what healthy boards reach",
    )
    limit = healthy_limits(least, healthy if is_shipped(evidence, FLOOR) else None, f"NVLink-C2C of {board.name}")
    percent = 100 * reached / most
    shown, status = f"{reached:.1f} GB/s, {percents(percent, limit.passes)[0]} %", Status(limit.status(percent))
    if status is Status.PASS:
        return Finding(subject, prop, status, limit.of(most, percent), shown)
    why = f"copies {what} reach {reached:.1f} GB/s, and healthy boards reach {healthy.percent * most / 100:.0f}"
    why += limit.beside(status.value)
    return Finding(subject, prop, status, limit.of(most, percent), shown, why, ELSE)


def _over_pcie(
    evidence: Evidence, subject: str, gpu: BandwidthGpu, what: str, reached: float, link: Finding, least: Floor, *,
    published: bool,
) -> Finding:  # fmt: skip
    """FAIL if below the floor of the present link. If only below that of the proper link: the status of `link`."""
    prop, board = what.replace(" ", "_"), evidence.board(gpu)
    facts = links.read(evidence, gpu, board)
    assumed = published and isinstance(gpu.pcie, Missing) and gpu.pcie.reason == "not_recorded"
    narrow = wired_with(board) if assumed else None
    should, most = facts.device, facts.device.gb_per_s
    half = links.Way(should.generation, narrow.width if narrow else None)
    if half.gb_per_s is None or reached > links.PCIE_MOST * half.gb_per_s:
        half, narrow = should, None
    now = half if assumed else facts.now
    # a reading above what the board can do: no copy is compared with it
    if link.status is Status.UNKNOWN and not assumed:
        now = links.capped(now, board)
    present = now.gb_per_s
    if present is None or most is None:
        lacks = "generation and width of the link are not known"
        return Finding(subject, prop, Status.UNKNOWN, "a floor", f"{reached:.1f} GB/s", lacks, "measure again")
    percent = 100 * reached / present
    limit = _limits(evidence, board, now, what, least)
    share = percents(percent, limit.passes)[0]
    shown = f"{reached:.1f} GB/s, {share} %"
    if reached > links.PCIE_MOST * (most if assumed else present):
        recorded, possible = apart(reached, links.PCIE_MOST * present, 1)
        why = (
            f"the link ({now}) carries {present:.1f} GB/s, of which copies get {possible} at most, and {recorded} are"
            " recorded: it was read while it was idle, or the speed is wrong"
        )
        return Finding(subject, prop, Status.UNKNOWN, limit.of(present, percent), shown, why, "measure again")
    status = Status(limit.status(percent))
    wide = _limits(evidence, board, should, what, least)
    if status is Status.PASS and 100 * reached / most >= wide.passes:
        return Finding(subject, prop, status, limit.of(present, percent), shown)
    if status is Status.PASS:
        return _narrow(subject, prop, what, reached, now, should, link, wide, usual=narrow.where if narrow else "")
    sentence = f"copies {what} reach {reached:.1f} of the {present:.1f} GB/s that the link carries ({share} %)"
    why = sentence + _one_way(gpu, what, reached) + limit.beside(status.value)
    return Finding(subject, prop, status, limit.of(present, percent), shown, why, ELSE)


def _limits(evidence: Evidence, board: Board | None, way: links.Way, what: str, least: Floor) -> Limits:
    healthy = healthy_pcie(way.generation or 0, KEYS[what]) if is_shipped(evidence, FLOOR) else None
    return healthy_limits(least, healthy, f"{board.name if board else 'a link'} at {way}")


def _narrow(
    subject: str, prop: str, what: str, reached: float, now: links.Way, should: links.Way, link: Finding, wide: Limits,
    *, usual: str,
) -> Finding:  # fmt: skip
    """The finding if the copy is as fast as the link, but the link is less than it should be: never PASS."""
    most = should.gb_per_s or 0.0
    known = link.status if link.status in (Status.FAIL, Status.UNKNOWN) else Status.WARN
    why = f"copies {what} reach {reached:.1f} GB/s: all that {now} carries, and the GPU has {should} ({most:.1f} GB/s)"
    if usual:
        why += f"; {usual} wires this board so, which is no fault"
    percent = 100 * reached / most
    shown = f"{reached:.1f} GB/s, {percents(percent, wide.passes)[0]} % of the GPU's own link"
    remedy = link.remedy or links.RESEAT
    return Finding(subject, prop, Status.WARN if usual else known, wide.of(most, percent), shown, why, remedy)


def _credible(gpu: BandwidthGpu, what: str) -> float | None:
    """The speed; None if the link cannot be that fast: an impossible figure must not make other GPUs look slow."""
    reached, carries = speed(gpu.host.get(what)), links.rate(gpu.pcie)
    return None if reached and carries and reached > links.PCIE_MOST * carries else reached


def _one_way(gpu: BandwidthGpu, what: str, reached: float) -> str:
    other = next((figure for name, figure in gpu.host.items() if name != what), None)
    faster = speed(other)
    if faster is None or reached >= (1 - ONE_WAY_PERCENT / 100) * faster:
        return ""
    return f", and the other direction {faster:.1f}: it is the host's memory or its placement, not the link"


def against_best(subject: str, gpu: BandwidthGpu, kin: Sequence[BandwidthGpu]) -> list[Finding]:
    """A comparison with GPUs of the same board in this machine; [] if there are none."""
    prop, expected = "host_against_best", f"less than {NEIGHBOUR_WARN_PERCENT:g} % below the best of its board"
    behind = [
        (100 * (1 - mine / best), f"{what} {mine:.1f} of {best:.1f} GB/s")
        for what in gpu.host
        for mine, best in [(_credible(gpu, what), max((_credible(other, what) or 0.0 for other in kin), default=0.0))]
        if mine and best
    ]
    if not behind:
        return []
    percent, shown = max(behind)
    if percent < NEIGHBOUR_WARN_PERCENT:
        return [Finding(subject, prop, Status.PASS, expected, shown)]
    why = f"copies {shown.split(' GB/s')[0]} GB/s: {percent:.0f} % slower than those of the best GPU of its board here"
    status = Status.FAIL if percent >= NEIGHBOUR_FAIL_PERCENT else Status.WARN
    remedy = f"compare the links of the two (nvidia-smi -q, PCI); {NUMA}"
    return [Finding(subject, prop, status, expected, shown, why, remedy)]
