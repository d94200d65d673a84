"""The steps of drift schedule, unschedule and last: install the night check, remove it, read its last result.

All that the host needs for judging is in one file there (nightly/nightlyplan.py). Every file is written completely or
not at all, and only if it differs; at any moment the host has a working schedule, the old or the new.
"""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from gpuprep import __version__, catalogue, checks
from gpuprep.agent.host_paths import (
    AGENT_PROGRAM,
    DRIFT_LAST,
    DRIFT_PLAN,
    DRIFT_RESULTS,
    DRIFT_SERVICE_FILE,
    DRIFT_TIMER_FILE,
    DRIFT_TIMER_LINK,
    DRIFT_TIMER_STAMP,
)
from gpuprep.agent.identity import identity
from gpuprep.checks import drift
from gpuprep.checks.baseline import has_quick
from gpuprep.checks.drift import quick, samehost
from gpuprep.checks.judgement import believed
from gpuprep.desired import probes
from gpuprep.desired.loading.files import available
from gpuprep.desired.profile import Profile
from gpuprep.desired.state import Wanted
from gpuprep.errors import AgentFailed, HostError, PlanRefused
from gpuprep.nightly import freshness, nightlyplan
from gpuprep.nightly.nightlyplan import NightlyPlan
from gpuprep.nightly.units import METRICS, METRICS_FOLDER, SERVICE, TIMER, files
from gpuprep.records import (
    DecodeError,
    Missing,
    NightlyFacts,
    ProfileRef,
    RunRecord,
    Snapshot,
    Source,
    Status,
    from_json,
)
from gpuprep.records.baseline import Baseline
from gpuprep.records.ids import MOMENT, at_host, of_host
from gpuprep.records.recorded_options import Asked
from gpuprep.remote import Host, Target
from gpuprep.remote.lock import INSTALL_PYTHON
from gpuprep.store import Store
from gpuprep.untrusted.plaintext import command, one_line
from gpuprep.workflows.provision import play
from gpuprep.workflows.runs import Options, ProfileRun, Run, RunContext
from gpuprep.workflows.schedule_state import Found, check_now, look, must, read

AGENT_ROLE = "gpu_agent"
OLDEST_PYTHON = (3, 10)
MOST_NAMED = 3  # findings in a note
CHOICES = ("at", "random_delay_minutes", "probe")  # of the profile's `drift`, which options can set
MOST_KNOWN = 1000  # run ids that go along in one command line


def schedule(
    target: Target, profile: Profile, options: Options, context: RunContext, chosen: Mapping[str, Any]
) -> RunRecord:
    """Let the host check itself every night, by profile.drift with the fields `chosen` by options. Exit code 0: the
    timer runs.
    """
    run = ProfileRun("schedule", target, profile, options, context)
    return run.record(lambda run: _schedule(run, chosen))


def unschedule(target: Target, options: Options, context: RunContext) -> RunRecord:
    """Take the timer, its service and its plan away; the results stay."""
    return Run("unschedule", target, options, context).record(_unschedule)


def last(target: Target, options: Options, context: RunContext) -> RunRecord:
    """The newest result of the host. Stores it and all kept results here, each once. One round trip, without root.

    options.now: the host first checks itself, as its timer does; that needs root.

    No result, or a result that is too old, from the future or from another machine (nightly/freshness.py), is an error
    with exit code 3: the present state of the host is unknown.
    """
    records: list[RunRecord] = []
    asked = Run("last", target, options, context).record(lambda run: _last(run, context.store, records), keep=False)
    if not records:
        return asked
    return dataclasses.replace(records[0], error=asked.error, exit_code=asked.exit_code) if asked.error else records[0]


# ---------------------------------------------------------------- schedule


