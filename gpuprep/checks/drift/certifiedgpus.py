"""Are these the certified GPUs, in the same order, in the same slots, with the same properties?

Of facts of which more (or less) is better, a worse reading is a difference like any other. A better reading is WARN: as
long as the worse one stays certified, a later loss of the better one would not be noticed. Of facts without an order
(VBIOS, ECC mode, versions) any change is a difference.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gpuprep.agent.tuning.tunemig import shown_instances
from gpuprep.catalogue.xids import RESET
from gpuprep.checks.common import RESTART, skip
from gpuprep.checks.drift.certified import AGAIN, CERTIFY, Certified, Difference, Unread
from gpuprep.checks.links import nvlinks
from gpuprep.desired import host_rules
from gpuprep.desired.state import Wanted
from gpuprep.records import NOT_READ, Finding, GpuFacts, Missing, PcieLink, RemappedRows, RetiredPages, Snapshot, Status

OTHER_MACHINE = "the certified figures were measured on other hardware"
MODES = {True: "enabled", False: "disabled"}


def findings(snapshot: Snapshot, certified: Certified) -> list[Finding]:
    """gpus.identity, gpus.order, and gpu N.as_certified for each GPU that is still there."""
    before, now = certified.facts.gpus, snapshot.gpus
    if isinstance(before, Missing):
        reason = "the certified run did not read the GPUs"
        return [skip("gpus", "identity", expected="as certified", actual="not compared", reason=reason)]
    if isinstance(now, Missing):
        return [_on_the_bus(snapshot, before, certified, now)]
    there = {gpu.uuid: gpu for gpu in now if gpu.uuid}
    pairs = [(gpu, there[gpu.uuid]) for gpu in before if gpu.uuid in there]
    findings = [_identity(before, now, certified), _order(pairs, certified)]
    for was, is_now in sorted(pairs, key=lambda pair: pair[1].index):
        findings += _gpu(was, is_now, certified)
    return findings


def planned(wanted: Wanted, snapshot: Snapshot) -> list[Finding]:
    """Without a certified run: the plan file is for certain GPUs, so a host without GPUs must not pass."""
    seen = {device.address for device in host_rules.nvidia_gpus(snapshot)}
    absent = [gpu for gpu in wanted.gpus if gpu.pci_address not in seen]
    if len(seen) >= len(wanted.gpus):
        return []
    named = ", ".join(f"{gpu.name} at {gpu.pci_address}" for gpu in absent)
    why = f"{named} is not on the PCI bus any more" if len(absent) == 1 else f"not on the PCI bus any more: {named}"
    expected, actual = f"{len(wanted.gpus)} on the PCI bus", f"{len(seen)} on the PCI bus"
    return [Finding("gpus", "identity", Status.FAIL, expected, actual, why, _find_it(len(absent)))]


def described(gpu: GpuFacts) -> str:
    serial = "" if isinstance(gpu.serial, Missing) else f", serial {gpu.serial}"
    return f"{gpu.name} {gpu.uuid}{serial} at {gpu.pci_address}"


def _on_the_bus(snapshot: Snapshot, before: Sequence[GpuFacts], certified: Certified, now: Missing) -> Finding:
    """Compare only the PCI bus, because NVML does not answer. gpu N.settings reports the rest."""
    seen = {device.address for device in snapshot.pci_gpus}
    absent = [f"{described(gpu)} is not on the PCI bus any more" for gpu in before if gpu.pci_address not in seen]
    if absent:
        return certified.difference("gpus", "identity", absent, "", why=OTHER_MACHINE, remedy=_find_it(len(absent)))
    reported_by = [f"gpu {index}.settings" for index in range(len(snapshot.pci_gpus))]
    return certified.missing("gpus", "identity", now, reported_by=reported_by, what="which GPUs these are")


def _find_it(count: int) -> str:
    still = "it is" if count == 1 else "they are"
    return f"{RESTART}; if {still} still gone, ask the provider for another one; {CERTIFY}, certify what is there now"


def _identity(before: Sequence[GpuFacts], now: Sequence[GpuFacts], certified: Certified) -> Finding:
    """Compare UUIDs. A GPU that has fallen off the bus has no UUID: gpu N.on_the_bus reports that."""
    lost = {gpu.index for gpu in now if not gpu.uuid}
    old, new = {gpu.uuid for gpu in before}, {gpu.uuid for gpu in now if gpu.uuid}
    come = [gpu for gpu in now if gpu.uuid and gpu.uuid not in old]
    differences = []
    for gpu in before:
        if gpu.uuid in new or (gpu.index in lost and len(before) == len(now)):
            continue
        instead = next((other for other in come if other.pci_address == gpu.pci_address), None)
        if instead is not None:
            come.remove(instead)
            differences.append(f"gpu {gpu.index} was {described(gpu)}, is {described(instead)}")
        else:
            differences.append(f"gpu {gpu.index} was {described(gpu)}, is not there")
    more = [f"{described(gpu)} was not there, is gpu {gpu.index}" for gpu in come]
    if more and not differences:
        why = "the added GPU was never measured"
        return certified.difference(
            "gpus", "identity", more, "", reported_by=["gpus.count"], why=why, remedy=HOLD_TO_BETTER,
            status=Status.WARN,
        )  # fmt: skip
    differences += more
    remedy = _find_it(1) if len(now) < len(before) else (
        f"{CERTIFY}, measure and certify the GPUs that are there now; a stop and a start may have moved a cloud "
        "machine to another computer"
    )  # fmt: skip
    shown = "; ".join(f"gpu {gpu.index} {described(gpu)}" for gpu in now)
    return certified.difference(
        "gpus", "identity", differences, shown, reported_by=["gpus.count"], why=OTHER_MACHINE, remedy=remedy
    )  # fmt: skip


def _order(pairs: Sequence[tuple[GpuFacts, GpuFacts]], certified: Certified) -> Finding:
    """Compare the order of the GPUs that are still there: a missing GPU changes the numbers, not the order."""
    ranks = {gpu.uuid: rank for rank, gpu in enumerate(sorted((now for _, now in pairs), key=lambda gpu: gpu.index))}
    old = {gpu.uuid: rank for rank, gpu in enumerate(sorted((was for was, _ in pairs), key=lambda gpu: gpu.index))}
    moved = [
        f"{was.uuid} was gpu {was.index} at {was.pci_address}, is gpu {now.index} at {now.pci_address}"
        for was, now in pairs
        if ranks[was.uuid] != old[was.uuid] or was.pci_address != now.pci_address
    ]
    why = "programs that choose a GPU by number or address get another one"
    return certified.difference("gpus", "order", moved, ", ".join(now.uuid for _, now in pairs), why=why)


def _gpu(was: GpuFacts, now: GpuFacts, certified: Certified) -> list[Finding]:
    subject = f"gpu {now.index}"
    comparisons = [
        _reading(subject, "serial", was.serial, now.serial, certified, what="serial number"),
        _reading(subject, "vbios", was.vbios, now.vbios, certified, what="VBIOS"),
        _reading(
            subject, "ecc_mode", _mode(was.ecc_current), _mode(now.ecc_current), certified, what="ECC",
            reported_by=[f"{subject}.ecc"],
            remedy=f"`sudo nvidia-smi -i {now.index} -e {int(was.ecc_current is True)}`, then reboot",
        ),
        *_mig(subject, was, now, certified),
        _silent(subject, was, now, certified),
    ]  # fmt: skip
    differing = [finding for finding in comparisons if finding is not None]
    differing += ordered(subject, was, now, certified)
    if differing:
        return differing
    return [certified.difference(subject, "as_certified", [], "same VBIOS, ECC and MIG mode, PCIe link, memory")]


def _mig(subject: str, was: GpuFacts, now: GpuFacts, certified: Certified) -> list[Finding | None]:
    """Nothing where the profile asks for MIG or for whole GPUs: it decides, and may ask for other instances by now."""
    if any(finding.key == f"{subject}.mig" and finding.role for finding in certified.by_profile):
        return []
    if was.mig_current == now.mig_current:
        parts = (_instances(was), _instances(now))
        return [_reading(subject, "mig_certified", *parts, certified, what="the MIG layout")]
    modes = (_mode(was.mig_current), _mode(now.mig_current))
    return [_reading(subject, "mig_mode", *modes, certified, what="MIG", reported_by=[f"{subject}.mig"])]


def _instances(gpu: GpuFacts) -> str | Missing:
    """ "7 x 1g.10gb"."""
    if isinstance(gpu.mig_devices, Missing):
        return gpu.mig_devices
    return shown_instances(device.profile for device in gpu.mig_devices)


def _mode(reading: object) -> str | Missing | None:
    return reading if isinstance(reading, Missing) else MODES.get(bool(reading))


def _reading(
    subject: str, prop: str, was: object, now: object, certified: Certified, *, what: str,
    reported_by: Sequence[str] = (), remedy: str = AGAIN,
) -> Finding | None:  # fmt: skip
    """The finding for one reading; None if it is as certified, or if the certified run did not know it."""
    if isinstance(was, Missing) or was == now:
        return None
    if isinstance(now, Missing):
        if now == NOT_READ:
            return None
        return certified.missing(
            subject, prop, now, reported_by=[*reported_by, f"{subject}.on_the_bus"], what=f"{what} of {subject}"
        )
    differences = [f"{what} of {subject} was {was}, is {now}"]
    return certified.difference(subject, prop, differences, "", reported_by=reported_by, remedy=remedy)


def _silent(subject: str, was: GpuFacts, now: GpuFacts, certified: Certified) -> Finding | None:
    """A finding if counters that drift compares can no longer be read. ECC errors: see checks/health."""
    if isinstance(was.throttled, Missing) or not isinstance(now.throttled, Missing):
        return None
    what, reported_by = "the time with clocks lowered by heat", [f"{subject}.held_down"]
    return _reading(subject, "throttled", was.throttled, now.throttled, certified, what=what, reported_by=reported_by)


# ---------------------------------------------------------------- what of a GPU has an order

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
    # Drivers differ in how much memory they reserve.
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
        f"{RESTART}; if that does not help, show the provider this report",
    ),
    "nvlinks_certified": Group(
        ("nvlinks",),
        "GPUs exchange data more slowly",
        nvlinks.LOOK,
    ),
    "memory_certified": Group(
        ("ecc", "mig"),
        "programs that fitted may not fit any more",
        f"{RESET}; if that does not help, ask the provider for another GPU",
    ),
    "memory_defects": Group(
        ("retired_pages", "remapped_rows"),
        "the memory had defects, and these places are no longer used; more of them mean that the memory is failing",
        f"to accept this state: {CERTIFY}; if more defects come, ask the provider for another GPU",
    ),
}
# For a GPU that is present, these are found only if they differ; if nothing differs, there is one `as_certified`.
ONLY_WHERE_DIFFERENT = (
    "serial", "vbios", "ecc_mode", "mig_mode", "mig_certified", "throttled", *GROUPS,
)  # fmt: skip


def ordered(subject: str, was: GpuFacts, now: GpuFacts, certified: Certified) -> list[Finding]:
    """A finding for each group in which a fact is worse, better or no longer readable."""
    group_findings = (_compared(prop, group, subject, was, now, certified) for prop, group in GROUPS.items())
    return [finding for finding in group_findings if finding is not None]


def _compared(
    prop: str, group: Group, subject: str, was: GpuFacts, now: GpuFacts, certified: Certified
) -> Finding | None:  # fmt: skip
    reported_by = [f"{subject}.{name}" for name in group.reported_by]
    worse, better, unread = [], [], []
    for fact in (ordered for ordered in FACTS if ordered.prop == prop):
        before, today = fact.read(was), fact.read(now)
        if before is None or isinstance(before, Missing) or today is None or today == NOT_READ:
            continue
        if isinstance(today, Missing):
            unread.append(Unread(f"{fact.what} of {subject}", today, [*reported_by, f"{subject}.on_the_bus"]))
        elif (order := _rank(fact, before, today)) < 0:
            worse.append(_text(fact, before, today))
        elif order > 0:
            better.append(_text(fact, before, today))
    if worse or unread:
        why = group.why + (f"; better than certified: {'; '.join(better)}" if better else "")
        differences = [Difference(text, reported_by) for text in worse]
        unread = _once(was, now, prop, subject, unread)
        return certified.judged(subject, prop, differences, "", unread=unread, why=why, remedy=group.remedy)
    if better and prop != "memory_defects":  # a reset finished the pending repair: no reason to certify again
        return certified.difference(
            subject, prop, better, "", why=HELD_TO_WORSE, remedy=HOLD_TO_BETTER, status=Status.WARN
        )  # fmt: skip
    return None


def _once(was: GpuFacts, now: GpuFacts, prop: str, subject: str, unread: list[Unread]) -> list[Unread]:
    """`unread`, with one entry for a whole link instead of one for each of its readings."""
    if prop == "pcie" and isinstance(now.pcie, Missing) and not isinstance(was.pcie, Missing):
        return [Unread(f"the PCIe link of {subject}", now.pcie, unread[0].reported_by)]
    return unread


def _rank(fact: Ordered, before: object, today: object) -> float:
    """Above zero: better than when certified; below zero: worse."""
    if not isinstance(before, (int, float)) or not isinstance(today, (int, float)):
        return 0.0
    grown = float(today - before)
    if abs(grown) <= abs(before) * fact.slack_percent / 100.0:
        return 0.0
    return grown if fact.better == MORE else -grown


def _text(fact: Ordered, before: object, today: object) -> str:
    return fact.what if isinstance(today, bool) and today else f"{fact.what}: was {before}, is {today}"
