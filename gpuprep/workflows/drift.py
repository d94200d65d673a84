"""The straight line of drift: facts ─► findings against profile, certified run and last check ─► verdict ─► record.

Changes nothing on the host, unless `--fix` is given. Without probes a check is one round trip.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from gpuprep import checks
from gpuprep.checks import drift, waivers
from gpuprep.checks import verdict as judging
from gpuprep.desired import probes
from gpuprep.desired.loading import Profile
from gpuprep.desired.state import Wanted
from gpuprep.errors import GpuprepError, Interrupted
from gpuprep.records import Finding, PlaybookResult, RunRecord, Status
from gpuprep.records.baseline import compared
from gpuprep.remote import Host, Target, agent_client
from gpuprep.workflows import fixes
from gpuprep.workflows.provision import STEPS, one_probe, play
from gpuprep.workflows.runs import Line, Options, Run

NOTHING_TO_CHANGE = "nothing to change"


def check(target: Target, profile: Profile, options: Options, line: Line) -> RunRecord:
    """Compare one host with its profile, its certified run and its last check; options.fix puts back what it can."""
    if options.probe == "quick":
        options = dataclasses.replace(options, probes=probes.QUICK, quick=True)
    return Run("drift", target, profile, options, line).record(_check)


def _check(run: Run) -> None:
    with run.connect() as host:
        _look(run, host, "reading facts")
        run.before = run.after
        assert run.after is not None
        past = drift.Past(run.certified(), run.previous())
        run.drift = dataclasses.replace(past.facts(), probe=run.options.probe)
        wanted = drift.resolve(run.profile, run.after, past)
        unmeasured = _measure(run, host, wanted) if run.options.probe == "quick" else []
        _judge(run, wanted, past, unmeasured)
        if run.options.fix and _fix(run, host, wanted):
            _look(run, host, "reading facts again")
            before = run.findings
            _judge(run, wanted, past, unmeasured)
            run.drift = dataclasses.replace(run.drift, fixes=fixes.seen(run.drift.fixes, before, run.findings))


def _look(run: Run, host: Host, what: str) -> None:
    run.stop_if_cancelled()
    run.stage(what)
    run.after = agent_client.snapshot(host, checks.request(run.profile), become=True)


def _measure(run: Run, host: Host, wanted: Wanted) -> list[Finding]:
    """The speed into the run; where a program is at work on a GPU when a probe begins, the finding that says so."""
    told = probes.arguments(run.profile, wanted, quick=True)
    kinds = probes.chosen(wanted, probes=probes.QUICK)
    run.expect([], kinds)
    for kind in kinds:
        if run.measurements:
            _look(run, host, "reading facts between two probes")
        assert run.after is not None
        assert run.drift is not None
        if busy := drift.in_use(run.after):
            run.stage(f"not measuring: {busy}")
            run.drift = dataclasses.replace(run.drift, probe_skipped=busy)
            return [drift.unmeasured(busy)]
        run.stage(kind.what, kind.name)
        run.measurements = (*run.measurements, one_probe(run, host, kind, told))
    if not run.measurements:
        return [drift.not_measurable()]
    _look(run, host, "reading facts again, after the load")  # errors that only work brings about
    return []


def _judge(run: Run, wanted: Wanted, past: drift.Past, unmeasured: Sequence[Finding]) -> None:
    assert run.after is not None
    assert run.drift is not None
    deep = _deep(run, wanted) if run.options.deep else []
    measured = checks.comparable(run.after, run.measurements)
    baseline = run.past(measured)
    run.drift = dataclasses.replace(run.drift, compared=compared(measured, baseline))
    found = drift.findings(
        wanted,
        run.after,
        past,
        run.measurements,
        asked=[result.probe for result in run.measurements],
        thresholds=run.profile.thresholds,
        baseline=baseline,
    )
    today = run.started_at[:10]
    counted = waivers.apply(run.profile.waivers, run.target.name, (*found, *unmeasured, *deep), today)
    run.findings = drift.dated(counted, past.previous, run.started_at)
    run.drift = dataclasses.replace(run.drift, unseen=drift.unseen(counted, past.previous))
    run.findings = fixes.offered(wanted, run.after, run.findings, fixing=run.options.fix)
    run.verdict = judging.judge(wanted, run.findings)
    run.exit_code = judging.exit_code(run.verdict)


# ---------------------------------------------------------------- --deep


def _deep(run: Run, wanted: Wanted) -> list[Finding]:
    """Ansible's check mode over the same roles; each task that would change something is a finding."""
    if not wanted.installs:
        reason = "gpuprep has no packages for this system, so the roles have nothing to compare"
        return [Finding("playbook", "check_mode", Status.SKIP, NOTHING_TO_CHANGE, "not run", reason)]
    run.stage("comparing with Ansible's check mode")
    checking = dataclasses.replace(run.options, check=True)
    try:
        play(run, "provision.yml", wanted, [f"gpu_{name}" for name in STEPS], checking)
    except Interrupted:
        raise
    except GpuprepError as error:  # changes nothing and could not tell: no failed step of a provisioning
        return [*(deep_findings(run.playbook) if run.playbook else []), _not_compared(error)]
    assert run.playbook is not None
    return deep_findings(run.playbook) or [
        Finding("playbook", "check_mode", Status.PASS, NOTHING_TO_CHANGE, NOTHING_TO_CHANGE)
    ]


def deep_findings(result: PlaybookResult) -> list[Finding]:
    """One for each task that would change something."""
    return [
        Finding(
            task.role or "playbook",
            task.task,
            Status.FAIL,
            NOTHING_TO_CHANGE,
            "would change",
            "Ansible's check mode would change something here",
            f"gpuprep provision does it (step {task.role.removeprefix('gpu_')})" if task.role else "gpuprep provision",
            task.role,
        )
        for task in result.tasks
        if task.outcome == "changed"
    ]


def _not_compared(error: GpuprepError) -> Finding:
    why = f"Ansible's check mode did not come to its end: {error.what.splitlines()[0]}"
    log = f"; the whole log: {error.log}" if error.log else ""
    remedy = f"{error.hint or 'run drift --deep again with -v'}{log}"
    return Finding("playbook", "check_mode", Status.UNKNOWN, NOTHING_TO_CHANGE, "did not end", why, remedy)


# ---------------------------------------------------------------- --fix


def _fix(run: Run, host: Host, wanted: Wanted) -> bool:
    """Put back what can be put back, under the host's lock. False where there was nothing of that kind."""
    assert run.after is not None
    assert run.drift is not None
    planned = fixes.plan(wanted, run.after, run.findings)
    if not planned:
        run.stage("nothing that --fix can put back")
        return False
    with run.lock(host) as lock:
        for fix in planned:
            run.stop_if_cancelled()
            run.stage(fix.what)
            run.drift = dataclasses.replace(run.drift, fixes=(*run.drift.fixes, *fixes.apply(host, fix)))
        if lock.lost is not None:
            raise lock.lost
    return True