def _schedule(run: ProfileRun, chosen: Mapping[str, Any]) -> None:
    with run.connect() as host:
        there = look(host)
        _refuse(host, there)
        before = _plan_there(there)
        kept = {name: getattr(before.drift, name) for name in before.chosen if name in CHOICES} if before else {}
        chosen = {**kept, **chosen}
        run.profile = dataclasses.replace(run.profile, drift=dataclasses.replace(run.profile.drift, **chosen))
        with run.lock(host) as lock:
            facts = run.draft.before = run.draft.after = run.look(host)
            past = drift.Past(_recorded(run, facts, _plan_there(there)), None)
            wanted = drift.resolve(run.profile, facts, past)
            if not _is_ours(there):
                _install_agent(run, host, wanted)
                facts = run.draft.after = run.look(host, "reading facts again")
                wanted = drift.resolve(run.profile, facts, past)
            plan, notes = _plan(run, facts, wanted, before, chosen)
            run.stage("writing the schedule")
            changed = _write(host, there, plan)
            if lock.lost is not None:
                raise lock.lost
        timer = look(host).timer
    if not timer.runs:
        raise HostError(
            f"{host.name}: the timer was installed, but it does not run",
            f"see why on the host: systemctl status {TIMER}; then run the same command again",
            where=host.name,
        )
    wish = run.profile.drift
    run.draft.nightly = NightlyFacts(
        True, wish.at, wish.random_delay_minutes, wish.probe, timer.next_at, tuple(changed), tuple(notes)
    )


def _refuse(host: Host, there: Found) -> None:
    """Refuse a host that lacks what the night check needs. Raises PlanRefused; nothing was changed."""
    instead = f"check it from here instead, {_from_here(host)}"
    if not there.word("systemd"):
        raise PlanRefused([f"{host.name}: there is no systemd, and the nightly check needs its timers"], instead)
    version = there.word("python")
    if not version:
        raise PlanRefused(
            [f"{host.name}: there is no python3"],
            f"{INSTALL_PYTHON}, then run again",
        )
    oldest = ".".join(map(str, OLDEST_PYTHON))
    if not catalogue.is_version(version):
        raise PlanRefused(
            [f"{host.name}: python3 there reports {one_line(version, 60)!r}, which is not a version"],
            f"see on the host what `python3 --version` prints; the host's own check needs {oldest} or newer",
        )
    if catalogue.parse(version)[:2] < OLDEST_PYTHON:
        raise PlanRefused(
            [f"{host.name}: python3 there is {version}, and the host's own check needs {oldest} or newer"], instead
        )


def _from_here(host: Host) -> str:
    return f"from cron for example: {command('gpuprep', 'drift', '--profile', 'PROFILE', about=host.name)}"


def _refuse_unknown_system(host: Host, wanted: Wanted) -> None:
    """Refuse a system that gpuprep does not provision: no role runs there, not even the agent's."""
    if wanted.os_key in catalogue.archives():
        return
    supported = " and ".join(release.title for release in catalogue.archives().values())
    system = one_line(wanted.os_key, 80)
    raise PlanRefused(
        [f"{host.name}: the agent, which judges there, cannot be installed: {system} is not supported"],
        f"gpuprep installs on {supported}; check this host from here instead, {_from_here(host)}",
        where=host.name,
    )


def _is_ours(there: Found) -> bool:
    return there.word("agent") == identity() and bool(there.word("program"))


def _install_agent(run: ProfileRun, host: Host, wanted: Wanted) -> None:
    _refuse_unknown_system(host, wanted)
    run.stage("installing the agent, which judges there")
    play(run, "provision.yml", wanted, [AGENT_ROLE], run.options)
    if not _is_ours(look(host)):
        raise AgentFailed(
            f"{host.name}: the agent that was installed is not the one of this gpuprep ({identity()})",
            f"see on the host what `{AGENT_PROGRAM} identity` prints",
            where=host.name,
        )


def _plan_there(there: Found) -> NightlyPlan | None:
    """The plan file on the host; None if it does not exist or cannot be read: then it is written again."""
    try:
        return nightlyplan.from_text(there.text(DRIFT_PLAN)) if there.word(DRIFT_PLAN) else None
    except DecodeError:
        return None


