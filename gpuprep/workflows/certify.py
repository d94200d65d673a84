"""Which run is the certified run of a host? Decided after each run that passed, and by `gpuprep baseline set`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gpuprep import checks
from gpuprep.checks.drift import Past, certifying
from gpuprep.checks.drift.certifying import Doubts, Passed
from gpuprep.desired.state import Wanted
from gpuprep.errors import UsageError
from gpuprep.records import Finding, RunRecord, Snapshot, Source, Status
from gpuprep.records.baseline import Measured
from gpuprep.records.recorded_options import RecordedOptions
from gpuprep.store import Store
from gpuprep.store.certified import CERTIFYING
from gpuprep.untrusted.plaintext import command
from gpuprep.workflows.runs import ProfileRun

LAST = "last"
MOST_REASON = 1000  # letters, as of a waiver's justification


# ---------------------------------------------------------------- a run that passed


def standing(run: ProfileRun, wanted: Wanted, facts: Snapshot, findings: Sequence[Finding]) -> Doubts:
    """Why a run that passed does not become the certified run (empty: it does). Also noted in the record for the user.

    `findings` are the findings before waivers. Without a store no run is certified.
    """
    if not run.is_stored or run.command not in CERTIFYING:
        return Doubts()
    past, draft = Past(run.certified(), run.previous()), run.draft
    played = {task.role for task in draft.playbook.tasks} if draft.playbook else set()
    left_out = not run.options.whole
    doubts = certifying.doubts(
        Passed(run.terms(wanted), facts, draft.measurements, findings, left_out, played), past
    )  # fmt: skip
    chosen = run.chosen()
    held_to = past.certified.run_id if past.certified and (doubts or chosen) else ""
    note = _note(run, doubts, past.certified)
    run.note(*([note] if note else []), certifies=not doubts, held_to=held_to, doubts=doubts.all)
    if note and run.is_one_of_several:  # the page of one host has it; a table of hosts has no room
        run.stage(note)
    return doubts


def _note(run: ProfileRun, doubts: Doubts, certified: RunRecord | None) -> str:
    """What the user must know about the certified run, in one line; "" if it is as the options ask.

    No note is needed that an earlier run stays the certified run if the user asked for less (--only, --quick), if a
    provision measured only briefly, or if the user chose that run.
    """
    options = run.options
    asked = run.command == "provision" or options.quick or options.probes or not options.whole
    if not (doubts.worse or doubts.unread or (doubts.less and not (asked and certified))):
        return ""
    host, why = run.target.name, f"this run {doubts}"
    held = f"{host} is still compared with run {certified.run_id} of {certified.started_at[:10]}" if certified else (
        f"{host} is not certified by this run"
    )  # fmt: skip
    typed = command("gpuprep", "baseline", "set", about=host)
    if not run.options.whole:
        return f"{held}: {why}"  # no reason makes a partial run certify the whole machine
    return f"{held}: {why}; to make this run the certified run, type: {typed} {run.run_id} --reason 'WHY'"


# ---------------------------------------------------------------- gpuprep baseline set


def _newest(host: str) -> str:
    makes = command("gpuprep", "validate", "--profile", "PROFILE", about=host)
    return f"`{command('gpuprep', 'history', about=host)}` lists the runs; `{makes}` makes one"


@dataclass(frozen=True)
class Certified:
    """The result of `baseline set`."""

    record: RunRecord
    measured: Measured  # the figures that became the baseline; {} where the run measured none, or on a simulated GPU
    before: str | None = None  # the certified run until now


def certify(store: Store, host: str, run: str | None, now: str, reason: str = "") -> Certified:
    """Make `run` the certified run of the host. None: the newest run that passed and may certify; "last": that passed.

    The figures that it measured replace those of the same GPU, probe and versions; others stay. `now` is UTC, ISO 8601.
    Raises UsageError for a run that is not of this host, of another command, or of a part of the machine; that did not
    pass, has no facts, or saw a simulated GPU where the host has a real one; and without a reason for a run that did
    not become the certified run by itself.
    """
    newest = _newest(host)
    chosen = store.newest_passed(host, any_part=run == LAST) if run in (None, LAST) else run
    if chosen is None:
        raise UsageError(f"no provision or validate of {host} that passed is recorded", newest)
    record = store.get(chosen)
    named = f"run {record.run_id}"
    if record.host != host and record.host not in store.names_of(host):
        raise UsageError(f"{named} is a run of {record.host}, not of {host}", newest)
    if record.command not in CERTIFYING:
        raise UsageError(f"{named} is a run of {record.command}, which certifies nothing", newest)
    if not RecordedOptions.read(record.options).whole:
        raise UsageError(f"{named} left a part of the machine out (--only, --skip)", newest)
    if record.verdict is None or record.verdict.status is not Status.PASS or record.exit_code != 0:
        how = record.verdict.status.value if record.verdict else "without a verdict"
        raise UsageError(
            f"{named} ended {how}: only a run that passed can be the certified run",
            "repair the machine and validate it; accept a known problem with a waiver in the profile",
        )
    if record.after is None:
        raise UsageError(f"{named} has no facts of the host to compare with", newest)
    if record.source is Source.SIMULATED and store.is_real(host):
        raise UsageError(f"{named} saw a simulated GPU, and {host} has a real one: they cannot be compared", newest)
    if record.history is not None and record.history.certifies is False and not reason:
        history = record.history
        worse = "the run measured less or found something worse"
        why = f"it {'; '.join(history.doubts)}" if history.doubts else (*history.notes, worse)[0]
        raise UsageError(
            f"{named} did not become the certified run by itself: {why}",
            f"to choose this run anyway, give a reason: {command('gpuprep', 'baseline', 'set', about=host)}"
            f" {record.run_id} --reason 'WHY'",
        )
    if len(reason) > MOST_REASON:
        raise UsageError(
            f"--reason has {len(reason)} letters, at most {MOST_REASON} are allowed", "write a shorter reason"
        )
    before = store.host_baseline(host).run_id
    measured = checks.comparable(record.after, record.measurements)
    store.certify(host, record.run_id, now, measured, reason)
    return Certified(record, measured, before)
