"""Two recorded runs side by side: what changed in facts, in findings and in figures. It never judges.

compare(one, two) -> Comparison. The runs may be of different hosts; GPUs are then paired by their index.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpuprep.checks.baseline import NOBODY_KNOWS, QUICK, figures_of
from gpuprep.records import GpuFacts, Missing, RunRecord, Snapshot, Status, to_json_value
from gpuprep.records.baseline import BaselineKey, Figures
from gpuprep.records.findings import PROBLEMS, findings_of, of_figures
from gpuprep.records.recorded_options import RecordedOptions

# Facts that change from moment to moment, or only give the moment.
MOMENTARY = {
    "taken_at", "schema_version", "disk_free_mib", "provenance", "is_root", "boot_id", "uptime_seconds",
    "graphics_clock_mhz", "memory_clock_mhz", "video_clock_mhz", "temperature_c", "event_reasons", "power_watts",
    "memory_used_mib", "performance_state", "utilization", "processes", "throttled", "generation", "holders",
}  # fmt: skip
# The field that identifies an object of a list.
NAMED_BY = ("index", "address", "uuid", "path", "module", "code")
ABSENT = "absent"
DEPTH = ""  # the key of "quick" or "full" among versions: no library has this name
NAMED = 3  # figures named in one sentence


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
    percent: float  # by which the second run is higher than the first


@dataclass(frozen=True)
class NotCompared:
    """Figures of a run that were not compared, and why."""

    gpu: str  # "gpu 0"; "": of all GPUs
    probe: str  # "": of all probes
    figures: tuple[str, ...]  # (): all that this probe measured
    reasons: tuple[str, ...]  # of REASONS
    words: str  # a sentence for people


# Why figures were not compared.
NOT_MEASURED = "not measured"
OTHER_GPU = "other GPU"
OTHER_VERSIONS = "other versions"
QUICK_AND_FULL = "quick and full"
SIMULATED_AND_REAL = "simulated and measured"
REASONS = (NOT_MEASURED, OTHER_GPU, OTHER_VERSIONS, QUICK_AND_FULL, SIMULATED_AND_REAL)


@dataclass(frozen=True)
class Comparison:
    notes: tuple[str, ...]  # what a reader must know: other hosts, other profiles, simulated
    facts: tuple[FactChange, ...]
    findings: tuple[FindingChange, ...]
    figures: tuple[FigureChange, ...]  # all that can be compared, the greatest loss first
    not_comparable: tuple[str, ...]  # sentences: which figures, and why
    not_compared: tuple[NotCompared, ...] = ()  # the same for programs


def compare(first: RunRecord, second: RunRecord) -> Comparison:
    """What is different in `second`; nothing if both are the same run."""
    here, there = first.after or first.before, second.after or second.before
    notes = list(_notes(first, second, here, there))
    facts = _facts(here, there) if here and there else ()
    figures, why_not = _figures(first, second, here, there)
    reasons = tuple(f"{why.gpu} {why.probe}".strip() + (": " if why.gpu else "") + why.words for why in why_not)
    return Comparison(
        tuple(notes), tuple(facts), tuple(_findings(first, second)), tuple(figures), reasons, tuple(why_not)
    )


def _notes(first: RunRecord, second: RunRecord, here: Snapshot | None, there: Snapshot | None) -> Iterator[str]:
    if first.host != second.host:
        names = {name for record in (first, second) if record.history for name in record.history.also_called}
        same = first.host in names or second.host in names
        yield f"{'two names of one host' if same else 'different hosts'}: {first.host} and {second.host}"
    if first.source is not second.source:
        yield f"run {first.run_id} is {first.source.value} and run {second.run_id} {second.source.value}"
    if first.command != second.command:
        yield f"different commands: {first.command} and {second.command} do not check the same"
    depths = [RecordedOptions.read(record.options).quick for record in (first, second)]
    if first.measurements and second.measurements and set(depths) == {False, True}:
        quick, full = (first, second) if depths[0] else (second, first)
        yield f"run {quick.run_id} is quick and run {full.run_id} full: what they measured is not compared"
    if first.profile and second.profile and first.profile.sha256 != second.profile.sha256:
        if first.profile.name == second.profile.name:
            yield f"profile {first.profile.name} was edited in between: its findings may have other thresholds"
        else:
            judged = "each run was judged by its own"
            yield f"different profiles: {first.profile.name} and {second.profile.name}; {judged}"
    if first.run_id == second.run_id:
        yield f"both are run {first.run_id}"
    for record, snapshot in ((first, here), (second, there)):
        if snapshot is None and (record is first or first.run_id != second.run_id):
            why = "its figures were measured elsewhere" if of_figures(record) else "it ended before any were read"
            yield f"run {record.run_id} has no facts: {why}"


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
    for name, part in _parts(value):
        if name not in MOMENTARY:
            yield from _flat(_join(path, name), part)


def _nested(value: Any) -> bool:
    if isinstance(value, tuple):
        return any(dataclasses.is_dataclass(entry) for entry in value)
    return dataclasses.is_dataclass(value) or isinstance(value, Mapping)


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        yield from ((str(name), part) for name, part in value.items())
    elif isinstance(value, tuple):
        for place, entry in enumerate(value):
            known = next((getattr(entry, name) for name in NAMED_BY if hasattr(entry, name)), place)
            yield str(known), entry
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
        return ", ".join(str(entry) for entry in plain) or "none"
    return str(plain)


# ---------------------------------------------------------------- findings


def _findings(first: RunRecord, second: RunRecord) -> Iterator[FindingChange]:
    was, now = _by_key(first), _by_key(second)
    changes = []
    for key in dict.fromkeys([*was, *now]):
        before, after = was.get(key), now.get(key)
        status, then = before.status if before else None, after.status if after else None
        if status is not then:
            actual = (before.actual if before else "", after.actual if after else "")
            changes.append(FindingChange(key, _kind(status, then), status, then, *actual))
    order = ("newly failing", "changed", "newly passing", "only in two", "only in one")
    yield from sorted(changes, key=lambda change: order.index(change.kind))


def _kind(first: Status | None, second: Status | None) -> str:
    if second is Status.FAIL:
        return "newly failing"
    if first in PROBLEMS and second is Status.PASS:
        return "newly passing"
    if first is None:
        return "only in two"
    return "only in one" if second is None else "changed"


def _by_key(record: RunRecord) -> dict[str, Any]:
    return {finding.key: finding for finding in findings_of(record)}


# ---------------------------------------------------------------- figures


def _figures(
    first: RunRecord, second: RunRecord, here: Snapshot | None, there: Snapshot | None
) -> tuple[list[FigureChange], list[NotCompared]]:
    was, now = _measured(first, here), _measured(second, there)
    if not was or not now:
        silent = [record.run_id for record, figures in ((first, was), (second, now)) if not figures]
        return [], [
            NotCompared("", "", (), (NOT_MEASURED,), f"run {run_id} measured nothing that can be compared")
            for run_id in dict.fromkeys(silent)
        ]
    if first.source is not second.source:
        words = f"figures of a {first.source.value} run and a {second.source.value} one are not compared"
        return [], [NotCompared("", "", (), (SIMULATED_AND_REAL,), words)]
    figure_changes: list[FigureChange] = []
    why_not: list[NotCompared] = []
    gpus_here, gpus_there = _gpus(here), _gpus(there)
    for uuid in dict.fromkeys(key.gpu_uuid for key in was):
        label, other, why, reason = _pair(uuid, gpus_here, gpus_there, {key.gpu_uuid for key in now})
        if other is None:
            why_not.append(NotCompared(label, "", (), (reason,), why))
            continue
        for probe in dict.fromkeys(key.probe for key in was if key.gpu_uuid == uuid):
            changes, left = _of_probe(label, probe, _versions(was, uuid, probe), _versions(now, other, probe))
            figure_changes += changes
            why_not += left
        why_not += [
            NotCompared(label, probe, (), (NOT_MEASURED,), f"run {first.run_id} did not measure it")
            for probe in dict.fromkeys(key.probe for key in now if key.gpu_uuid == other)
            if not _versions(was, uuid, probe)
        ]
    return sorted(figure_changes, key=lambda change: change.percent), why_not


def _measured(record: RunRecord, snapshot: Snapshot | None) -> Mapping[BaselineKey, Figures]:
    version = snapshot.agent_version if snapshot else record.gpuprep_version
    return figures_of({result.probe: result.values for result in record.measurements}, version)


def _gpus(snapshot: Snapshot | None) -> Sequence[GpuFacts]:
    return snapshot.gpus if snapshot is not None and not isinstance(snapshot.gpus, Missing) else ()


def _pair(
    uuid: str, here: Sequence[GpuFacts], there: Sequence[GpuFacts], measured: set[str]
) -> tuple[str, str | None, str, str]:
    """The GPU's name, the UUID of its counterpart or None; why there is none, in words and as one of REASONS."""
    mine = next((gpu for gpu in here if gpu.uuid == uuid), None)
    label = f"gpu {mine.index}" if mine else uuid
    if uuid in measured:
        return label, uuid, "", ""
    other = next((gpu for gpu in there if mine is not None and gpu.index == mine.index), None)
    if mine is None:
        return label, None, "the facts do not say which board this is, and the other run has no such GPU", OTHER_GPU
    if other is None:
        return label, None, "the other run has no such GPU", OTHER_GPU
    if (mine.name, mine.pci_device_id) != (other.name, other.pci_device_id):
        return label, None, f"{mine.name} in one run and {other.name} in the other", OTHER_GPU
    if other.uuid not in measured:
        return label, None, "the other run did not measure it", NOT_MEASURED
    return label, other.uuid, "", ""


