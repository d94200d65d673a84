"""The steps of provision, plan, tune and validate. The only module that sees every stage; each ends in a RunRecord.

An expected error ends the steps early: the record then contains what was found so far and the error in plain words.
It is stored all the same, so that history shows failures and interruptions too.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gpuprep import checks, doctor
from gpuprep.checks.common import FIRST_FAILURE, INTERRUPTED, RESTART
from gpuprep.checks.judgement import Adjust, Judgement, judge
from gpuprep.desired import loading, modules, probes
from gpuprep.desired.profile import Profile
from gpuprep.desired.proposal import BASE, Proposal, propose
from gpuprep.desired.state import Wanted, check_profile, resolve
from gpuprep.errors import GpuprepError, Interrupted, PlanRefused, ProvisionFailed, UsageError
from gpuprep.provisioning import ansible_run
from gpuprep.provisioning.plan import make as make_plan
from gpuprep.provisioning.plan import role_variables
from gpuprep.records import (
    Finding,
    Missing,
    Plan,
    PlaybookResult,
    ProbeResult,
    ProfileRef,
    RunRecord,
    Snapshot,
    Source,
    Status,
    Step,
)
from gpuprep.records.baseline import Measured
from gpuprep.records.evidence.shared import Probe
from gpuprep.records.findings import need_reboot
from gpuprep.records.recorded_options import STEPS
from gpuprep.remote import Host, HostLock, Target, watch
from gpuprep.workflows import certify, effort, inuse, measuring, schedule_state, sources
from gpuprep.workflows.effort import Effort
from gpuprep.workflows.inuse import Does
from gpuprep.workflows.measuring import one_probe
from gpuprep.workflows.playing import played
from gpuprep.workflows.runs import Options, ProfileRun, RunContext
from gpuprep.workflows.sources import run_variables

# ---------------------------------------------------------------- a plan without --profile


class Proposing(ProfileRun):
    """A ProfileRun whose profile is chosen after the facts are read. Until then it is base, for every GPU."""

    def __init__(self, command: str, target: Target, options: Options, context: RunContext) -> None:
        super().__init__(command, target, loading.load(BASE), options, context)
        self._profile = None  # no profile is on record before there is one
        self.proposal: Proposal | None = None

    def look(self, host: Host, what: str = "reading facts") -> Snapshot:
        facts = super().look(host, what)
        if self.proposal is None:
            self.take(propose(facts))
        return facts

    def take(self, proposal: Proposal) -> None:
        self.proposal = proposal
        self.profile = loading.load(proposal.profile)
        self._profile = ProfileRef(self.profile.name, self.profile.path, self.profile.sha256)
        if proposal.gpus:
            self.stage(f"profile {proposal.profile}, proposed for {proposal.gpus}")


@dataclass(frozen=True)
class Proposed:
    """`proposal` is None if the facts could not be read; `effort` is None without a plan."""

    record: RunRecord
    proposal: Proposal | None
    effort: Effort | None


def plan_proposing(target: Target, options: Options, context: RunContext) -> Proposed:
    """As plan, by a proposed profile; the plan's notes say so. Changes nothing."""
    run = Proposing("plan", target, as_check(options), context)
    record = run.record(plan_only, keep=False)
    if record.error or run.proposal is None or record.plan is None:
        return Proposed(record, run.proposal, None)
    name = run.proposal.profile
    note = f"profile {name} is proposed, for {run.proposal.why}; --profile {name} says the same, --profile FILE another"
    with_note = dataclasses.replace(record.plan, notes=(note, *record.plan.notes))
    return Proposed(dataclasses.replace(record, plan=with_note), run.proposal, run.effort)


# ---------------------------------------------------------------- capacity


PROFILE = "base"  # of a host for which nobody names one: any GPU


def capacity(target: Target, profile: Profile, options: Options, context: RunContext) -> RunRecord:
    """Measures and judges. Changes nothing."""
    return ProfileRun("capacity", target, profile, options, context).record(_measure_capacity)


