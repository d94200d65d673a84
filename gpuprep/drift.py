"""Is it still what we certified? Profile, certified run and last check against the facts of now ─► Findings. Pure.

    past(certified, previous)          what a check is compared with besides the profile, from two records
    findings(wanted, snapshot, past)   all checks of the profile, and what differs from the past
    dated(findings, previous, now)     the same, each with the moment since when it is so

Runs on the controller and, at night, on the host itself.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpuprep import checks
from gpuprep.baselines import Baseline
from gpuprep.checks import sincecertified
from gpuprep.records import DriftFacts, Finding, ProbeResult, RunRecord, Snapshot, Status
from gpuprep.wanted import Wanted

DONE = (Status.PASS, Status.SKIP)


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
    """What checks.compare finds, and what differs from the certified run and the check before."""
    by_profile = checks.compare(wanted, snapshot, probed, asked=asked, thresholds=thresholds, baseline=baseline)
    certified = past.certified.after if past.certified else None
    previous = past.previous.after if past.previous else None
    return (*by_profile, *sincecertified.findings(wanted, snapshot, certified, previous))


def dated(found: Sequence[Finding], previous: RunRecord | None, now: str) -> tuple[Finding, ...]:
    """Each that did not pass with `since`: that of the check before if it was so then, else `now` (UTC, ISO 8601)."""
    before = _not_passed(previous)
    return tuple(
        finding if finding.status in DONE else dataclasses.replace(finding, since=before.get(finding.key) or now)
        for finding in found
    )


def _not_passed(record: RunRecord | None) -> dict[str, str]:
    if record is None:
        return {}
    found = record.verdict.findings if record.verdict else record.findings
    return {finding.key: finding.since for finding in found if finding.status not in DONE}