def _plan(
    run: ProfileRun, facts: Snapshot, wanted: Wanted, there: NightlyPlan | None, chosen: Collection[str]
) -> tuple[NightlyPlan, list[str]]:
    """The new plan file, and notes for the user."""
    profile = run.profile
    certified, notes = _certified(run, facts, wanted, there)
    baseline = run.baseline_of_host()
    notes += _without_baseline(run, facts, wanted, baseline)
    plan = NightlyPlan(
        host=run.target.name,
        profile=ProfileRef(profile.name, profile.path, profile.sha256),
        request=checks.request(profile),
        wanted=wanted,
        thresholds=profile.thresholds,
        waivers=profile.waivers,
        drift=profile.drift,
        certified=certified,
        baseline=nightlyplan.entries(baseline),
        probe_arguments=probes.arguments(profile, wanted, quick=True),
        made_at=run.started_at,
        made_by=__version__,
        asked=_asked(run),
        chosen=tuple(sorted(chosen)),
    )
    # As the host reads it: a list is a tuple in one and a list in the other.
    plan = nightlyplan.from_text(nightlyplan.to_text(plan))
    if there is not None and dataclasses.replace(there, made_at=plan.made_at) == plan:
        plan = there
    return plan, notes


def _asked(run: Run) -> dict[str, str]:
    """Inventory and profile as typed, with whole paths: the commands in a host's alert are typed in any folder."""
    asked = Asked.read(run.options.asked)
    typed = {"inventory": asked.inventory, "profile": asked.profile}
    files = {name: text for name, text in typed.items() if text not in available() and Path(text).exists()}
    return {name: str(Path(text).absolute()) if name in files else text for name, text in typed.items() if text}


def _recorded(run: Run, facts: Snapshot, there: NightlyPlan | None) -> RunRecord | None:
    """The certified run in the store, else the one in the plan on the host, unless that plan came with an image."""
    of_store = run.certified()
    if of_store is not None or there is None or there.certified is None:
        return of_store
    return None if freshness.foreign_reason(there.certified, freshness.Machine.of(facts)) else there.certified


def _certified(
    run: ProfileRun, facts: Snapshot, wanted: Wanted, there: NightlyPlan | None
) -> tuple[RunRecord | None, list[str]]:
    """The run whose facts the host compares with: a recorded one, or this one if the host passes now."""
    host = run.target.name
    recorded = _recorded(run, facts, there)
    if recorded is not None:
        note = f"no run in this store has certified {host}: it is compared with run {recorded.run_id}, as before"
        return nightlyplan.certified_part(recorded), [] if run.certified() else [note]
    previous = run.previous()
    judged = drift.judge(run.terms(wanted), facts, drift.Past(None, previous))
    verdict = judged.verdict
    failing = drift.still_failing(judged.findings, previous, drift.Looked.at(wanted, facts, ()))
    if previous is not None and failing:
        note = (
            f"no run in this store has certified {host}, and drift check {previous.run_id} failed"
            f" ({', '.join(failing[:MOST_NAMED])}): it is compared with the profile alone."
            f" `{_typed(run, 'provision', run.profile.name)}` repairs and certifies it; then schedule it again"
        )
        return None, [note]
    if verdict.status is Status.PASS:
        note = f"no run in this store has certified {host}; it passes now, so it is compared with what it is now"
        return nightlyplan.certified_part(run.as_record()), [note]
    return None, [
        f"no run in this store has certified {host}, and it does not pass now ({verdict.summary}): it is compared with"
        f" the profile alone. `{_typed(run, 'provision', run.profile.name)}` repairs and certifies it; then schedule it"
        " again"
    ]


def _without_baseline(run: ProfileRun, facts: Snapshot, wanted: Wanted, baseline: Baseline) -> list[str]:
    """A note if the nights will measure but no baseline exists; none for simulated GPUs, which never have one."""
    if run.profile.drift.probe != "quick" or facts.source is not Source.MEASURED or isinstance(facts.gpus, Missing):
        return []
    kinds = quick.chosen(wanted)
    lacking = [
        f"gpu {gpu.index}"
        for gpu in facts.gpus
        if not all(has_quick(baseline, gpu.uuid, kind.name, facts.agent_version) for kind in kinds)
    ]
    if not lacking:
        return []
    measuring = f"{_typed(run, 'validate', run.profile.name)} --quick"
    return [
        f"this store has no baseline of a quick measurement by gpuprep {facts.agent_version} of {', '.join(lacking)}:"
        " each night will WARN that its speed is judged by the profile's floors alone."
        f" `{measuring}` makes one if it passes; then schedule it again"
    ]