def _measure_capacity(run: ProfileRun) -> None:
    with run.connect() as host:
        facts = run.draft.before = run.look(host)
        wanted = resolve(run.profile, facts, judging=True)
        run.expect([], [probes.CAPACITY])
        arguments = probes.arguments(run.profile, wanted, quick=run.options.quick)
        arguments["capacity"] = not run.options.quick
        with run.undisturbed(host):
            run.stop_if_cancelled()
            result = one_probe(run, host, probes.CAPACITY, arguments, facts.source)
            run.stop_if_cancelled()
            after = run.draft.after = run.look(host, "reading facts again, after the load")
            findings = checks.compare_figures(
                wanted, after, run.draft.measurements, asked=[result.probe], thresholds=run.profile.thresholds
            )
            run.draft.judgement = judge(run.terms(wanted), findings, set_aside(run.options))


# ---------------------------------------------------------------- provision, plan, tune, validate


# The step of a finding that no role can repair, only the user.
OF_SUBJECT = {"ffmpeg": "gpu_codec", "ffprobe": "gpu_codec", "extras": "gpu_extras"}
KEPT_NOT = f"the GPU did not keep it; {RESTART}; if that does not help, show the provider this report"
TUNE_STEPS = ("agent", "tuning")
CODEC_BUILD = "gpuprep-ffmpeg-build.service"  # gpu_codec_unit of the role: it outlives a connection, but not the user


def check_request(profile: Profile, options: Options) -> None:
    """Reject impossible requests before any machine is touched. Raises PlanRefused, UsageError."""
    for name in (*options.only, *options.skip):
        if name not in STEPS:
            raise UsageError(f"there is no step {name!r}", f"steps are {', '.join(STEPS)}")
    if not chosen_steps(options):
        raise UsageError("--only and --skip leave no step", "drop one of them, or name fewer steps in --skip")
    for name in options.probes:
        if name not in (*probes.NAMES, probes.FACTS):
            known = f"{', '.join(probes.NAMES)}, or {probes.FACTS} for none of them"
            raise UsageError(f"there is no probe {name!r}", f"probes are {known}")
    if reasons := check_profile(profile):
        raise PlanRefused(
            [str(reason) for reason in reasons], f"change profile {profile.name} ({profile.path})", where=profile.name
        )


def provision(target: Target, profile: Profile, options: Options, context: RunContext) -> RunRecord:
    """Plan, run the roles of the plan, read the facts again, judge."""
    run = ProfileRun("provision", target, profile, options, context)
    return run.record(lambda run: _converge(run, "provision.yml"))


def tune(target: Target, profile: Profile, options: Options, context: RunContext) -> RunRecord:
    """As provision, for the agent and the tuning only; the rest of the profile is not judged."""
    run = ProfileRun("tune", target, profile, dataclasses.replace(options, only=TUNE_STEPS), context)
    return run.record(lambda run: _converge(run, "tune.yml"))


def plan(target: Target, profile: Profile, options: Options, context: RunContext) -> RunRecord:
    """What provision would do and why. Changes nothing and is not stored."""
    return ProfileRun("plan", target, profile, as_check(options), context).record(plan_only, keep=False)


def validate(target: Target, profile: Profile, options: Options, context: RunContext) -> RunRecord:
    """Facts and measurements against the profile. Changes nothing."""
    return ProfileRun("validate", target, profile, options, context).record(_validate)


def as_check(options: Options) -> Options:
    return dataclasses.replace(options, check=True)


def plan_only(run: ProfileRun) -> None:
    with run.connect() as host:
        _plan(run, host)


def _validate(run: ProfileRun) -> None:
    with run.connect() as host:
        run.check_unchanged(host)
        facts = run.draft.before = run.draft.after = run.look(host)
        wanted = resolve(run.profile, facts, judging=True)
        kinds = _probes(run, wanted, measure=True)
        run.expect([], probes.in_turn(kinds, first_failure=run.options.first_failure))
        with run.undisturbed(host):
            _judge(run, host, wanted, facts, measure=True)


