"""Two recorded runs side by side: what changed in facts, in findings and in figures. Pure; it never judges.

compare(one, two) -> Comparison. The runs may be of different hosts; GPUs are then paired by their index.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpuprep.checks.baseline import figures_of
from gpuprep.records import GpuFacts, Missing, RunRecord, Snapshot, Status, to_json_value
from gpuprep.records.baseline import BaselineKey, Figures
from gpuprep.records.findings import PROBLEMS, findings_of

# Facts that differ from one moment to the next, or only say which moment it was.
MOMENTARY = {
    "taken_at", "schema_version", "disk_free_mib", "provenance", "is_root", "boot_id", "uptime_seconds",
    "graphics_clock_mhz", "memory_clock_mhz", "video_clock_mhz", "temperature_c", "event_reasons", "power_watts",
    "memory_used_mib", "performance_state", "utilization", "processes", "throttled", "generation",
}  # fmt: skip
# By which of its fields an object of a list is known.
NAMED_BY = ("index", "address", "uuid", "path", "module", "code")
ABSENT = "absent"


@dataclass(frozen=True)
class FactChange:
    fact: str  # "driver.loaded_version", "packages.nvidia-smi.version", "gpu 0.persistence_mode"
    one: str
    two: str


@dataclass(frozen=True)
class FindingChange:
    key: str  # "gpu 0.persistence_mode"
    kind: str  # "newly failing" | "newly passing" | "changed" | "only in one" | "only in two"
    one: Status | None
    two: Status | None
    actual_one: str
    actual_two: str


@dataclass(frozen=True)
class FigureChange:
    gpu: str  # "gpu 0"
    probe: str
    figure: str
    one: float
    two: float
    percent: float  # by which two is more than one


@dataclass(frozen=True)
class Comparison:
    notes: tuple[str, ...]  # what a reader must know: other hosts, other profiles, simulated
    facts: tuple[FactChange, ...]
    findings: tuple[FindingChange, ...]
    figures: tuple[FigureChange, ...]  # all that can be compared, the greatest loss first
    not_comparable: tuple[str, ...]  # sentences: which figures, and why


def compare(one: RunRecord, two: RunRecord) -> Comparison:
    """What is different in `two`; nothing if both are the same run."""
    here, there = one.after or one.before, two.after or two.before
    notes = list(_notes(one, two, here, there))
    facts = _facts(here, there) if here and there else ()
    figures, why_not = _figures(one, two, here, there)
    return Comparison(tuple(notes), tuple(facts), tuple(_findings(one, two)), tuple(figures), tuple(why_not))


def _notes(one: RunRecord, two: RunRecord, here: Snapshot | None, there: Snapshot | None) -> Iterator[str]:
    if one.host != two.host:
        names = {name for record in (one, two) if record.history for name in record.history.also_called}
        same = one.host in names or two.host in names
        yield f"{'two names of one host' if same else 'different hosts'}: {one.host} and {two.host}"
    if one.source is not two.source:
        yield f"run {one.run_id} is {one.source.value} and run {two.run_id} {two.source.value}"
    if one.command != two.command:
        yield f"different commands: {one.command} and {two.command} do not check the same"
    if one.profile and two.profile and one.profile.sha256 != two.profile.sha256:
        if one.profile.name == two.profile.name:
            yield f"profile {one.profile.name} was edited in between"
        else:
            yield f"different profiles: {one.profile.name} and {two.profile.name}"
    for record, snapshot in ((one, here), (two, there)):
        if snapshot is None:
            yield f"run {record.run_id} has no facts: it ended before any were read"


# ---------------------------------------------------------------- facts


def _facts(here: Snapshot, there: Snapshot) -> Iterator[FactChange]:
    was, now = dict(_flat("", here)), dict(_flat("", there))
    for fact in dict.fromkeys([*was, *now]):
        before, after = was.get(fact, ABSENT), now.get(fact, ABSENT)
        if before != after and not _absent_with_its_owner(fact, was, now):
            yield FactChange(fact, before, after)


def _flat(path: str, value: Any) -> Iterator[tuple[str, str]]:
    """One fact per leaf, as text. An object also has its own line, so a missing object is one change."""
    if isinstance(value, Missing) or not _nested(value):
        yield path, _text(value)
        return
    if path:
        yield path, "present"
    for name, one in _parts(value):
        if name not in MOMENTARY:
            yield from _flat(_join(path, name), one)


def _nested(value: Any) -> bool:
    if isinstance(value, tuple):
        return any(dataclasses.is_dataclass(one) for one in value)
    return dataclasses.is_dataclass(value) or isinstance(value, Mapping)


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        yield from ((str(name), one) for name, one in value.items())
    elif isinstance(value, tuple):
        for place, one in enumerate(value):
            known = next((getattr(one, name) for name in NAMED_BY if hasattr(one, name)), place)
            yield str(known), one
    else:
        yield from ((field.name, getattr(value, field.name)) for field in dataclasses.fields(value))


def _join(path: str, name: str) -> str:
    if path == "gpus":
        return f"gpu {name}"
    return f"{path}.{name}" if path else name


def _absent_with_its_owner(fact: str, was: Mapping[str, str], now: Mapping[str, str]) -> bool:
    """A field of an object that only one run has: reported once, for the object."""
    owner = fact.rpartition(".")[0]
    return bool(owner) and (owner in was) != (owner in now)


def _text(value: Any) -> str:
    if isinstance(value, Missing):
        return f"not read ({value.reason})"
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    plain = to_json_value(value)
    if isinstance(plain, (list, dict)):
        return ", ".join(str(one) for one in plain) or "none"
    return str(plain)


# ---------------------------------------------------------------- findings


def _findings(one: RunRecord, two: RunRecord) -> Iterator[FindingChange]:
    was, now = _by_key(one), _by_key(two)
    found = []
    for key in dict.fromkeys([*was, *now]):
        before, after = was.get(key), now.get(key)
        status, then = before.status if before else None, after.status if after else None
        if status is not then:
            actual = (before.actual if before else "", after.actual if after else "")
            found.append(FindingChange(key, _kind(status, then), status, then, *actual))
    order = ("newly failing", "changed", "newly passing", "only in two", "only in one")
    yield from sorted(found, key=lambda change: order.index(change.kind))


def _kind(one: Status | None, two: Status | None) -> str:
    if two is Status.FAIL:
        return "newly failing"
    if one in PROBLEMS and two is Status.PASS:
        return "newly passing"
    if one is None:
        return "only in two"
    return "only in one" if two is None else "changed"


def _by_key(record: RunRecord) -> dict[str, Any]:
    return {finding.key: finding for finding in findings_of(record)}


# ---------------------------------------------------------------- figures


def _figures(
    one: RunRecord, two: RunRecord, here: Snapshot | None, there: Snapshot | None
) -> tuple[list[FigureChange], list[str]]:
    was, now = _measured(one, here), _measured(two, there)
    if not was or not now:
        silent = [record.run_id for record, figures in ((one, was), (two, now)) if not figures]
        return [], [f"run {run_id} measured nothing that can be compared" for run_id in dict.fromkeys(silent)]
    if one.source is not two.source:
        return [], [f"figures of a {one.source.value} run and a {two.source.value} one are not compared"]
    found: list[FigureChange] = []
    why_not: list[str] = []
    gpus_here, gpus_there = _gpus(here), _gpus(there)
    for uuid in dict.fromkeys(key.gpu_uuid for key in was):
        label, other, why = _pair(uuid, gpus_here, gpus_there, {key.gpu_uuid for key in now})
        if other is None:
            why_not.append(f"{label}: {why}")
            continue
        for probe in dict.fromkeys(key.probe for key in was if key.gpu_uuid == uuid):
            changes, why = _of_probe(label, probe, _versions(was, uuid, probe), _versions(now, other, probe))
            found += changes
            why_not += [f"{label} {probe}: {why}"] if why else []
        why_not += [
            f"{label} {probe}: run {one.run_id} did not measure it"
            for probe in dict.fromkeys(key.probe for key in now if key.gpu_uuid == other)
            if not _versions(was, uuid, probe)
        ]
    return sorted(found, key=lambda change: change.percent), why_not


def _measured(record: RunRecord, snapshot: Snapshot | None) -> Mapping[BaselineKey, Figures]:
    version = snapshot.agent_version if snapshot else record.gpuprep_version
    return figures_of({result.probe: result.values for result in record.measurements}, version)


def _gpus(snapshot: Snapshot | None) -> Sequence[GpuFacts]:
    return snapshot.gpus if snapshot is not None and not isinstance(snapshot.gpus, Missing) else ()


def _pair(
    uuid: str, here: Sequence[GpuFacts], there: Sequence[GpuFacts], measured: set[str]
) -> tuple[str, str | None, str]:
    """The GPU's name, the UUID of its counterpart or None, and why there is none."""
    mine = next((gpu for gpu in here if gpu.uuid == uuid), None)
    label = f"gpu {mine.index}" if mine else uuid
    if uuid in measured:
        return label, uuid, ""
    other = next((gpu for gpu in there if mine is not None and gpu.index == mine.index), None)
    if mine is None or other is None:
        return label, None, "the other run has no such GPU"
    if (mine.name, mine.pci_device_id) != (other.name, other.pci_device_id):
        return label, None, f"{mine.name} in one run and {other.name} in the other"
    if other.uuid not in measured:
        return label, None, "the other run did not measure it"
    return label, other.uuid, ""


def _versions(measured: Mapping[BaselineKey, Figures], uuid: str, probe: str) -> dict[str, Figures]:
    return {key.versions: value for key, value in measured.items() if (key.gpu_uuid, key.probe) == (uuid, probe)}


def _of_probe(
    label: str, probe: str, was: Mapping[str, Figures], now: Mapping[str, Figures]
) -> tuple[list[FigureChange], str]:
    if not now:
        return [], "the other run did not measure it"
    shared = [versions for versions in was if versions in now]
    if not shared:
        return [], f"measured with {'; '.join(was)} and with {'; '.join(now)}"
    found = [
        FigureChange(label, probe, name, before, now[versions][name], 100.0 * (now[versions][name] / before - 1.0))
        for versions in shared
        for name, before in was[versions].items()
        if name in now[versions] and before > 0
    ]
    return found, "" if found else "no figure is in both"
