"""The steps of drift: facts ─► compare with profile, certified run and last check ─► verdict ─► record.

Changes nothing on the host, unless `--fix` is given. Without probes a check is one round trip.
"""

from __future__ import annotations

from dataclasses import replace

from gpuprep import checks
from gpuprep.checks import drift
from gpuprep.checks.common import PROVISION, provision
from gpuprep.checks.drift import quick
from gpuprep.checks.drift.quick import Quick
from gpuprep.checks.judgement import Judgement
from gpuprep.desired import probes
from gpuprep.desired.profile import Profile
from gpuprep.desired.state import Wanted
from gpuprep.errors import GpuprepError, Interrupted, PlanRefused
from gpuprep.provisioning.plan import ROLES
from gpuprep.records import DriftFacts, Finding, PlaybookResult, ProbeResult, RunRecord, Snapshot, Source, Status
from gpuprep.records.baseline import compared
from gpuprep.records.evidence.shared import Probe
from gpuprep.records.moments import minute
from gpuprep.remote import Host, Target
from gpuprep.workflows import fixes, inuse, schedule_state
from gpuprep.workflows.inuse import Does
from gpuprep.workflows.measuring import one_probe
from gpuprep.workflows.provision import try_play
from gpuprep.workflows.runs import Options, ProfileRun, RunContext

NOTHING_TO_CHANGE = "nothing to change"


def check(target: Target, profile: Profile, options: Options, context: RunContext) -> RunRecord:
    """Compare one host with its profile, its certified run and its last check; options.fix repairs what it can."""
    if options.probe == "quick":
        options = replace(options, probes=probes.QUICK, quick=True)
    return ProfileRun("drift", target, profile, options, context).record(_check)


def _check(run: ProfileRun) -> None:
    with run.connect() as host:
        with run.undisturbed(host):
            facts = run.draft.before = _look(run, host, "reading facts")
            _refuse_taken_back(run, facts)
            check = Check(run, host, drift.Past(run.certified(), run.previous()))
            wanted = drift.resolve(run.profile, facts, check.past)
            seen = check.measure(wanted, facts) if run.options.probe == "quick" else Quick(facts)
            judgement = check.judge(wanted, seen)
        if run.options.fix and check.fix(wanted, seen.facts, judgement):
            seen = replace(seen, facts=_look(run, host, "reading facts again"))
            again = check.judge(wanted, seen)
            check.note(
                replace(check.comparison, fixes=fixes.seen(check.comparison.fixes, judgement.findings, again.findings))
            )
            schedule_state.renew(run, host)


def _refuse_taken_back(run: ProfileRun, facts: Snapshot) -> None:
    """Say that the host was unprovisioned, in place of all that it lacks. An agent there: somebody provisioned it."""
    gone = run.taken_back()
    if gone is not None and not isinstance(facts.agent_installed_version, str):
        raise PlanRefused(
            [f"{run.target.name}: run {gone[0]} unprovisioned it at {minute(gone[1])}: there is nothing to compare"],
            "`gpuprep provision HOST --profile PROFILE` sets it up again",
            where=run.target.name,
        )


def _look(run: ProfileRun, host: Host, what: str) -> Snapshot:
    run.stop_if_cancelled()
    facts = run.draft.after = run.look(host, what)
    return facts