def _converge(run: ProfileRun, book: str) -> None:
    options = run.options
    with run.connect() as host:
        if options.check:
            planned = _plan(run, host)
            if options.deep or options.diff:
                _play_planned(run, book, planned)
            return

        def see() -> tuple[Planned, Snapshot, Does]:
            planned = _plan(run, host)
            return planned, planned.facts, Does.of(planned.plan.steps, options, run.target)

        def work(planned: Planned, lock: HostLock) -> tuple[Planned, PlaybookResult]:
            roles = _roles(run, planned)
            kinds = _probes(run, planned.wanted, measure=bool(roles)) if options.validate else ()
            run.expect(roles, probes.in_turn(kinds))
            result = _play_planned(run, book, planned)
            if lock.lost is not None:
                raise lock.lost
            return planned, result

        planned, result = inuse.when_free(run, host, see, work)
        changed = result is not ansible_run.NOT_NEEDED
        if options.validate:
            facts = run.draft.after = run.look(host, "reading facts again") if changed else planned.facts
            # If no role ran, nothing is measured: a finished host is recognised in seconds, and `validate` measures it.
            _judge(run, host, planned.wanted, facts, measure=changed)
        else:
            run.stage("not validated, as you asked (--no-validate): there is no verdict")
        if changed:
            schedule_state.renew(run, host)


@dataclass(frozen=True)
class Planned:
    """A host's facts, what the profile means on this host, and the plan."""

    facts: Snapshot
    wanted: Wanted
    plan: Plan


def _plan(run: ProfileRun, host: Host) -> Planned:
    """Facts ─► what the profile means on this host ─► findings ─► plan."""
    facts = run.draft.before = run.look(host)
    wanted = resolve(run.profile, facts, steps=chosen_steps(run.options))
    findings = run.draft.findings = checks.compare(wanted, facts)
    made = _chosen(make_plan(run.target.name, wanted, findings), findings, run.options)
    if run.options.check:
        run.effort = effort.of(made, wanted.driver.source, *run.provisions(facts), local=run.target.local)
        made = effort.onto(made, run.effort)
    notes = sources.check(run, host, wanted, facts, made, findings)
    busy = inuse.note(facts, Does.of(made.steps, run.options, run.target)) if run.options.check else ()
    if wanted.driver.modules == modules.DKMS and any(step.role == "gpu_driver" for step in made.steps):
        others = modules.not_built(facts)
        busy = (*busy, *others)
        for sentence in others if not run.options.check else ():  # before anything is changed
            run.stage(sentence)
    made = run.draft.plan = dataclasses.replace(made, notes=(*busy, *made.notes, *notes))
    names = ", ".join(step.role.removeprefix("gpu_") for step in made.steps)
    run.stage(f"plan: {names}" if names else "plan: nothing to do")
    return Planned(facts, wanted, made)


def _play_planned(run: ProfileRun, book: str, planned: Planned) -> PlaybookResult:
    roles = _roles(run, planned)
    if not roles:
        run.draft.playbook = ansible_run.NOT_NEEDED
        return ansible_run.NOT_NEEDED
    return play(run, book, planned.wanted, roles, run.options)


def _roles(run: ProfileRun, planned: Planned) -> list[str]:
    """The roles of the plan; with --deep all chosen roles."""
    if run.options.deep:
        return [f"gpu_{name}" for name in chosen_steps(run.options)]
    return [step.role for step in planned.plan.steps]


def play(run: ProfileRun, book: str, wanted: Wanted, roles: Sequence[str], options: Options) -> PlaybookResult:
    """As try_play, but raises the failure of the playbook, after a look at what it left."""
    outcome = try_play(run, book, wanted, roles, options)
    if isinstance(outcome, ansible_run.Failure):
        if not options.check and isinstance(outcome.error, ProvisionFailed):
            _see_what_is_left(run, wanted)
            _diagnose(run, outcome.error)
        raise outcome.error
    return outcome


def _diagnose(run: ProfileRun, error: ProvisionFailed) -> None:
    """What doctor knows of the failed step's own output says more than the advice that fits every failure.

    A message of our own roles, with their advice, is no output of a program.
    """
    before = run.draft.before
    system = None if before is None else doctor.DNF if before.apt is None else doctor.APT
    message = (error.what,) if error.hint == ansible_run.REPAIR_IT else ()
    if known := doctor.cause("\n".join((*message, *error.last_lines)), system):
        error.hint = f"{known}; then run the same command again: it continues from there"


