"""Findings ► waivers ► verdict ► exit code, for provision, validate, drift, the night and judge."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from gpuprep.checks import waivers
from gpuprep.desired.profile import Profile, Threshold, Waiver
from gpuprep.desired.state import Wanted
from gpuprep.records import Finding, RunRecord, Status, Verdict
from gpuprep.records.ended import COULD_NOT_TELL, EXIT_CODES
from gpuprep.records.findings import GRAVEST_FIRST, PROBLEMS, in_order
from gpuprep.untrusted.plaintext import one_line

NAMED = 3  # findings named in the summary; the report has all


def verdict_of(wanted: Wanted, findings: Sequence[Finding]) -> Verdict:
    """FAIL if any check failed, else UNKNOWN if any is UNKNOWN, else WARN if any is WARN, else PASS.

    Without any check: UNKNOWN, because absent evidence is never PASS. SKIP and WAIVED do not count.
    """
    status = status_of(findings)
    ordered = tuple(in_order(findings, GRAVEST_FIRST))
    return Verdict(status, _summary(wanted, status, ordered), ordered)


def status_of(findings: Sequence[Finding]) -> Status:
    """The status of these findings by the rule of judge()."""
    present = {finding.status for finding in findings}
    return next((status for status in (*PROBLEMS, Status.PASS) if status in present), Status.UNKNOWN)


def believed(record: RunRecord) -> RunRecord:
    """A record from another machine, with verdict and exit code recalculated from its findings.

    If the record's own verdict differs, it is unclear which is true: an additional UNKNOWN finding reports that. If a
    finding is FAIL, the verdict stays FAIL.
    """
    verdict = record.verdict
    if verdict is None:
        error = record.error or "it ended without a verdict"
        return dataclasses.replace(record, error=error, exit_code=COULD_NOT_TELL)
    listed = set(verdict.findings)
    findings = (*verdict.findings, *(finding for finding in record.findings if finding not in listed))
    status = status_of(findings)
    # Lists show the summary, and the status counts: the host wrote both.
    claims = [verdict.status.value, verdict.summary.partition(":")[0].strip()]
    if wrong := next((claim for claim in claims if claim != status.value), ""):
        why = "the host's verdict contradicts its findings: gpuprep did not write this result"
        remedy = (
            "find out what wrote it on the host, and check the host from here: `gpuprep drift HOST --profile PROFILE`"
        )
        doubt = Finding("result", "verdict", Status.UNKNOWN, status.value, one_line(wrong, 60), why, remedy)
        findings = (*findings, doubt)
        status = status_of(findings)
        summary = (
            f"{status.value}: its verdict, {one_line(wrong, 60)}, does not follow from its {len(findings) - 1} findings"
        )
        verdict = Verdict(status, summary, findings)
    code = EXIT_CODES[status] if not record.error else COULD_NOT_TELL
    return dataclasses.replace(record, verdict=verdict, findings=findings, exit_code=code)


def _summary(wanted: Wanted, status: Status, findings: Sequence[Finding]) -> str:
    if not findings:
        return f"UNKNOWN: nothing of profile {wanted.profile} was checked"
    counts = Counter(finding.status for finding in findings)
    counted = ", ".join(f"{counts[s]} {s.value}" for s in GRAVEST_FIRST if counts[s])
    grave = [f.key for f in findings if f.status in PROBLEMS]
    more = f" and {len(grave) - NAMED} more" if len(grave) > NAMED else ""
    named = f"; {', '.join(grave[:NAMED])}{more}" if grave else ""
    if not grave and not counts[Status.PASS]:
        named = "; nothing passed and nothing failed"
    return f"{status.value}: profile {wanted.profile}, {len(findings)} checks: {counted}{named}"


Adjust = Callable[[tuple[Finding, ...]], Sequence[Finding]]


@dataclass(frozen=True)
class Terms:
    """The terms for judging a host. The controller takes them from the profile, the night check from its plan."""

    host: str  # the host's name on the controller: a waiver may be for some hosts
    wanted: Wanted
    thresholds: Mapping[str, Threshold]
    waivers: Sequence[Waiver]
    moment: str  # UTC, ISO 8601: waivers hold or have expired by its day, and drift dates its findings with it

    @classmethod
    def of(cls, profile: Profile, host: str, wanted: Wanted, moment: str) -> Terms:
        return cls(host, wanted, profile.thresholds, profile.waivers, moment)


@dataclass(frozen=True)
class Judgement:
    findings: tuple[Finding, ...]  # in the order of the checks; the verdict has the same, worst first
    verdict: Verdict

    @property
    def exit_code(self) -> int:
        """0: passed, 1: a check failed, 3: unknown."""
        return EXIT_CODES[self.verdict.status]


def judge(terms: Terms, findings: Sequence[Finding], adjust: Adjust = tuple) -> Judgement:
    """Apply waivers, then `adjust` (a command drops findings, or adds dates), then make verdict and exit code."""
    adjusted = tuple(adjust(waivers.apply(terms.waivers, terms.host, findings, terms.moment[:10])))
    return Judgement(adjusted, verdict_of(terms.wanted, adjusted))