def _versions(measured: Mapping[BaselineKey, Figures], uuid: str, probe: str) -> dict[str, Figures]:
    return {key.versions: value for key, value in measured.items() if (key.gpu_uuid, key.probe) == (uuid, probe)}


def _of_probe(
    label: str, probe: str, was: Mapping[str, Figures], now: Mapping[str, Figures]
) -> tuple[list[FigureChange], list[NotCompared]]:
    if not now:
        return [], [NotCompared(label, probe, (), (NOT_MEASURED,), "the other run did not measure it")]
    shared = [versions for versions in was if versions in now]
    if not shared:
        return [], [NotCompared(label, probe, (), *_other_versions(next(iter(was)), next(iter(now))))]
    changes = [
        FigureChange(label, probe, name, before, now[versions][name], 100.0 * (now[versions][name] / before - 1.0))
        for versions in shared
        for name, before in was[versions].items()
        if name in now[versions] and before > 0
    ]
    alone = [
        (which, tuple(name for versions in shared for name in mine[versions] if name not in other[versions]))
        for which, mine, other in (("one", was, now), ("two", now, was))
    ]
    left = [
        NotCompared(label, probe, names, (NOT_MEASURED,), f"only run {which} measured {_named(names)}")
        for which, names in alone
        if names
    ]
    return changes, left


def _named(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more


def _other_versions(was: str, now: str) -> tuple[tuple[str, ...], str]:
    """Why measurements with these two versions are not compared: one of REASONS, and a sentence."""
    before, after = _parted(was), _parted(now)
    differ = [name for name in dict.fromkeys([*before, *after]) if before.get(name) != after.get(name)]
    reasons, versions = [], []
    if DEPTH in differ:
        reasons.append(QUICK_AND_FULL)
        versions.append(f"{before[DEPTH]} in one, {after[DEPTH]} in two")
    if others := [name for name in differ if name != DEPTH]:
        reasons.append(OTHER_VERSIONS)
        versions += [f"{name} {before.get(name, ABSENT)} in one, {after.get(name, ABSENT)} in two" for name in others]
    return tuple(reasons), "; ".join(versions)


def _parted(versions: str) -> dict[str, str]:
    """ "gpuprep 0.1.0, cublasLt 13.1.0, quick" ► each by its name; DEPTH is whether it was quick."""
    first, *rest = versions.split(", ")
    depth = rest.pop() if rest and rest[-1] in (QUICK, NOBODY_KNOWS) else "full"
    return {DEPTH: depth, **{name: version for name, _, version in (part.partition(" ") for part in (first, *rest))}}