def _see_what_is_left(run: ProfileRun, wanted: Wanted) -> None:
    """Facts and findings after a failed step: reports must not show the machine as it was before.

    If they cannot be read, the record keeps those from before and has no `after`.
    """
    if run.host is None:
        return
    try:
        run.draft.after = run.look(run.host, "reading facts after the failed step")
    except GpuprepError as error:  # the user must see the failed step, not this error
        run.stage(f"the facts after the failed step could not be read: {error}")
    else:
        run.draft.findings = checks.compare(wanted, run.draft.after)


def try_play(
    run: ProfileRun, book: str, wanted: Wanted, roles: Sequence[str], options: Options
) -> PlaybookResult | ansible_run.Failure:
    """Run `roles` on the host; with options.check nothing is changed. Raises what keeps the playbook from starting."""
    run.stop_if_cancelled()
    variables = run_variables(run, role_variables(wanted))
    return played(run, book, variables, options, roles=roles, units=(CODEC_BUILD,))


def _judge(run: ProfileRun, host: Host, wanted: Wanted, facts: Snapshot, *, measure: bool) -> None:
    run.stop_if_cancelled()
    kinds = _probes(run, wanted, measure=measure)
    before = facts

    def has_failed() -> bool:
        ended = {result.probe for result in run.draft.measurements}
        so_far = [kind for kind in kinds if kind.name in ended]
        return _judge_measured(run, wanted, facts, before, so_far)[2].verdict.status is Status.FAIL

    try:
        _measure(run, host, wanted, facts.source, kinds, has_failed)
        if any(kind.measures for kind in kinds) and run.draft.measurements:
            # Errors that appear only under load.
            facts = run.draft.after = run.look(host, "reading facts again, after the load")
    except Interrupted:
        # What was measured is judged as ever; of the rest the findings say that it was interrupted.
        kept = len(run.draft.measurements)
        run.draft.measurements = run.draft.all_measured()
        run.draft.begun.clear()
        some = any(result.partial for result in run.draft.measurements[kept:])
        _add_unmeasured(run, kinds, facts.source, INTERRUPTED)
        run.draft.judgement = _judge_measured(run, wanted, facts, before, kinds)[2]
        half = ", with what the next one had measured by then" if some else ""
        more = f"; {kept} of {len(kinds)} probes had ended, and their figures are kept{half}" if kinds else ""
        raise watch.interrupted(run.target.name, more) from None
    _add_unmeasured(run, kinds, facts.source, FIRST_FAILURE)
    findings, measured, judgement = _judge_measured(run, wanted, facts, before, kinds)
    run.draft.judgement = judgement
    # Figures with a waived finding do not become a baseline for later runs.
    asked = [kind.name for kind in kinds]
    of_probes = {finding.key for finding in checks.compare_figures(wanted, facts, run.draft.measurements, asked=asked)}
    waived = any(finding.status is Status.WAIVED and finding.key in of_probes for finding in judgement.findings)
    if judgement.verdict.status is Status.PASS:
        doubts = certify.standing(run, wanted, facts, findings)
        run.baseline = {} if waived or doubts.worse else measured


def _add_unmeasured(run: ProfileRun, kinds: Sequence[Probe], source: Source, reason: str) -> None:
    """Results of the probes that did not run, so that each of them is UNKNOWN and says why."""
    have = {result.probe for result in run.draft.measurements}
    rest = [kind for kind in kinds if kind.name not in have]
    run.draft.measurements += tuple(ProbeResult(kind.name, source, Missing(reason, kind.what), 0.0) for kind in rest)


def _judge_measured(
    run: ProfileRun, wanted: Wanted, facts: Snapshot, before: Snapshot, kinds: Sequence[Probe]
) -> tuple[Sequence[Finding], Measured, Judgement]:
    """Judge what is in the draft: (findings before waivers, figures that later runs are compared with, judgement)."""
    measurements = run.draft.measurements
    measured = checks.comparable(facts, measurements)
    findings = checks.compare(
        wanted,
        facts,
        measurements,
        asked=[kind.name for kind in kinds],
        thresholds=run.profile.thresholds,
        baseline=run.past(measured),
        before=before,
    )
    aside = set_aside(run.options)
    return findings, measured, judge(run.terms(wanted), findings, lambda found: _still_so(run, aside(found)))


