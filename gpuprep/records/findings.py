"""The findings of a record, and groups of their statuses."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gpuprep.records import Finding, RunRecord, Status

PROBLEMS = (Status.FAIL, Status.UNKNOWN, Status.WARN)  # what counts against a host, worst first
GRAVEST_FIRST = (*PROBLEMS, Status.PASS, Status.SKIP, Status.WAIVED)  # the order of findings and of their counts
DONE = (Status.PASS, Status.SKIP)  # nothing is to be done about it; WAIVED is in neither


def of_figures(record: RunRecord) -> bool:
    """Whether the record has judged figures from elsewhere, so that its host cannot be measured again."""
    return record.command == "judge" and record.before is None and record.after is None


def findings_of(record: RunRecord) -> tuple[Finding, ...]:
    """The findings of the verdict, worst first; without a verdict those of the plan."""
    return record.verdict.findings if record.verdict else record.findings


def need_reboot(findings: Iterable[Finding]) -> bool:
    """Whether a finding that is neither passed nor waived needs a restart of the machine."""
    return any(finding.reboot and finding.status in PROBLEMS for finding in findings)


def in_order(findings: Sequence[Finding], statuses: Iterable[Status]) -> list[Finding]:
    """The findings with one of `statuses`, in the order of `statuses`."""
    return [finding for status in statuses for finding in findings if finding.status is status]
