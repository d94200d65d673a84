"""Is it still what we certified? Profile, certified run and last check against the facts of now ─► Findings. Pure.

    Past(certified, previous)          what a check is compared with besides the profile, from two records
    resolve(profile, snapshot, past)   what the profile means on the machine that was certified
    findings(wanted, snapshot, past)   all checks of the profile, and what differs from the past
    judge(terms, snapshot, past)       the same, waived, dated and judged
    dated(findings, previous, now)     findings, each with the moment since when it is so
    unseen(findings, previous)         what was so before, and this check did not look at

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
    """Two moments of the same host. None: there is no such record yet."""

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
    """The wish as it is meant for this host. Raises PlanRefused where the profile was never for it.

    A machine that lost its GPU, its driver or its system is still meant to be what was certified: so the certified
    facts say what the profile means, and those of now are compared with it. They decide only where nothing was
    certified, or where the profile has become one for another machine.
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
    """Each that did not pass with `since`: the moment of the first check that found it so, else `now` (UTC, ISO 8601).

    So means with this very status, a waiver aside: what could not be told before and fails now, fails since now.
    A moment that is none, or later than now, is of a wrong clock.
    """
    before = {(one.key, one.status): one.since for one in _open(previous) if _is_past(one.since, now)}
    return tuple(
        finding
        if finding.status in DONE
        else dataclasses.replace(finding, since=before.get((finding.key, _status(finding))) or now)
        for finding in found
    )


def unseen(found: Sequence[Finding], previous: RunRecord | None) -> tuple[Unseen, ...]:
    """What was found before and not looked at by this check, which did not measure, say: its date is kept."""
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
