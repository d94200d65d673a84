"""The straight line of drift: facts ─► findings against profile, certified run and last check ─► verdict ─► record.

Changes nothing on the host, unless `--fix` is given.
"""

from __future__ import annotations

import dataclasses

from gpuprep import baselines, checks, collect, drift, fixes, waivers
from gpuprep import verdict as judging
from gpuprep import wanted as wishing
from gpuprep.host import Host, Target
from gpuprep.profile import Profile
from gpuprep.records import Finding, PlaybookResult, RunRecord, Status
from gpuprep.runs import Line, Options, Run
from gpuprep.workflows import STEPS, measure_all, play

QUICK = ("gemm", "bandwidth")  # what `--probe quick` measures: in all at most ten seconds a GPU


def check(target: Target, profile: Profile, options: Options, line: Line) -> RunRecord:
    """Compare one host with its profile, its certified run and its last check; options.fix puts back what it can."""
    return Run("drift", target, profile, options, line).record(_check)


def _check(run: Run) -> None:
    with run.connect() as host:
        run.stage("reading facts")
        run.after = run.before = collect.snapshot(host, checks.request(run.profile), become=True)
        wanted = wishing.resolve(run.profile, run.after, judging=True)
        past = drift.Past(run.certified(), run.previous())
        run.drift = dataclasses.replace(past.facts(), probe=run.options.probe)
        _judge(run, host, wanted, past)
        if run.options.fix:
            _fix(run, host, wanted, past)


def _judge(run: Run, host: Host, wanted: wishing.Wanted, past: drift.Past) -> None:
    assert run.after is not None
    if run.options.probe == "quick" and not run.measurements:
        run.measurements = measure_all(run, host, wanted, True)
    deep = _deep(run, wanted) if run.options.deep else []
    measured = checks.comparable(run.after, run.measurements)
    baseline = run.past(measured)
    if run.drift is not None:
        run.drift = dataclasses.replace(run.drift, compared=baselines.compared(measured, baseline))
    found = drift.findings(
        wanted,
        run.after,
        past,
        run.measurements,
        asked=[result.probe for result in run.measurements],
        thresholds=run.profile.thresholds,
        baseline=baseline,
    )
    counted = waivers.apply(run.profile.waivers, run.target.name, (*found, *deep), run.started_at[:10])
    run.findings = drift.dated(counted, past.previous, run.started_at)
    run.verdict = judging.judge(wanted, run.findings)
    run.exit_code = judging.exit_code(run.verdict)


def _deep(run: Run, wanted: wishing.Wanted) -> list[Finding]:
    """Ansible's check mode over the same roles; each task that would change something is a finding."""
    checking = dataclasses.replace(run.options, check=True)
    play(run, "provision.yml", wanted, [f"gpu_{name}" for name in STEPS], checking)
    assert run.playbook is not None
    return deep_findings(run.playbook)


def deep_findings(result: PlaybookResult) -> list[Finding]:
    found = [
        Finding(
            task.role or "playbook",
            task.task,
            Status.FAIL,
            "nothing to change",
            "would change",
            "Ansible's check mode would change something here",
            f"gpuprep provision does it (step {task.role.removeprefix('gpu_')})",
            task.role,
        )
        for task in result.tasks
        if task.outcome == "changed"
    ]
    return found or [Finding("playbook", "check_mode", Status.PASS, "nothing to change", "nothing to change")]


def _fix(run: Run, host: Host, wanted: wishing.Wanted, past: drift.Past) -> None:
    assert run.after is not None
    assert run.drift is not None
    planned = fixes.plan(wanted, run.after, run.findings)
    if not planned:
        return
    with run.lock(host):
        done = tuple(fixes.apply(host, fix) for fix in planned)
    run.drift = dataclasses.replace(run.drift, fixes=done)
    run.stage("reading facts again")
    run.after = collect.snapshot(host, checks.request(run.profile), become=True)
    _judge(run, host, wanted, past)