def _typed(run: Run, verb: str, profile: str) -> str:
    """A command on this host, with the inventory and the profile as they were typed."""
    asked = Asked.read(run.options.asked)
    inventory = ["-i", asked.inventory] if asked.inventory else []
    return command("gpuprep", *verb.split(), *inventory, "--profile", asked.profile or profile, about=run.target.name)


def _write(host: Host, there: Found, plan: NightlyPlan) -> list[str]:
    """Write the files that differ and reload systemd; returns the changed paths."""
    units = files(plan.drift)
    wanted = {DRIFT_PLAN: nightlyplan.to_text(plan), **units}
    changed = [path for path, text in wanted.items() if there.text(path) != text]
    if DRIFT_PLAN in changed:
        must(host, f"install -d -m 0755 {shlex.quote(DRIFT_PLAN.rpartition('/')[0])}", "cannot make the plan's folder")
    # Remove old metrics first: only the old plan knows their path, so a retry can still finish.
    left = _metrics_there(there)
    removed = left if left and left != _metrics(plan) else ""
    if removed:
        must(host, f"rm -f -- {shlex.quote(removed)}", f"cannot remove {removed}")
    for path in changed:
        host.put(wanted[path].encode(), path, become=True)
    # An interrupted run may have written the files and not reloaded systemd.
    if DRIFT_SERVICE_FILE in changed or DRIFT_TIMER_FILE in changed or "yes" in there.word("reload"):
        must(host, "systemctl daemon-reload", "systemd does not read its units again")
    if DRIFT_TIMER_FILE in changed:
        # Remove the timer's stamp: a new time of day is not a missed night.
        must(
            host,
            f"systemctl stop {TIMER} && systemctl clean --what=state {TIMER} && systemctl enable -q --now {TIMER}",
            "the timer cannot be started",
        )
    elif not there.timer.runs:
        must(host, f"systemctl enable -q --now {TIMER}", "the timer cannot be started")
        changed.append(f"{TIMER} (enabled and started)")
    return [*changed, *([f"{removed} (removed)"] if removed else [])]


def _metrics(plan: NightlyPlan) -> str:
    """The path of the plan's metrics file; "" if the plan wants no metrics."""
    return f"{plan.drift.textfile_directory}/{METRICS}" if plan.drift.textfile_directory else ""


def _metrics_there(there: Found) -> str:
    """The metrics file of the plan on the host; the default path if that plan cannot be read; "" without a plan."""
    plan = _plan_there(there)
    if plan is None:
        return f"{METRICS_FOLDER}/{METRICS}" if there.word(DRIFT_PLAN) else ""
    return _metrics(plan)


# ---------------------------------------------------------------- unschedule


def take_away(host: Host) -> None:
    """Remove the night check, if there is one; the caller holds the lock."""
    there = look(host)
    if any(there.word(path) for path in (DRIFT_TIMER_FILE, DRIFT_SERVICE_FILE, DRIFT_PLAN)) or there.timer.active:
        _remove(host, _metrics_there(there))


def _unschedule(run: Run) -> None:
    with run.connect() as host:
        there = look(host)
        paths = [path for path in (DRIFT_TIMER_FILE, DRIFT_SERVICE_FILE, DRIFT_PLAN) if there.word(path)]
        metrics = _metrics_there(there)
        notes = [f"the results stay in {DRIFT_RESULTS}"] if paths else ["there was no schedule"]
        with run.lock(host):
            if paths or there.timer.active or there.timer.enabled:
                run.stage("taking the schedule away")
                _remove(host, metrics)
        if metrics:
            notes.append(f"its metrics are gone ({metrics}), so that no alarm waits for the next check")
    run.draft.nightly = NightlyFacts(False, changed=tuple(paths), notes=tuple(notes))


