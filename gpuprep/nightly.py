"""The straight lines of the nightly check on the host itself: make its timer, take it away, read its last result.

What the host needs to judge with nobody to ask is in one file there (selfcheck/nightlyplan.py). Every file is written
whole or not at all, and only where it differs; each state in between is a schedule that works, the old or the new one.
"""

from __future__ import annotations

import dataclasses
import shlex
from datetime import datetime, timedelta

from gpuprep import __version__, checks, collect, drift, probing, waivers
from gpuprep import verdict as judging
from gpuprep.errors import AgentFailed, HostError, PlanRefused, StoreError, UsageError
from gpuprep.history import Store
from gpuprep.host import Host, Target
from gpuprep.nightlyhost import Found, look, must, read
from gpuprep.nightlyunits import (
    LAST,
    METRICS,
    PLAN,
    RESULTS,
    SERVICE,
    SERVICE_FILE,
    STAMP,
    TIMER,
    TIMER_FILE,
    WANTED_BY,
    files,
)
from gpuprep.onhost.identity import identity
from gpuprep.profile import Profile
from gpuprep.records import DecodeError, NightlyFacts, ProfileRef, RunRecord, Status, from_json
from gpuprep.runs import Line, Options, Run
from gpuprep.selfcheck import nightlyplan
from gpuprep.selfcheck.nightlyplan import NightlyPlan
from gpuprep.wanted import Wanted
from gpuprep.workflows import play

AGENT_ROLE = "gpu_agent"
OLDEST_PYTHON = (3, 10)
# A night may be missed by a reboot or a random delay; two may not.
STALE = timedelta(days=2)
MOST_KNOWN = 1000  # run ids that go along in one command line


def schedule(target: Target, profile: Profile, options: Options, line: Line) -> RunRecord:
    """Let the host check itself every night, by profile.drift. Exit code 0: the timer runs."""
    return Run("schedule", target, profile, options, line).record(_schedule)


def unschedule(target: Target, options: Options, line: Line) -> RunRecord:
    """Take the timer, its service and its plan away; the results stay."""
    return Run("unschedule", target, None, options, line).record(_unschedule)


def last(target: Target, options: Options, line: Line) -> RunRecord:
    """The newest result of the host. It and all kept ones are stored here, each once. One round trip, without root.

    No result, or one older than two days, is an error with exit code 3: nobody knows how the host is now.
    """
    found: list[RunRecord] = []
    asked = Run("last", target, None, options, line).record(lambda run: _last(run, line.store, found), keep=False)
    if not found:
        return asked
    return dataclasses.replace(found[0], error=asked.error, exit_code=asked.exit_code) if asked.error else found[0]


# ---------------------------------------------------------------- schedule


def _schedule(run: Run) -> None:
    with run.connect() as host:
        there = look(host)
        _refuse(host, there)
        with run.lock(host) as lock:
            run.stage("reading facts")
            run.before = run.after = collect.snapshot(host, checks.request(run.profile), become=True)
            past = drift.Past(_recorded(run, _plan_there(there)), None)
            wanted = drift.resolve(run.profile, run.after, past)
            if not _is_ours(there):
                _install_agent(run, host, wanted)
                run.stage("reading facts again")
                run.after = collect.snapshot(host, checks.request(run.profile), become=True)
                wanted = drift.resolve(run.profile, run.after, past)
            plan, notes = _plan(run, wanted, _plan_there(there))
            run.stage("writing the schedule")
            changed = _write(host, there, plan)
            if lock.lost is not None:
                raise lock.lost
        timer = look(host).timer
    if not timer.runs:
        raise HostError(
            f"{host.name}: the timer was made and does not run",
            f"see why there: systemctl status {TIMER}; then run the same command again",
            where=host.name,
        )
    wish = run.profile.drift
    run.nightly = NightlyFacts(
        True, wish.at, wish.random_delay_minutes, wish.probe, timer.next_at, tuple(changed), tuple(notes)
    )


def _refuse(host: Host, there: Found) -> None:
    """What the nightly check cannot do without. Raises PlanRefused; nothing was changed."""
    instead = f"check it from here instead, from cron for example: gpuprep drift {host.name} --profile PROFILE"
    if not there.word("systemd"):
        raise PlanRefused([f"{host.name}: there is no systemd, whose timer makes the nightly check"], instead)
    found = there.word("python")
    if not found:
        raise PlanRefused(
            [f"{host.name}: there is no python3"],
            "install it there, e.g. `sudo apt-get install python3`, then run again",
        )
    if tuple(int(number) for number in found.split(".")[:2]) < OLDEST_PYTHON:
        oldest = ".".join(map(str, OLDEST_PYTHON))
        raise PlanRefused(
            [f"{host.name}: python3 there is {found}, and the host's own check needs {oldest} or newer"], instead
        )


