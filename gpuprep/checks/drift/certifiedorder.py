"""Facts of a GPU of which more (or less) is better: is each as good as when it was certified? Pure.

A worse reading is a difference like any other. A better reading is WARN: as long as the worse one stays certified, a
later loss of the better one would not be noticed. Facts without an order (VBIOS, ECC mode, versions) are compared by
certifiedgpus.py and certifiedsystem.py: there any change is a difference.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gpuprep.catalogue.xids import RESET
from gpuprep.checks.common import RESTART
from gpuprep.checks.drift.certified import CERTIFY, Certified, Difference, Unread
from gpuprep.checks.links import nvlinks
from gpuprep.records import NOT_READ, Finding, GpuFacts, Missing, PcieLink, RemappedRows, RetiredPages, Status

MORE, LESS = "more", "less"
HELD_TO_WORSE = "better than certified; until the host is certified again, nobody notices if the worse state comes back"
HOLD_TO_BETTER = (
    "`gpuprep validate HOST --profile PROFILE`: if it passes, the host is compared with its present state from then on"
)


@dataclass(frozen=True)
class Ordered:
    """One fact. `read` returns a number, a bool, or Missing."""

    prop: str  # of the finding; several facts may share one
    what: str
    better: str  # MORE | LESS
    read: Callable[[GpuFacts], object]
    slack_percent: float = 0.0  # a difference up to this is none


@dataclass(frozen=True)
class Group:
    """A group of facts with one finding. `reported_by`: properties of findings that may report the same."""

    reported_by: tuple[str, ...]
    why: str
    remedy: str


def _pcie(name: str) -> Callable[[GpuFacts], object]:
    """A function that reads PCIe lanes or the highest generation: the present one falls on an idle link."""
    return lambda gpu: getattr(gpu.pcie, name) if isinstance(gpu.pcie, PcieLink) else gpu.pcie


def _pages(name: str) -> Callable[[GpuFacts], object]:
    return lambda gpu: getattr(gpu.retired_pages, name) if isinstance(gpu.retired_pages, RetiredPages) else None


def _rows(name: str) -> Callable[[GpuFacts], object]:
    return lambda gpu: getattr(gpu.remapped_rows, name) if isinstance(gpu.remapped_rows, RemappedRows) else None


def _links_up(gpu: GpuFacts) -> object:
    return gpu.nvlinks if isinstance(gpu.nvlinks, Missing) else sum(gpu.nvlinks)


FACTS = (
    Ordered("pcie", "lanes", MORE, _pcie("width")),
    Ordered("pcie", "lanes at most", MORE, _pcie("max_width")),
    Ordered("pcie", "generation at most", MORE, _pcie("max_generation")),
    Ordered("nvlinks_certified", "NVLinks that are up", MORE, _links_up),
    # Drivers count what they keep for themselves in different ways.
    Ordered("memory_certified", "MiB of memory", MORE, lambda gpu: gpu.memory_total_mib, 3.0),
    Ordered("memory_defects", "pages retired after single-bit errors", LESS, _pages("single_bit")),
    Ordered("memory_defects", "pages retired after double-bit errors", LESS, _pages("double_bit")),
    Ordered("memory_defects", "a page waits to be retired", LESS, _pages("pending")),
    Ordered("memory_defects", "rows remapped after correctable errors", LESS, _rows("correctable")),
    Ordered("memory_defects", "rows remapped after uncorrectable errors", LESS, _rows("uncorrectable")),
    Ordered("memory_defects", "a row waits to be remapped", LESS, _rows("pending")),
    Ordered("memory_defects", "no spare row was left", LESS, _rows("failure")),
)
GROUPS = {
    "pcie": Group(
        ("pcie_link", "pcie_errors"),
        "copies between host and GPU have another speed",
        f"{RESTART}; if it stays so, show the provider this report",
    ),
    "nvlinks_certified": Group(
        ("nvlinks",),
        "GPUs exchange data more slowly",
        nvlinks.LOOK,
    ),
    "memory_certified": Group(
        ("ecc", "mig"),
        "programs that fitted may not fit any more",
        f"{RESET}; if it stays so, ask the provider for another GPU",
    ),
    "memory_defects": Group(
        ("retired_pages", "remapped_rows"),
        "the memory had defects, and these places are no longer used; more of them mean that the memory is failing",
        f"watch it: {CERTIFY}, accept it; if they come again, ask the provider for another GPU",
    ),
}


def findings(subject: str, was: GpuFacts, now: GpuFacts, certified: Certified) -> list[Finding]:
    """A finding for each group in which a fact is worse, better or no longer readable."""
    group_findings = (_group(prop, group, subject, was, now, certified) for prop, group in GROUPS.items())
    return [finding for finding in group_findings if finding is not None]


def _group(
    prop: str, group: Group, subject: str, was: GpuFacts, now: GpuFacts, certified: Certified
) -> Finding | None:  # fmt: skip
    reported_by = [f"{subject}.{name}" for name in group.reported_by]
    worse, better, unread = [], [], []
    for fact in (ordered for ordered in FACTS if ordered.prop == prop):
        before, today = fact.read(was), fact.read(now)
        if _unknown(before) or today is None or today == NOT_READ:
            continue
        if isinstance(today, Missing):
            unread.append(Unread(f"{fact.what} of {subject}", today, [*reported_by, f"{subject}.on_the_bus"]))
        elif (order := _order(fact, before, today)) < 0:
            worse.append(_text(fact, before, today))
        elif order > 0:
            better.append(_text(fact, before, today))
    if worse or unread:
        why = group.why + (f"; better than certified: {'; '.join(better)}" if better else "")
        differences = [Difference(text, reported_by) for text in worse]
        unread = _once(was, now, prop, subject, unread)
        return certified.judged(subject, prop, differences, "", unread=unread, why=why, remedy=group.remedy)
    if better and prop != "memory_defects":  # a reset did what was still to do: nothing to hold the host to
        return certified.same(
            subject, prop, better, "", why=HELD_TO_WORSE, remedy=HOLD_TO_BETTER, status=Status.WARN
        )  # fmt: skip
    return None


def _once(was: GpuFacts, now: GpuFacts, prop: str, subject: str, unread: list[Unread]) -> list[Unread]:
    """`unread`, with one entry for a whole link instead of one for each of its readings."""
    if prop == "pcie" and isinstance(now.pcie, Missing) and not isinstance(was.pcie, Missing):
        return [Unread(f"the PCIe link of {subject}", now.pcie, unread[0].reported_by)]
    return unread


def _unknown(reading: object) -> bool:
    return reading is None or isinstance(reading, Missing)


def _order(fact: Ordered, before: object, today: object) -> float:
    """Above zero: better than when certified; below zero: worse."""
    if not isinstance(before, (int, float)) or not isinstance(today, (int, float)):
        return 0.0
    grown = float(today - before)
    if abs(grown) <= abs(before) * fact.slack_percent / 100.0:
        return 0.0
    return grown if fact.better == MORE else -grown


def _text(fact: Ordered, before: object, today: object) -> str:
    return fact.what if isinstance(today, bool) and today else f"{fact.what}: was {before}, is {today}"