def _remove(host: Host, metrics: str) -> None:
    """Remove the timer first: whatever fails after that, the host no longer checks itself.

    Then the metrics, because without a check they would raise an alarm; the plan file last, because only it knows their
    path.
    """
    files = " ".join((DRIFT_TIMER_FILE, DRIFT_TIMER_LINK, DRIFT_TIMER_STAMP, DRIFT_SERVICE_FILE, DRIFT_PLAN))
    first = f"rm -f -- {shlex.quote(metrics)} && " if metrics else ""
    must(
        host,
        f"systemctl stop {TIMER} {SERVICE} 2>/dev/null; {first}rm -f -- {files} && systemctl daemon-reload;"
        f" done=$?; systemctl reset-failed {TIMER} {SERVICE} 2>/dev/null; exit $done",
        "the schedule cannot be removed",
    )
    if look(host).timer.active:
        raise HostError(
            f"{host.name}: its timer still runs", f"stop it there: sudo systemctl stop {TIMER}", where=host.name
        )


# ---------------------------------------------------------------- last


def _last(run: Run, store: Store | None, records: list[RunRecord]) -> None:
    """Append the newest result to `records`. Raises HostError if there is none; after appending, if it is too old."""
    known = _known(run, store)
    with run.connect() as host:
        if run.options.now:
            run.stage("the host checks itself")
            if check_now(host) is None:
                raise PlanRefused(
                    [f"{run.target.name}: no night check is scheduled there"],
                    f"`{_typed(run, 'drift schedule', 'PROFILE')}` schedules it; `gpuprep drift` checks from here",
                    where=run.target.name,
                )
        there = read(host, known)
        kept = _kept(run, there)
        if store is not None and not store.is_identified(run.target.name):
            _identify(
                run, host, [record for record in kept.values() if not freshness.foreign_reason(record, there.machine)]
            )
    if store is not None:
        kept = {path: _store_own(run, store, path, record, there) for path, record in kept.items()}
    plan = _plan_there(there)
    timer = there.timer
    _tell_schedule(run, there, plan)

    def again() -> str:
        return _typed(run, "drift schedule", _profile_here(run, store, plan.profile if plan else None))

    if not there.word(DRIFT_LAST):
        when = f"; the first check comes at {timer.next_at}" if timer.runs and timer.next_at else ""
        raise HostError(
            f"{run.target.name}: it has not checked itself yet{when}",
            f"wait for it, or make one now there: sudo systemctl start {SERVICE}" if timer.runs else f"run `{again()}`",
            where=run.target.name,
        )
    newest = [record for path, record in kept.items() if there.text(path) == there.text(DRIFT_LAST)]
    record = newest[0] if newest else _decoded(run, DRIFT_LAST, there.text(DRIFT_LAST))
    profile = _profile_here(run, store, record.profile)
    if record.profile is not None and profile != record.profile.name:  # for the commands that the report offers
        asked = {**record.options.get("asked", {}), "profile": profile}
        record = dataclasses.replace(record, options={**record.options, "asked": asked})
    foreign = freshness.foreign_reason(record, there.machine)
    if store is not None and not newest and record.run_id not in known:
        record = _store_own(run, store, DRIFT_LAST, record, there)
    if not foreign:
        records.append(record)
    why = foreign or freshness.stale_reason(record, there.now, freshness.fresh_for(there.text(DRIFT_PLAN)))
    if not why and freshness.is_ahead(record, _latest(there)):
        why = f"last check {record.ended_at} is later than now here: is its clock right?"
    if why:
        status = f"see why on the host: systemctl status {TIMER}; journalctl -u {SERVICE}"
        if foreign:
            status = f"make its own now there: sudo systemctl start {SERVICE}"
        ended = record.verdict.summary if record.verdict else "no verdict"
        raise HostError(
            f"{run.target.name}: {why} ({ended}), so its present state is not known",
            status if timer.runs else f"no timer runs there; run `{again()}`",
            where=run.target.name,
        )


def _identify(run: Run, host: Host, results: Sequence[RunRecord]) -> None:
    """Tell the store which host it is, by its newest result. Commands that read its facts do the same: how many hosts
    there are must not depend on which command met a name first.

    A result that does not list the SSH host key that answers is of before that key: of the image, or of a machine
    before this one.
    """
    facts = results[-1].after if results else None
    if facts is not None and (run.target.local or host.host_key() in samehost.of(facts).keys):
        run.know(host, facts)


def _profile_here(run: Run, store: Store | None, wanted: ProfileRef | None) -> str:
    """What --profile takes on this controller for a host's profile: its name, else the file that the host was scheduled
    with here; "PROFILE" where neither is known. The host's own word for the file is not believed.
    """
    if wanted is None:
        return "PROFILE"
    if wanted.name in available():
        return wanted.name
    file = store.profile_file(run.target.name, "schedule", wanted) if store is not None else None
    return file or "PROFILE"