def _is_ours(there: Found) -> bool:
    return there.word("agent") == identity() and bool(there.word("program"))


def _install_agent(run: Run, host: Host, wanted: Wanted) -> None:
    run.stage("installing the agent, which judges there")
    play(run, "provision.yml", wanted, [AGENT_ROLE], run.options)
    if not _is_ours(look(host)):
        raise AgentFailed(
            f"{host.name}: the agent that was installed is not the one of this gpuprep ({identity()})",
            f"look at what answers there: {collect.INSTALLED} identity",
            where=host.name,
        )


def _plan_there(there: Found) -> NightlyPlan | None:
    """None where there is none, and where it is one that cannot be read: it is then written anew."""
    try:
        return nightlyplan.from_text(there.text(PLAN)) if there.word(PLAN) else None
    except DecodeError:
        return None


def _plan(run: Run, wanted: Wanted, there: NightlyPlan | None) -> tuple[NightlyPlan, list[str]]:
    """What the host shall have, and what a reader must know of it."""
    profile = run.profile
    certified, notes = _certified(run, wanted, there)
    plan = NightlyPlan(
        host=run.target.name,
        profile=ProfileRef(profile.name, profile.path, profile.sha256),
        request=checks.request(profile),
        wanted=wanted,
        thresholds=profile.thresholds,
        waivers=profile.waivers,
        drift=profile.drift,
        certified=certified,
        baseline=nightlyplan.entries(run.baseline_of_host()),
        probe_arguments=probing.arguments(profile, wanted, quick=True),
        made_at=run.started_at,
        made_by=__version__,
    )
    # As the host reads it: a list is a tuple in one and a list in the other.
    plan = nightlyplan.from_text(nightlyplan.to_text(plan))
    if there is not None and dataclasses.replace(there, made_at=plan.made_at) == plan:
        plan = there
    return plan, notes


def _recorded(run: Run, there: NightlyPlan | None) -> RunRecord | None:
    """The certified run of the store; without one that of the plan which the host has already."""
    return run.certified() or (there.certified if there is not None else None)


def _certified(run: Run, wanted: Wanted, there: NightlyPlan | None) -> tuple[RunRecord | None, list[str]]:
    """The run whose facts the host compares with: a recorded one, or this one if the host passes now."""
    assert run.after is not None
    host = run.target.name
    recorded = _recorded(run, there)
    if recorded is not None:
        note = f"no run in this store has certified {host}: it is compared with run {recorded.run_id}, as before"
        return nightlyplan.certified_part(recorded), [] if run.certified() else [note]
    found = drift.findings(wanted, run.after, drift.Past(None, None), thresholds=run.profile.thresholds)
    counted = waivers.apply(run.profile.waivers, host, found, run.started_at[:10])
    verdict = judging.judge(wanted, counted)
    if verdict.status is Status.PASS:
        note = f"no run in this store has certified {host}; it passes now, so it is compared with what it is now"
        return nightlyplan.certified_part(run.as_record()), [note]
    return None, [
        f"no run in this store has certified {host}, and it does not pass now ({verdict.summary}): it is compared with"
        " the profile alone. `gpuprep provision` or `gpuprep validate` certifies it; then schedule it again"
    ]


def _write(host: Host, there: Found, plan: NightlyPlan) -> list[str]:
    """Write what differs and make systemd know it; the paths that were written."""
    units = files(plan.drift)
    wanted = {PLAN: nightlyplan.to_text(plan), **units}
    changed = [path for path, text in wanted.items() if there.text(path) != text]
    if PLAN in changed:
        must(host, f"install -d -m 0755 {shlex.quote(PLAN.rpartition('/')[0])}", "cannot make the plan's folder")
    for path in changed:
        host.put(wanted[path].encode(), path, become=True)
    # A run that broke off may have written them and gone no further.
    if SERVICE_FILE in changed or TIMER_FILE in changed or "yes" in there.word("reload"):
        must(host, "systemctl daemon-reload", "systemd does not read its units anew")
    if TIMER_FILE in changed:
        # Without its stamp: another hour of the day is no night that was missed.
        must(
            host,
            f"systemctl stop {TIMER} && systemctl clean --what=state {TIMER} && systemctl enable -q --now {TIMER}",
            "the timer cannot be started",
        )
    elif not there.timer.runs:
        must(host, f"systemctl enable -q --now {TIMER}", "the timer cannot be started")
        changed.append(f"{TIMER} (enabled and started)")
    return changed


# ---------------------------------------------------------------- unschedule


