"""Findings as lines of a terminal: each cause once, with what to do; what was skipped in one line a cause."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from gpuprep.records import Finding, RunRecord, Status
from gpuprep.records.findings import PROBLEMS, in_order
from gpuprep.reports import causes, commands, drifted

UNBROKEN = "\x1f"  # stands for a blank that ends no line; no text that may be shown has one


class Page(Protocol):
    """What these lines need of the page of reports/text.py."""

    def paint(self, text: str, key: Status | str) -> str: ...
    def heading(self, text: str) -> None: ...
    def text(self, text: str, indent: str = "", later: str | None = None) -> None: ...


def not_passed(
    page: Page, record: RunRecord, findings: Iterable[Finding], heading: str = "Did not pass", *, now: str = ""
) -> None:
    """The findings that did not pass. With `now`, the start of the check, each says since when it exists."""
    rest = in_order(list(findings), (*PROBLEMS, Status.WAIVED))
    not_passed_groups(page, record, causes.groups(rest, now), heading, now=now)


def not_passed_groups(
    page: Page, record: RunRecord, groups: Sequence[causes.Group], heading: str = "Did not pass", *, now: str = ""
) -> None:
    if groups and heading:
        page.heading(heading)
    for group in groups:
        _group(page, record, group, now)


def skipped(page: Page, findings: Iterable[Finding]) -> None:
    """A line a cause, with how many were skipped for it."""
    skips = [finding for finding in findings if finding.status is Status.SKIP]
    if skips:
        page.heading(f"Skipped ({len(skips)})")
    for group in causes.groups(skips):
        mark = page.paint(f"{Status.SKIP.value:<7}", Status.SKIP)
        page.text(f"{mark} {group.count}: {group.cause}", indent="  ", later=" " * 10)


def seen(finding: Finding) -> str:
    """Expected and found; a skipped check may have expected nothing."""
    wanted = f"expected {finding.expected}, " if finding.expected or finding.status is not Status.SKIP else ""
    return f"{wanted}found {finding.actual or 'nothing'}"


def dated(finding: Finding, now: str) -> str:
    return drifted.since(finding, now) if now else ""


def whole_commands(text: str) -> str:
    """Blanks inside of backticks end no line."""
    parts = text.split("`")
    if len(parts) % 2 == 0:
        return text
    return "`".join(part.replace(" ", UNBROKEN) if place % 2 else part for place, part in enumerate(parts))


def _group(page: Page, record: RunRecord, group: causes.Group, now: str) -> None:
    first, since = group.first, dated(group.first, now)
    mark = page.paint(f"{first.status.value:<7}", first.status)
    page.text(f"{mark} {group.named}", indent="  ", later=" " * 10)
    if group.same_values:
        page.text(seen(first), indent=" " * 10)
    if since:
        page.text(since, indent=" " * 10)
    if group.cause:
        page.text(f"why: {group.cause}", indent=" " * 10, later=" " * 12)
    if first.remedy:
        remedy = whole_commands(commands.expanded(first.remedy, record, group.subject))
        page.text(f"what to do: {remedy}", indent=" " * 10, later=" " * 12)