def _still_so(run: ProfileRun, findings: Sequence[Finding]) -> Sequence[Finding]:
    """What failed before the run and after it, although its step was done: the same command would do the same again."""
    playbook, planned = run.draft.playbook, run.draft.plan
    if playbook is None or playbook.status != "successful" or planned is None or need_reboot(findings):
        return findings
    played = {step.role for step in planned.steps}
    before = {finding.key for finding in run.draft.findings if finding.status is Status.FAIL}
    tasks = f"`gpuprep report {run.run_id}` has what each task did, {playbook.log} all that Ansible said"
    authors = f"{tasks}; show both to gpuprep's authors"
    return [
        dataclasses.replace(
            finding,
            remedy=f"this run did the step {finding.role.removeprefix('gpu_')}, but the finding remains: "
            + (KEPT_NOT if finding.subject.startswith("gpu ") else authors),
            role="",
        )
        if finding.status is Status.FAIL and finding.role in played and finding.key in before
        else finding
        for finding in findings
    ]


def _measure(
    run: ProfileRun,
    host: Host,
    wanted: Wanted,
    source: Source,
    kinds: Sequence[Probe],
    has_failed: Callable[[], bool],
) -> None:
    early = has_failed if run.options.first_failure else None
    if early and early():
        return
    measuring.measure(run, host, kinds, probes.arguments(run.profile, wanted, quick=run.options.quick), source, early)


def _probes(run: ProfileRun, wanted: Wanted, *, measure: bool) -> tuple[Probe, ...]:
    without = set(STEPS) - set(chosen_steps(run.options))
    return probes.chosen(wanted, probes=run.options.probes, without=without, measure=measure)


def worst(codes: Sequence[int]) -> int:
    """The exit code of several hosts: an interruption, then 4, 3, 2, 1, 0."""
    return next((code for code in (130, 4, 3, 2, 1) if code in codes), 0)


def chosen_steps(options: Options) -> list[str]:
    return [name for name in STEPS if is_chosen(f"gpu_{name}", options)]


def is_chosen(role: str, options: Options) -> bool:
    name = role.removeprefix("gpu_")
    return name not in options.skip and (not options.only or name in options.only or name == "preflight")


def _chosen(plan: Plan, findings: Sequence[Finding], options: Options) -> Plan:
    kept = tuple(step for step in plan.steps if is_chosen(step.role, options))
    left_out = [step.role.removeprefix("gpu_") for step in plan.steps if step not in kept]
    if "agent" in left_out and any(step.role == "gpu_tuning" for step in kept):
        reason = "step tuning starts gpuprep's agent, which this host lacks; works: `--only agent,tuning`"
        raise PlanRefused([reason], "nothing was changed on the host", where=plan.host)
    if not left_out:
        return plan
    # Each provision records it at its end. One that was broken off just before leaves nothing else to do.
    unrecorded = tuple(f.reason for f in findings if f.key == "provenance.file" and f.status is Status.FAIL)
    if unrecorded and not kept:
        kept = (Step("gpu_preflight", "Record what is installed, from where, and by which run", unrecorded),)
    note = f"left out by --only or --skip: {', '.join(left_out)}"
    return dataclasses.replace(plan, steps=kept, notes=(*plan.notes, note))


def set_aside(options: Options) -> Adjust:
    """A function that turns findings of left-out steps into SKIP; the reason names the status it would have been."""
    return lambda findings: [_set_aside(finding, options) for finding in findings]


def _set_aside(finding: Finding, options: Options) -> Finding:
    role = finding.role or OF_SUBJECT.get(finding.subject, "")
    if not role or is_chosen(role, options) or finding.status in (Status.PASS, Status.WAIVED):
        return finding
    reason = f"{role.removeprefix('gpu_')} was left out of this run; it would have been {finding.status.value}"
    return dataclasses.replace(finding, status=Status.SKIP, reason=reason)
