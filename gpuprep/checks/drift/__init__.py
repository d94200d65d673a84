"""Is the machine still what was certified? Compares its facts with profile, certified run and last check.

    Past(certified, previous)          the two records that a check compares with, in addition to the profile
    resolve(profile, snapshot, past)   what the profile means on the machine that was certified
    findings(wanted, snapshot, past)   all checks of the profile, and differences from the past
    judge(terms, snapshot, past)       the same with waivers, dates and verdict
    compared_with_past(...)            the differences from the past alone
    dated(findings, previous, now)     findings, each with the moment since when it exists
    unseen(findings, previous, looked) earlier findings that this check could not look at
    still_failing(...)                 failures of the last check that are not shown to be gone

Runs on the controller and, at night, on the host itself.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from gpuprep import checks
from gpuprep.checks import judgement
from gpuprep.checks.baseline import uncompared
from gpuprep.checks.common import skip
from gpuprep.checks.drift import certifiedgpus, certifiedsystem, quick, samehost, sincelastcheck
from gpuprep.checks.drift.certified import Certified
from gpuprep.checks.judgement import Adjust, Judgement, Terms
from gpuprep.desired import state
from gpuprep.desired.profile import Profile, Threshold
from gpuprep.desired.state import Wanted
from gpuprep.errors import PlanRefused
from gpuprep.records import NOT_READ, DriftFacts, Finding, Missing, ProbeResult, RunRecord, Snapshot, Status, Unseen
from gpuprep.records.baseline import Baseline
from gpuprep.records.findings import DONE, findings_of
from gpuprep.records.moments import moment

GPU = re.compile(r"gpu (\d{1,4})")
HISTORY = "_history"
# What a check must do to see a finding: Unseen.needs.
FACTS, MEASUREMENT, DEEP = "facts", "measurement", "deep"
# Findings that exist only if something differs ► the finding that says that nothing differs.
SUMMARIES = (
    (certifiedgpus.ONLY_WHERE_DIFFERENT, "as_certified"),
    (sincelastcheck.ONLY_WHERE_NEW, "since_last_check"),
)
MOST_UNSEEN = 100  # findings of GPUs that were removed for good would stay forever


@dataclass(frozen=True)
class Past:
    """Two earlier records of the same host. None: there is no such record yet."""

    certified: RunRecord | None  # the newest run that passed, or the one that `baseline set` named
    previous: RunRecord | None  # the drift check before this one

    def facts(self) -> DriftFacts:
        return DriftFacts(
            certified_run=self.certified.run_id if self.certified else "",
            certified_at=self.certified.started_at if self.certified else "",
            previous_run=self.previous.run_id if self.previous else "",
            previous_at=self.previous.started_at if self.previous else "",
        )


def resolve(profile: Profile, snapshot: Snapshot, past: Past) -> Wanted:
    """The profile resolved for this host. Raises PlanRefused if the profile does not fit the host.

    A machine that lost its GPU, driver or system should still be what was certified. So the certified facts decide what
    the profile means, and the present facts are compared with that. The present facts decide only if nothing was
    certified, or if the profile is now for other machines.
    """
    certified = past.certified.after if past.certified else None
    if certified is not None:
        try:
            return state.resolve(profile, certified, judging=True)
        except PlanRefused:
            return state.resolve(profile, snapshot, judging=True)
    return state.resolve(profile, snapshot, judging=True)


def findings(
    wanted: Wanted,
    snapshot: Snapshot,
    past: Past,
    probed: Sequence[ProbeResult] = (),
    *,
    asked: Collection[str] = (),
    thresholds: Mapping[str, Threshold] | None = None,
    baseline: Baseline | None = None,
) -> tuple[Finding, ...]:
    """Findings of checks.compare, differences from the certified run and the last check, and missing baselines."""
    by_profile = checks.compare(wanted, snapshot, probed, asked=asked, thresholds=thresholds, baseline=baseline)
    since = compared_with_past(wanted, snapshot, past.certified, past.previous, by_profile)
    return (*by_profile, *since, *uncompared(snapshot, probed, baseline or {}, wanted.profile))


def judge(
    terms: Terms,
    snapshot: Snapshot,
    past: Past,
    measurements: Sequence[ProbeResult] = (),
    baseline: Baseline | None = None,
    *,
    more: Sequence[Finding] = (),
    adjust: Adjust = tuple,
) -> Judgement:
    """findings() and `more` with waivers, dates and verdict. `adjust` is applied after the dates."""
    asked = [result.probe for result in measurements]
    compared = findings(
        terms.wanted, snapshot, past, measurements, asked=asked, thresholds=terms.thresholds, baseline=baseline
    )
    return judgement.judge(terms, (*compared, *more), lambda waived: adjust(dated(waived, past.previous, terms.moment)))


def dated(findings: Sequence[Finding], previous: RunRecord | None, now: str) -> tuple[Finding, ...]:
    """Add `since` to each finding that did not pass: the first check that found it, else `now` (UTC, ISO 8601).

    The date restarts when the status changes; waivers are ignored: UNKNOWN before and FAIL now means FAIL since now.
    An invalid moment, or a moment later than now, comes from a wrong clock.
    """
    before = {(entry.key, entry.status): entry.since for entry in _open(previous) if _is_past(entry.since, now)}
    return tuple(
        finding
        if finding.status in DONE
        else dataclasses.replace(finding, since=before.get((finding.key, _status(finding))) or now)
        for finding in findings
    )


@dataclass(frozen=True)
class Looked:
    """What a check looked at. It decides whether an earlier finding that is now absent is gone or was not checked."""

    wanted: Wanted
    facts: Snapshot
    measured: bool = False  # each quick probe gave figures
    deep: bool = False  # Ansible's check mode ran

    @classmethod
    def at(cls, wanted: Wanted, facts: Snapshot, results: Sequence[ProbeResult], *, deep: bool = False) -> Looked:
        gave = {result.probe for result in results if not isinstance(result.values, Missing)}
        return cls(wanted, facts, bool(gave) and gave >= {kind.name for kind in quick.chosen(wanted)}, deep)

    def has_gpu(self, index: int) -> bool:
        gpus = self.facts.gpus
        return not isinstance(gpus, Missing) and any(gpu.uuid and gpu.index == index for gpu in gpus)


def unseen(findings: Sequence[Finding], previous: RunRecord | None, looked: Looked | None = None) -> tuple[Unseen, ...]:
    """Earlier findings that this check did not look at, for example without a measurement: their dates are kept.

    A finding that the check looked for and did not find is gone: if it comes again, it is new. Without `looked` no
    absent finding counts as gone.
    """
    statuses = {finding.key: finding.status for finding in findings}
    return tuple(
        entry
        for entry in _open(previous, looked)
        if statuses.get(entry.key, Status.SKIP) is Status.SKIP and not _is_gone(entry, statuses, looked)
    )[:MOST_UNSEEN]


def still_failing(
    findings: Sequence[Finding], previous: RunRecord | None, looked: Looked, played: Collection[str] = ()
) -> tuple[str, ...]:
    """Keys that were FAIL in the last check, unless `findings` shows that they are gone or waived.

    `played`: roles that ran since then; they repaired what Ansible's check mode had reported.
    """
    statuses = {finding.key: finding.status for finding in findings}
    closing = (Status.PASS, Status.WAIVED)
    return tuple(
        entry.key
        for entry in _open(previous, looked)
        if entry.status == Status.FAIL.value
        and statuses.get(entry.key) not in closing
        and not (entry.needs == DEEP and entry.key.partition(".")[0] in played)
        and not _is_gone(entry, statuses, looked)
    )


def _is_gone(unseen: Unseen, statuses: Mapping[str, Status], looked: Looked | None) -> bool:
    """Whether this check looked for the finding and did not find it. A SKIP did not look."""
    subject, _, prop = unseen.key.partition(".")
    if looked is None or unseen.key in statuses:
        return False
    if unseen.needs == DEEP:
        return looked.deep
    if unseen.key == "host.clock":  # the host alone has nothing to compare its clock with
        return not isinstance(looked.facts.clock_ahead_seconds, Missing)
    if unseen.needs == MEASUREMENT:
        return looked.measured and not prop.endswith(HISTORY)  # with another baseline, or none, a pass proves nothing
    of_gpu = GPU.fullmatch(subject)
    if of_gpu and not looked.has_gpu(int(of_gpu[1])):
        return False
    for props, summary in SUMMARIES:
        if of_gpu and prop in props:
            seen = [statuses.get(f"{subject}.{name}", Status.SKIP) for name in (summary, *props)]
            return any(status is not Status.SKIP for status in seen)
    return unseen.needs == FACTS


def _needs(record: RunRecord, key: str, looked: Looked | None, by_facts: Callable[[], Collection[str]]) -> str:
    """What a check must do to see the finding `key` of `record`: FACTS, MEASUREMENT or DEEP; "" if unknown."""
    subject, _, prop = key.partition(".")
    if subject == "playbook" or subject.startswith("gpu_"):
        return DEEP
    if subject == "speed" or prop.endswith(HISTORY):
        return MEASUREMENT
    if looked is None or record.after is None:
        return ""
    if not record.measurements or subject in ("waiver", "host"):
        return FACTS
    if any(prop in props for props, _ in SUMMARIES) or key in by_facts():
        return FACTS
    return MEASUREMENT


def _open(record: RunRecord | None, looked: Looked | None = None) -> list[Unseen]:
    if record is None:
        return []

    @functools.cache
    def by_facts() -> frozenset[str]:
        if looked is None or record.after is None:
            return frozenset()
        fact_findings = checks.compare(looked.wanted, record.after)
        return frozenset(finding.key for finding in fact_findings) | ALWAYS_COMPARED

    seen = [
        Unseen(finding.key, _status(finding), finding.since, _needs(record, finding.key, looked, by_facts))
        for finding in findings_of(record)
        if finding.status not in DONE and finding.since
    ]
    return [*seen, *(record.drift.unseen if record.drift else ())]


def _is_past(since: str, now: str) -> bool:
    began, current = moment(since), moment(now)
    return began is not None and (current is None or began <= current)


def _status(finding: Finding) -> str:
    return finding.waived or finding.status.value


# ---------------------------------------------------------------- the certified run and the last check

# What is compared with the certified run of every host; what each GPU has is in certifiedgpus.py.
ALWAYS_COMPARED = frozenset(
    {
        "apt.pins_certified", "cuda.package_versions", "driver.module_options", "driver.package_versions",
        "files.managed", "gpus.identity", "gpus.order", "host.identity", "host.system", "kernel.running",
        "libraries.contents", "libraries.paths", "shells.tools", "units.definition",
    }
)  # fmt: skip


def compared_with_past(
    wanted: Wanted,
    snapshot: Snapshot,
    certified: RunRecord | None,
    previous: RunRecord | None,
    by_profile: Sequence[Finding] = (),
) -> list[Finding]:
    """Findings in addition to `by_profile`, the findings of the profile on the same snapshot."""
    return [
        *_since_certified(wanted, snapshot, certified, by_profile),
        *_since_last_check(snapshot, previous, by_profile),
    ]


def _since_certified(
    wanted: Wanted, snapshot: Snapshot, record: RunRecord | None, by_profile: Sequence[Finding]
) -> list[Finding]:
    if record is None or record.after is None:
        reason = (
            "no run of this host is certified yet: the first `gpuprep validate HOST --profile PROFILE` that passes "
            "becomes the certified run"
        )
        nothing = skip("host", "since_certified", expected="as certified", actual="not compared", reason=reason)
        return [nothing, *certifiedgpus.planned(wanted, snapshot)]
    certified = Certified(record.after, record.run_id, record.started_at, by_profile, findings_of(record))
    findings = [*_same_machine(record.after, snapshot, certified), *certifiedgpus.findings(snapshot, certified)]
    return findings + certifiedsystem.findings(wanted, snapshot, certified) if wanted.installs else findings


def _same_machine(was: Snapshot, now: Snapshot, certified: Certified) -> list[Finding]:
    """Compares the machine's identity; [] if the certified run did not read it."""
    if isinstance(was.identity, Missing) or now.identity == NOT_READ:
        return []
    if isinstance(now.identity, Missing):
        return [certified.missing("host", "identity", now.identity, what="which machine this is")]
    what = samehost.change(samehost.of(was), samehost.of(now))
    if what == samehost.ANOTHER:
        text, status = "another machine answers to this name (other machine id, other hardware or GPUs)", Status.FAIL
        why = "the certified run is of another machine"
    else:
        text, status = "the machine was installed anew (another machine id on the same hardware)", Status.WARN
        why = "nothing of the certified installation is left"
    differences = [text] if what else []
    return [certified.difference("host", "identity", differences, "the same machine", why=why, status=status)]


def _since_last_check(snapshot: Snapshot, record: RunRecord | None, by_profile: Sequence[Finding]) -> list[Finding]:
    if record is None or record.after is None:
        reason = "this is the first check: counters are compared from the next check on"
        return [skip("host", "since_last_check", expected="nothing new", actual="not compared", reason=reason)]
    waived = {
        finding.key for finding in findings_of(record) if finding.status is Status.WAIVED
    }  # a waiver does not cover what is new since then
    speakers = [finding for finding in by_profile if finding.key not in waived]
    return sincelastcheck.findings(snapshot, record.after, record.started_at, speakers)