def _known(run: Run, store: Store | None) -> list[str]:
    """Ids of the host's checks that are stored here: the host need not send them again."""
    newest = store.ids(run.target.name, "drift", MOST_KNOWN) if store is not None else []
    return [at_host(run_id, run.target.name) for run_id in newest]


def _kept(run: Run, there: Found) -> dict[str, RunRecord]:
    """Path ► result of each kept night that is not stored here yet; so the history gets every night."""
    records = {}
    for path, text in there.kept.items():
        try:
            record = _decoded(run, path, text)
        except AgentFailed as error:
            run.stage(error.what)
            continue
        if path == f"{DRIFT_RESULTS}/results/{record.run_id}.json":
            records[path] = record
        else:
            run.stage(f"{path} is not stored: it is run {record.run_id}")
    return records


def _latest(there: Found) -> datetime:
    """The earlier of the host's clock and ours: the latest moment that a result may come from."""
    return min(there.now, datetime.now(timezone.utc))


def _store_own(run: Run, store: Store, path: str, record: RunRecord, there: Found) -> RunRecord:
    """Store the result, unless it comes from another machine or a wrong clock: in the store it would stay for ever.

    Returns the record as stored: a host chooses its run ids, and may have chosen the id of another host's run.
    """
    why = freshness.foreign_reason(record, there.machine)
    if freshness.is_ahead(record, _latest(there)):
        why = f"it is of {record.ended_at}, later than now there"
    if why:
        run.stage(f"{path} is not stored: {why}")
        return record
    if record.run_id[:15] > f"{datetime.now(timezone.utc):{MOMENT}}":  # the id may later become one of ours
        return _store_renamed(run, store, path, record, "an id from later than now")
    # Once, however often it is asked for and by how many at a time.
    if not store.append_new(record, kept_elsewhere=True) and (
        owner := store.host_of(record.run_id)
    ) not in store.names_of(record.host):
        return _store_renamed(run, store, path, record, f"the id of a run of {owner}")
    return record


def _store_renamed(run: Run, store: Store, path: str, record: RunRecord, why: str) -> RunRecord:
    renamed = dataclasses.replace(record, run_id=of_host(record.run_id, record.host))
    run.stage(f"{path} is stored as run {renamed.run_id}: its own is {why}")
    store.append_new(renamed, kept_elsewhere=True)
    return renamed


def _decoded(run: Run, path: str, text: str) -> RunRecord:
    try:
        record = from_json(RunRecord, text)
        _refuse_other(record)
    except DecodeError as error:
        raise AgentFailed(
            f"{run.target.name}: {path} there is no result: {error}",
            f"make a new one there: sudo systemctl start {SERVICE}",
            where=run.target.name,
        ) from error
    source = Source.SIMULATED if run.target.simulated else record.source
    # What was typed is typed here: a host must not choose the options of commands that a report offers to paste.
    options = {name: value for name, value in record.options.items() if name != "asked"}
    if run.options.asked:
        options["asked"] = dict(run.options.asked)
    return believed(
        dataclasses.replace(record, host=run.target.name, source=source, history=None, options=options, batch_id="")
    )


def _refuse_other(record: RunRecord) -> None:
    """Accept only night checks from a host, nothing that could certify it. Raises DecodeError for other records."""
    if record.command != "drift":
        raise DecodeError(f"it is of command {record.command!r:.40}, not of drift")


def _tell_schedule(run: Run, there: Found, plan: NightlyPlan | None) -> None:
    """Print the profile that the host compares with, and the time of the next check, as progress."""
    if plan is not None:
        run.stage(f"compares with profile {plan.profile.name} ({plan.profile.sha256[:12]}), scheduled {plan.made_at}")
    elif there.word(DRIFT_PLAN):
        run.stage(f"{DRIFT_PLAN} there is no plan that this gpuprep reads: schedule it again")
    timer = there.timer
    run.stage(
        f"next check at {timer.next_at or 'a time systemd does not say'}" if timer.runs else "no timer runs there"
    )
