"""The straight lines: provision, plan, tune, validate. The only place that sees every stage; each ends in a RunRecord.

An expected error ends the line early: the record then holds what was found until then and the error in plain
words. It is stored all the same, so that history shows failures and interruptions too.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from gpuprep import checks
from gpuprep.checks import verdict as judging
from gpuprep.checks import waivers
from gpuprep.desired import probes
from gpuprep.desired import state as wishing
from gpuprep.desired.loading import Profile
from gpuprep.errors import AgentFailed, PlanRefused, UsageError
from gpuprep.provisioning import ansible_run
from gpuprep.provisioning import plan as planning
from gpuprep.records import Finding, Missing, Plan, ProbeResult, RunRecord, Status
from gpuprep.remote import Host, Target, agent_client
from gpuprep.workflows.run_variables import run_variables
from gpuprep.workflows.runs import Line, Options, Run

# Names a user gives to --only and --skip, in the order in which the roles run.
STEPS = ("driver", "agent", "tuning", "cuda", "cudnn", "codec", "extras")
TUNE_STEPS = ("agent", "tuning")


def check_request(profile: Profile, options: Options) -> None:
    """What can be refused before any machine is touched. Raises PlanRefused, UsageError."""
    for name in (*options.only, *options.skip):
        if name not in STEPS:
            raise UsageError(f"there is no step {name!r}", f"steps are {', '.join(STEPS)}")
    for name in options.probes:
        if name not in (*probes.NAMES, probes.FACTS):
            known = f"{', '.join(probes.NAMES)}, or {probes.FACTS} for none of them"
            raise UsageError(f"there is no probe {name!r}", f"probes are {known}")
    if reasons := wishing.check_profile(profile):
        raise PlanRefused(
            [str(reason) for reason in reasons], f"change profile {profile.name} ({profile.path})", where=profile.name
        )


def provision(target: Target, profile: Profile, options: Options, line: Line) -> RunRecord:
    """Plan, run the roles that the plan names, look again, judge."""
    return Run("provision", target, profile, options, line).record(lambda run: _converge(run, "provision.yml"))


def tune(target: Target, profile: Profile, options: Options, line: Line) -> RunRecord:
    """As provision, for the agent and the tuning only; the rest of the profile is not judged."""
    options = dataclasses.replace(options, only=TUNE_STEPS)
    return Run("tune", target, profile, options, line).record(lambda run: _converge(run, "tune.yml"))


def plan(target: Target, profile: Profile, options: Options, line: Line) -> RunRecord:
    """What provision would do and why. Changes nothing and is not stored."""
    options = dataclasses.replace(options, check=True)
    return Run("plan", target, profile, options, line).record(_plan_only, keep=False)


def validate(target: Target, profile: Profile, options: Options, line: Line) -> RunRecord:
    """Facts and measurements against the profile. Changes nothing."""
    return Run("validate", target, profile, options, line).record(_validate)


def _plan_only(run: Run) -> None:
    with run.connect() as host:
        _look(run, host)


def _validate(run: Run) -> None:
    with run.connect() as host:
        run.stage("reading facts")
        run.after = run.before = agent_client.snapshot(host, checks.request(run.profile), become=True)
        wanted = wishing.resolve(run.profile, run.after, judging=True)
        run.expect([], _probes(run, wanted, measure=True))
        _judge(run, host, wanted, measure=True)


def _converge(run: Run, book: str) -> None:
    options = run.options
    with run.connect() as host:
        if options.check:
            wanted = _look(run, host)
            if options.deep or options.diff:
                _play(run, book, wanted)
            return
        with run.lock(host) as lock:
            wanted = _look(run, host)
            roles = _roles(run)
            run.expect(roles, _probes(run, wanted, measure=bool(roles)) if options.validate else ())
            _play(run, book, wanted)
            if lock.lost is not None:
                raise lock.lost
        if not options.validate:
            run.stage("not validated, as asked: there is no verdict")
            return
        changed = run.playbook is not ansible_run.NOT_NEEDED
        if changed:
            run.stage("reading facts again")
            run.after = agent_client.snapshot(host, checks.request(run.profile), become=True)
        else:
            run.after = run.before
        # A host on which nothing ran was measured when it was made, and is by `validate`: it is recognised in seconds.
        _judge(run, host, wanted, measure=changed)


def _look(run: Run, host: Host) -> wishing.Wanted:
    """Facts ─► what the profile means on this host ─► findings ─► plan."""
    run.stage("reading facts")
    run.before = agent_client.snapshot(host, checks.request(run.profile), become=True)
    wanted = wishing.resolve(run.profile, run.before)
    run.findings = checks.compare(wanted, run.before)
    run.plan = _chosen(planning.make(run.target.name, wanted, run.findings), run.options)
    names = ", ".join(step.role.removeprefix("gpu_") for step in run.plan.steps)
    run.stage(f"plan: {names}" if names else "plan: nothing to do")
    return wanted


def _play(run: Run, book: str, wanted: wishing.Wanted) -> None:
    roles = _roles(run)
    if not roles:
        run.playbook = ansible_run.NOT_NEEDED
        return
    play(run, book, wanted, roles, run.options)


def _roles(run: Run) -> list[str]:
    """Those of the plan, or with --deep all that are chosen."""
    assert run.plan is not None
    if run.options.deep:
        return [f"gpu_{name}" for name in STEPS if is_chosen(f"gpu_{name}", run.options)]
    return [step.role for step in run.plan.steps]


def play(run: Run, book: str, wanted: wishing.Wanted, roles: Sequence[str], options: Options) -> None:
    """Run `roles` on the host; with options.check nothing is changed. Raises what the playbook ended with."""
    run.stop_if_cancelled()
    outcome = ansible_run.run(
        run.target,
        roles=roles,
        variables=run_variables(run, planning.role_variables(wanted)),
        check=options.check,
        diff=options.diff,
        become_password=options.become_password,
        accept_new_host_key=options.accept_new_host_key,
        log_dir=run.log_dir,
        on_event=run.tell,
        cancelled=run.cancelled,
        playbook=book,
        verbosity=options.verbosity,
    )
    if isinstance(outcome, ansible_run.Failure):
        run.playbook = outcome.result
        raise outcome.error
    run.playbook = outcome


def _judge(run: Run, host: Host, wanted: wishing.Wanted, *, measure: bool) -> None:
    assert run.after is not None
    run.stop_if_cancelled()
    run.measurements = measure_all(run, host, wanted, measure)
    asked = [result.probe for result in run.measurements]
    if any(kind.measures and kind.name in asked for kind in probes.KINDS):
        run.stage("reading facts again, after the load")  # errors that only work brings about
        run.after = agent_client.snapshot(host, checks.request(run.profile), become=True)
    measured = checks.comparable(run.after, run.measurements)
    findings = checks.compare(
        wanted,
        run.after,
        run.measurements,
        asked=asked,
        thresholds=run.profile.thresholds,
        baseline=run.past(measured),
    )
    counted = waivers.apply(run.profile.waivers, run.target.name, findings, run.started_at[:10])
    run.findings = tuple(set_aside(finding, run.options) for finding in counted)
    run.verdict = judging.judge(wanted, run.findings)
    run.exit_code = judging.exit_code(run.verdict)
    # What was measured while its judgement is waived is no measure for later runs.
    of_probes = {finding.key for finding in checks.compare_figures(wanted, run.after, run.measurements, asked=asked)}
    waived = any(finding.status is Status.WAIVED and finding.key in of_probes for finding in run.findings)
    run.baseline = measured if run.verdict.status is Status.PASS and not waived else {}


def measure_all(run: Run, host: Host, wanted: wishing.Wanted, measure: bool) -> tuple[ProbeResult, ...]:
    told = probes.arguments(run.profile, wanted, quick=run.options.quick)
    results = []
    for kind in _probes(run, wanted, measure=measure):
        run.stage(kind.what, kind.name)
        results.append(one_probe(run, host, kind, told))
        run.stop_if_cancelled()
    return tuple(results)


def _probes(run: Run, wanted: wishing.Wanted, *, measure: bool) -> tuple[probes.Kind, ...]:
    without = [name for name in STEPS if not is_chosen(f"gpu_{name}", run.options)]
    return probes.chosen(wanted, probes=run.options.probes, without=without, measure=measure)


def one_probe(run: Run, host: Host, kind: probes.Kind, told: dict[str, Any]) -> ProbeResult:
    """Its result; a probe that broke is evidence that is missing, and the others go on."""
    assert run.after is not None
    try:
        return agent_client.probe(host, kind.name, told, become=True, timeout=kind.timeout_seconds)
    except AgentFailed as error:
        run.stop_if_cancelled()
        return ProbeResult(kind.name, run.after.source, Missing("command_failed", error.what), 0.0)


def gravest(codes: Sequence[int]) -> int:
    """The exit code of several hosts: an interruption, then 4, 3, 2, 1, 0."""
    return next((code for code in (130, 4, 3, 2, 1) if code in codes), 0)


def is_chosen(role: str, options: Options) -> bool:
    name = role.removeprefix("gpu_")
    return name not in options.skip and (not options.only or name in options.only or name == "preflight")


def _chosen(plan: Plan, options: Options) -> Plan:
    kept = tuple(step for step in plan.steps if is_chosen(step.role, options))
    left_out = [step.role.removeprefix("gpu_") for step in plan.steps if step not in kept]
    if not left_out:
        return plan
    note = f"left out by --only or --skip: {', '.join(left_out)}"
    return dataclasses.replace(plan, steps=kept, notes=(*plan.notes, note))


def set_aside(finding: Finding, options: Options) -> Finding:
    """A check of a part that the user left out does not count; it says what it would have been."""
    if not finding.role or is_chosen(finding.role, options) or finding.status in (Status.PASS, Status.WAIVED):
        return finding
    reason = f"{finding.role.removeprefix('gpu_')} was left out of this run; it would have been {finding.status.value}"
    return dataclasses.replace(finding, status=Status.SKIP, reason=reason)
