"""Findings ─► one verdict, and the exit code that goes with it. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from gpuprep.records import Finding, Status, Verdict
from gpuprep.wanted import Wanted

GRAVEST_FIRST = (Status.FAIL, Status.UNKNOWN, Status.WARN, Status.PASS, Status.SKIP, Status.WAIVED)
EXIT_CODES = {Status.PASS: 0, Status.SKIP: 0, Status.WAIVED: 0, Status.WARN: 0, Status.FAIL: 1, Status.UNKNOWN: 3}
NAMED = 3  # findings named in the summary; the report has all


def judge(wanted: Wanted, findings: Sequence[Finding]) -> Verdict:
    """FAIL if any check failed, else UNKNOWN if any could not tell, else WARN, else PASS.

    Nothing checked is UNKNOWN: absent evidence is never PASS. SKIP and WAIVED do not count for or against.
    """
    present = {finding.status for finding in findings}
    status = next((s for s in GRAVEST_FIRST[:4] if s in present), Status.UNKNOWN)
    ordered = tuple(sorted(findings, key=lambda f: GRAVEST_FIRST.index(f.status)))
    return Verdict(status, _summary(wanted, status, ordered), ordered)


def exit_code(verdict: Verdict) -> int:
    """0 passed, 1 a check failed, 3 could not tell."""
    return EXIT_CODES[verdict.status]


def _summary(wanted: Wanted, status: Status, findings: Sequence[Finding]) -> str:
    if not findings:
        return f"UNKNOWN: nothing of profile {wanted.profile} was checked"
    counts = Counter(finding.status for finding in findings)
    said = ", ".join(f"{counts[s]} {s.value}" for s in GRAVEST_FIRST if counts[s])
    grave = [f.key for f in findings if f.status in (Status.FAIL, Status.UNKNOWN, Status.WARN)]
    more = f" and {len(grave) - NAMED} more" if len(grave) > NAMED else ""
    named = f"; {', '.join(grave[:NAMED])}{more}" if grave else ""
    if not grave and not counts[Status.PASS]:
        named = "; nothing passed and nothing failed"
    return f"{status.value}: profile {wanted.profile}, {len(findings)} checks: {said}{named}"
