"""Are these the certified GPUs, in the same order, in the same slots, with the same properties? Pure."""

from __future__ import annotations

from collections.abc import Sequence

from gpuprep.checks.common import RESTART, skip
from gpuprep.checks.drift import certifiedorder
from gpuprep.checks.drift.certified import AGAIN, CERTIFY, Certified
from gpuprep.desired import host_rules
from gpuprep.desired.state import Wanted
from gpuprep.records import NOT_READ, Finding, GpuFacts, Missing, Snapshot, Status

# Of a GPU that is there, these are found only where they differ; all that is equal is one `as_certified`.
ONLY_WHERE_DIFFERENT = (
    "serial", "vbios", "ecc_mode", "mig_mode", "throttled", *certifiedorder.GROUPS,
)  # fmt: skip
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
        return certified.same("gpus", "identity", absent, "", why=OTHER_MACHINE, remedy=_find_it(len(absent)))
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
        return certified.same(
            "gpus", "identity", more, "", reported_by=["gpus.count"], why=why, remedy=certifiedorder.HOLD_TO_BETTER,
            status=Status.WARN,
        )  # fmt: skip
    differences += more
    remedy = _find_it(1) if len(now) < len(before) else (
        f"{CERTIFY}, measure and certify the GPUs that are there now; of a cloud machine a stop and a start may have"
        " moved it to another computer"
    )  # fmt: skip
    shown = "; ".join(f"gpu {gpu.index} {described(gpu)}" for gpu in now)
    return certified.same(
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
    return certified.same("gpus", "order", moved, ", ".join(now.uuid for _, now in pairs), why=why)


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
        _reading(
            subject, "mig_mode", _mode(was.mig_current), _mode(now.mig_current), certified, what="MIG",
            reported_by=[f"{subject}.mig"],
        ),
        _silent(subject, was, now, certified),
    ]  # fmt: skip
    differing = [finding for finding in comparisons if finding is not None]
    differing += certifiedorder.findings(subject, was, now, certified)
    if differing:
        return differing
    return [certified.same(subject, "as_certified", [], "same VBIOS, ECC and MIG mode, PCIe link, memory")]


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
    return certified.same(subject, prop, differences, "", reported_by=reported_by, remedy=remedy)


def _silent(subject: str, was: GpuFacts, now: GpuFacts, certified: Certified) -> Finding | None:
    """A finding if counters can no longer be read that drift compares. ECC errors: see checks/health."""
    if isinstance(was.throttled, Missing) or not isinstance(now.throttled, Missing):
        return None
    what, reported_by = "the time held down by heat", [f"{subject}.held_down"]
    return _reading(subject, "throttled", was.throttled, now.throttled, certified, what=what, reported_by=reported_by)