def _unschedule(run: Run) -> None:
    with run.connect() as host:
        there = look(host)
        plan = _plan_there(there)
        paths = [path for path in (TIMER_FILE, SERVICE_FILE, PLAN) if there.word(path)]
        notes = [f"the results stay in {RESULTS}"] if paths else ["there was no schedule"]
        with run.lock(host):
            if paths or there.timer.active or there.timer.enabled:
                run.stage("taking the schedule away")
                _remove(host)
            metrics = f"{plan.drift.textfile_directory}/{METRICS}" if plan and plan.drift.textfile_directory else ""
            if metrics:
                must(host, f"rm -f -- {shlex.quote(metrics)}", f"cannot remove {metrics}")
                notes.append(f"its metrics are gone ({metrics}), so that no alarm waits for the next check")
    run.nightly = NightlyFacts(False, changed=tuple(paths), notes=tuple(notes))


def _remove(host: Host) -> None:
    """The timer first: whatever goes wrong after that, the host does not check itself any more."""
    files = " ".join((TIMER_FILE, WANTED_BY, STAMP, SERVICE_FILE, PLAN))
    must(
        host,
        f"systemctl stop {TIMER} {SERVICE} 2>/dev/null; rm -f -- {files} && systemctl daemon-reload;"
        f" done=$?; systemctl reset-failed {TIMER} {SERVICE} 2>/dev/null; exit $done",
        "the schedule cannot be removed",
    )
    if look(host).timer.active:
        raise HostError(
            f"{host.name}: its timer still runs", f"stop it there: sudo systemctl stop {TIMER}", where=host.name
        )


# ---------------------------------------------------------------- last


def _last(run: Run, store: Store | None, found: list[RunRecord]) -> None:
    """The result into `found`. Raises HostError where there is none, and after it where it is too old to count."""
    with run.connect() as host:
        there = read(host, _known(run, store))
    if store is not None:
        _store_kept(run, store, there)
    plan = _plan_there(there)
    timer = there.timer
    _tell_schedule(run, there, plan)
    again = f"gpuprep drift schedule {run.target.name} --profile {plan.profile.name if plan else 'PROFILE'}"
    if not there.word(LAST):
        when = f"; the first check comes at {timer.next_at}" if timer.runs and timer.next_at else ""
        raise HostError(
            f"{run.target.name}: it has not checked itself yet{when}",
            f"wait for it, or make one now there: sudo systemctl start {SERVICE}" if timer.runs else f"run `{again}`",
            where=run.target.name,
        )
    record = _decoded(run, LAST, there.text(LAST))
    found.append(record)
    if store is not None:
        _store(store, record)
    age = there.now - datetime.fromisoformat(record.ended_at)
    if age > STALE:
        ended = record.verdict.summary if record.verdict else "no verdict"
        status = f"see why on the host: systemctl status {TIMER}; journalctl -u {SERVICE}"
        raise HostError(
            f"{run.target.name}: its last check was {age.days} days ago ({record.ended_at}: {ended}),"
            " so nobody knows how it is now",
            status if timer.runs else f"no timer runs there; run `{again}`",
            where=run.target.name,
        )


def _known(run: Run, store: Store | None) -> list[str]:
    """Ids of the host's checks that are stored here: they need not travel again."""
    newest = store.runs(run.target.name, limit=MOST_KNOWN) if store is not None else []
    return [each.run_id for each in newest if each.command == "drift"]


def _store_kept(run: Run, store: Store, there: Found) -> None:
    """The nights since this controller asked last: the history has them all, however seldom anybody asks."""
    for path, text in there.kept.items():
        try:
            _store(store, _decoded(run, path, text))
        except AgentFailed as error:
            run.stage(error.what)


def _decoded(run: Run, path: str, text: str) -> RunRecord:
    try:
        record = from_json(RunRecord, text)
        datetime.fromisoformat(record.ended_at)
    except (DecodeError, ValueError) as error:
        raise AgentFailed(
            f"{run.target.name}: {path} there is no result: {error}",
            f"make a new one there: sudo systemctl start {SERVICE}",
            where=run.target.name,
        ) from error
    return dataclasses.replace(record, host=run.target.name)


def _tell_schedule(run: Run, there: Found, plan: NightlyPlan | None) -> None:
    """Which profile the host compares with, and when it does so next: lines of progress."""
    if plan is not None:
        run.stage(f"compares with profile {plan.profile.name} ({plan.profile.sha256[:12]}), scheduled {plan.made_at}")
    elif there.word(PLAN):
        run.stage(f"{PLAN} there is no plan that this gpuprep reads: schedule it again")
    timer = there.timer
    run.stage(
        f"next check at {timer.next_at or 'a time systemd does not say'}" if timer.runs else "no timer runs there"
    )


def _store(store: Store, record: RunRecord) -> None:
    """Once, however often it is asked for and by how many at a time."""
    if _is_stored(store, record):
        return
    try:
        store.append(record)
    except StoreError:
        if not _is_stored(store, record):
            raise


def _is_stored(store: Store, record: RunRecord) -> bool:
    try:
        return store.get(record.run_id).run_id == record.run_id
    except UsageError:
        return False
