"""Is the machine still what was certified? Compares its facts with profile, certified run and last check. Pure.

    Past(certified, previous)          the two records that a check compares with, in addition to the profile
    resolve(profile, snapshot, past)   what the profile means on the machine that was certified
    findings(wanted, snapshot, past)   all checks of the profile, and what differs from the past
    judge(terms, snapshot, past)       the same, waived, dated and judged
    dated(findings, previous, now)     findings, each with the moment since when it is so
    unseen(findings, previous)         earlier findings that this check could not look at

Runs on the controller and, at night, on the host itself.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpuprep import checks
from gpuprep.checks import judgement, sincecertified
from gpuprep.checks.baseline import uncompared
from gpuprep.checks.judgement import Adjust, Judgement, Terms
from gpuprep.desired import state
from gpuprep.desired.profile import Profile
from gpuprep.desired.state import Wanted
from gpuprep.errors import PlanRefused
from gpuprep.records import DriftFacts, Finding, ProbeResult, RunRecord, Snapshot, Status, Unseen
from gpuprep.records.baseline import Baseline
from gpuprep.records.findings import DONE, findings_of
from gpuprep.records.moments import moment

MOST_UNSEEN = 100  # of GPUs that are gone for good, nobody looks again


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
    thresholds: Mapping[str, Any] | None = None,
    baseline: Baseline | None = None,
) -> tuple[Finding, ...]:
    """What checks.compare finds, what differs from the certified run and the check before, and what has no baseline."""
    by_profile = checks.compare(wanted, snapshot, probed, asked=asked, thresholds=thresholds, baseline=baseline)
    since = sincecertified.findings(wanted, snapshot, past.certified, past.previous, by_profile)
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
    """findings() and `more`, judged, each with its date. `adjust` comes after the dates."""
    asked = [result.probe for result in measurements]
    compared = findings(
        terms.wanted, snapshot, past, measurements, asked=asked, thresholds=terms.thresholds, baseline=baseline
    )
    return judgement.judge(terms, (*compared, *more), lambda waived: adjust(dated(waived, past.previous, terms.moment)))


def dated(found: Sequence[Finding], previous: RunRecord | None, now: str) -> tuple[Finding, ...]:
    """Add `since` to each finding that did not pass: the first check that found it, else `now` (UTC, ISO 8601).

    The date restarts when the status changes; waivers are ignored: UNKNOWN before and FAIL now means FAIL since now.
    An invalid moment, or a moment later than now, comes from a wrong clock.
    """
    before = {(one.key, one.status): one.since for one in _open(previous) if _is_past(one.since, now)}
    return tuple(
        finding
        if finding.status in DONE
        else dataclasses.replace(finding, since=before.get((finding.key, _status(finding))) or now)
        for finding in found
    )


def unseen(found: Sequence[Finding], previous: RunRecord | None) -> tuple[Unseen, ...]:
    """Earlier findings that this check did not look at, for example without a measurement: their dates are kept."""
    looked_at = {finding.key for finding in found if finding.status is not Status.SKIP}
    return tuple(one for one in _open(previous) if one.key not in looked_at)[:MOST_UNSEEN]


def _open(record: RunRecord | None) -> list[Unseen]:
    if record is None:
        return []
    seen = [
        Unseen(one.key, _status(one), one.since) for one in findings_of(record) if one.status not in DONE and one.since
    ]
    return [*seen, *(record.drift.unseen if record.drift else ())]


def _is_past(since: str, now: str) -> bool:
    began, current = moment(since), moment(now)
    return began is not None and (current is None or began <= current)


def _status(finding: Finding) -> str:
    return finding.waived or finding.status.value
