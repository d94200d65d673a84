"""What a drift report shows besides findings, for all formats: since when, compared with what, what was repaired."""

from __future__ import annotations

from dataclasses import dataclass

from gpuprep.records import Finding, Missing, NightlyFacts, RunRecord
from gpuprep.records.moments import minute, moment
from gpuprep.records.recorded_options import RecordedOptions
from gpuprep.untrusted.plaintext import one_line

FIRST = "none: this is the first check"
NOT_CERTIFIED = "no run is certified yet: compared with the profile alone"


@dataclass(frozen=True)
class PutBack:
    """One command of --fix and the findings that it was for."""

    what: str
    command: str
    failed: str  # "" where it worked, by its exit code and by the check afterwards
    changes: tuple[str, ...]  # "gpu 0 clocks: 585 MHz -> 1590 MHz"


@dataclass(frozen=True)
class Figure:
    """A measured speed and the baseline's."""

    name: str  # "GPU 0 gemm fp16 8192x8192x8192"
    now: float
    before: float
    run_id: str

    @property
    def percent(self) -> float:
        """More than 100: faster than the baseline."""
        return 100 * self.now / self.before if self.before else 0.0


def since(finding: Finding, now: str) -> str:
    """ "since 2026-11-19 02:31 UTC, 2 nights"; `now`: when the check began. "" if nothing is known."""
    if not finding.since:
        return ""
    if finding.since == now:
        return "first seen now"
    first, last = moment(finding.since), moment(now)
    nights = (last.date() - first.date()).days if first and last else 0
    return f"since {minute(finding.since)}" + (f", {nights} night{'' if nights == 1 else 's'}" if nights > 0 else "")


def compared_with(record: RunRecord) -> list[tuple[str, str]]:
    """Names and values: what the check was compared with, and how."""
    facts = record.drift
    if facts is None:
        return []
    certified, previous = _run(facts.certified_run, facts.certified_at), _run(facts.previous_run, facts.previous_at)
    pairs = [("certified", certified or NOT_CERTIFIED), ("check before", previous or FIRST)]
    if facts.on_host:
        pairs.append(("checked by", "the host itself"))
    if facts.probe_skipped:
        pairs.append(("speed", f"not measured: {facts.probe_skipped}"))
    if RecordedOptions.read(record.options).fix and not facts.fixes:
        pairs.append(("--fix", "there was nothing that --fix can repair"))
    return pairs


def put_back(record: RunRecord) -> list[PutBack]:
    """The commands of --fix in their order, each once."""
    facts = record.drift
    groups: dict[str, list[int]] = {}
    fixes = facts.fixes if facts else ()
    for place, fix in enumerate(fixes):
        groups.setdefault(fix.command, []).append(place)
    repairs = []
    for places in groups.values():
        first = fixes[places[0]]
        failed = f"exit code {first.exit_code}: {' '.join(first.said.split())}" if first.exit_code else ""
        served = [fixes[place] for place in places]
        still = "; ".join(words(fix.finding) for fix in served if fix.stays)
        if still and not failed:
            failed = f"it ran, and the check still finds this: {still}"
        changes = tuple(
            f"{words(fix.finding)}: {fix.before or 'not known'} -> {fix.after or 'not known'}" for fix in served
        )
        repairs.append(PutBack(first.what, first.command, failed, changes))
    return repairs


def speeds(record: RunRecord) -> list[Figure]:
    snapshot = record.after or record.before
    gpus = () if snapshot is None or isinstance(snapshot.gpus, Missing) else snapshot.gpus
    labels = {gpu.uuid: f"GPU {gpu.index}" for gpu in gpus}
    return [
        Figure(
            f"{labels.get(speed.gpu_uuid, speed.gpu_uuid)} {speed.probe} {speed.name}",
            speed.now,
            speed.before,
            speed.run_id,
        )
        for speed in (record.drift.compared if record.drift else ())
    ]


def nightly(host: str, left: NightlyFacts) -> str:
    lines = [f"{host}: {one_line(night(left))}"]
    verb = "written" if left.scheduled else "removed"
    lines += [f"  {verb}: {one_line(path)}" for path in left.changed] or ["  nothing to change"]
    lines += [f"  note: {one_line(note)}" for note in left.notes]
    return "\n".join(lines) + "\n"


def night(left: NightlyFacts) -> str:
    if not left.scheduled:
        return "does not check itself any more"
    later = f" and up to {left.random_delay_minutes} minutes later" if left.random_delay_minutes else ""
    probe = ", measuring too" if left.probe == "quick" else ""
    soon = f"; next at {left.next_at}" if left.next_at else ""
    return f"checks itself every night at {left.at}{later}, by its own clock{probe}{soon}"


def words(key: str) -> str:
    """ "gpu 0 clocks" of "gpu 0.clocks"."""
    return key.replace(".", " ", 1).replace("_", " ")


def _run(run_id: str, at: str) -> str:
    return f"run {run_id}, {minute(at)}" if run_id else ""