class Check:
    """One check of a host whose facts were read. `comparison` is the part of the record that is known so far."""

    def __init__(self, run: ProfileRun, host: Host, past: drift.Past) -> None:
        self._run, self._host, self.past = run, host, past
        self.comparison = run.draft.drift = replace(past.facts(), probe=run.options.probe)

    def note(self, comparison: DriftFacts) -> None:
        self.comparison = self._run.draft.drift = comparison

    def measure(self, wanted: Wanted, facts: Snapshot) -> Quick:
        run, host = self._run, self._host
        arguments = probes.arguments(run.profile, wanted, quick=True)
        run.expect([], quick.chosen(wanted))

        def probe(kind: Probe, source: Source) -> ProbeResult:
            return one_probe(run, host, kind, arguments, source)

        def give_way(_: Snapshot, busy: str) -> Finding:
            run.stage(f"not measuring: {busy}")
            self.note(replace(self.comparison, probe_skipped=busy))
            return quick.unmeasured(busy)

        return quick.measure(wanted, facts, lambda what: _look(run, host, what), probe, give_way)

    def judge(self, wanted: Wanted, seen: Quick) -> Judgement:
        run, past = self._run, self.past
        deep = _deep(run, wanted) if run.options.deep else []
        measured = checks.comparable(seen.facts, seen.results)
        baseline = run.past(measured)
        self.note(replace(self.comparison, compared=compared(measured, baseline)))
        judgement = run.draft.judgement = drift.judge(
            run.terms(wanted),
            seen.facts,
            past,
            seen.results,
            baseline,
            more=(*seen.unmeasured, *deep),
            adjust=lambda dated: fixes.offered(wanted, seen.facts, dated, fixing=run.options.fix),
        )
        looked = drift.Looked.at(wanted, seen.facts, seen.results, deep=run.options.deep)
        self.note(replace(self.comparison, unseen=drift.unseen(judgement.findings, past.previous, looked)))
        return judgement

    def fix(self, wanted: Wanted, facts: Snapshot, judgement: Judgement) -> bool:
        """Repair what can be repaired, under the host's lock. False if there was nothing to repair."""
        run, host = self._run, self._host
        planned = fixes.plan(wanted, facts, judgement.findings)
        if not planned:
            run.stage("nothing that --fix can put back")
            return False
        does = Does(gpus=any(fix.disturbs for fix in planned))
        if not inuse.is_free(run, facts, does):
            inuse.wait(run, host, facts, does)
        with run.lock(host) as lock:
            for fix in planned:
                run.stop_if_cancelled()
                run.stage(fix.what)
                self.note(replace(self.comparison, fixes=(*self.comparison.fixes, *fixes.apply(host, fix))))
            if lock.lost is not None:
                raise lock.lost
        return True


# ---------------------------------------------------------------- --deep


def _deep(run: ProfileRun, wanted: Wanted) -> list[Finding]:
    """Ansible's check mode over the same roles; each task that would change something is a finding."""
    if not wanted.installs:
        reason = "gpuprep has no packages for this system, so the roles have nothing to compare"
        return [Finding("playbook", "check_mode", Status.SKIP, NOTHING_TO_CHANGE, "not run", reason)]
    run.stage("comparing with Ansible's check mode")
    checking = replace(run.options, check=True)
    try:
        outcome = try_play(run, "provision.yml", wanted, ROLES[1:], checking)
    except Interrupted:
        raise
    except GpuprepError as error:  # check mode changes nothing: its failure is no failed provisioning step
        return [_not_compared(error)]
    if isinstance(outcome, PlaybookResult):
        passed = Finding("playbook", "check_mode", Status.PASS, NOTHING_TO_CHANGE, NOTHING_TO_CHANGE)
        return deep_findings(outcome) or [passed]
    if isinstance(outcome.error, Interrupted):
        raise outcome.error
    return [*deep_findings(outcome.result), _not_compared(outcome.error)]


def deep_findings(result: PlaybookResult) -> list[Finding]:
    """A finding for each task that would change something."""
    return [
        Finding(
            task.role or "playbook",
            task.task,
            Status.FAIL,
            NOTHING_TO_CHANGE,
            "would change",
            "Ansible's check mode would change something here",
            provision(task.role) or f"`{PROVISION}`",
            task.role,
        )
        for task in result.tasks
        if task.outcome == "changed"
    ]


def _not_compared(error: GpuprepError) -> Finding:
    why = f"Ansible's check mode did not finish: {error.what.splitlines()[0]}"
    log = f"; the whole log: {error.log}" if error.log else ""
    remedy = f"{error.hint or 'run drift --deep again with -v'}{log}"
    return Finding("playbook", "check_mode", Status.UNKNOWN, NOTHING_TO_CHANGE, "did not end", why, remedy)
