"""The findings of a run on a terminal, short and in full, and the verdict, which is the last line of every page.

Short: what did not pass and why it matters, then one command; all that is left out is in the long form: `-v`, a file
of --output, or `gpuprep report RUN`. In full: each cause once, with what to do.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from gpuprep.checks import commands
from gpuprep.checks.common import is_interrupted
from gpuprep.records import Finding, RunRecord, Source, Status
from gpuprep.records.findings import GRAVEST_FIRST, PROBLEMS, findings_of, in_order, of_figures
from gpuprep.reports import causes, drifted
from gpuprep.reports.terminal import UNBROKEN, Page

MOST_CAUSES = 6  # shown in full; of the others the names
MOST_NAMES = 4  # of checks with one cause
MOST_SKIPPED = 3  # lines about what was skipped
MOST_TOLD = 120  # of an error that is printed in full elsewhere
MOST_LETTERS = 300  # of a reason: the long form shows all of it
NAME = 8  # columns of the widest status and a blank


def problems(page: Page, record: RunRecord, *, now: str = "") -> None:
    """What did not pass, and one command that repairs it or checks it again. `now`: since when it is so, too."""
    findings = in_order(findings_of(record), PROBLEMS)
    if not findings:
        return
    page.heading("Did not pass")
    groups = causes.groups(findings, now)
    for group in groups[:MOST_CAUSES]:
        cause(page, group, record, now=now)
    rest = [name for group in groups[MOST_CAUSES:] for name in group.names]
    if rest:
        more = f" and {len(rest) - 9} more" if len(rest) > 10 else ""
        shown = rest if not more else rest[:9]
        page.text(f"{len(rest)} more: {'; '.join(shown)}{more}", indent="  ", later=" " * (2 + NAME))
    to_paste(page, [record], findings)


def cause(page: Page, group: causes.Group, record: RunRecord, *, now: str = "", where: str = "") -> None:
    """One cause: status, names and values, why it matters, and what to do by hand. `where`: the hosts."""
    first = group.first
    values = value(first) if group.same_values else ""
    mark = page.paint(f"{first.status.value:<{NAME - 1}}", first.status)
    later = " " * (2 + NAME)
    page.text(f"{mark} {named(group)}{values}{where}", indent="  ", later=later)
    since = dated(first, now)
    if since:
        page.text(since, indent=later)
    if group.cause:
        page.text(
            f"why: {shortened(group.cause, MOST_LETTERS // (2 if where else 1))}", indent=later, later=later + "  "
        )
    by_hand = "" if is_interrupted(first) else _by_hand(first)  # the command below does it
    if by_hand:
        remedy = whole_commands(commands.expanded(by_hand, record, group.subject))
        page.text(f"what to do: {remedy}", indent=later, later=later + "  ")


def value(finding: Finding) -> str:
    """ ": disabled (expected enabled)", without what the reason already says."""
    redundant = finding.status in (Status.UNKNOWN, Status.WAIVED) or finding.actual in finding.reason
    actual = "" if redundant else f": {shortened(finding.actual, 80)}"
    expected = finding.expected if finding.status is not Status.UNKNOWN else ""
    return actual + (f" (expected {shortened(expected, 80)})" if expected else "")


def named(group: causes.Group) -> str:
    names = group.names
    if len(names) <= MOST_NAMES:
        return "; ".join(names)
    return f"{len(names)} checks: {'; '.join(names[: causes.FEW])} and {len(names) - causes.FEW} more"


def to_paste(page: Page, records: Sequence[RunRecord], findings: Sequence[Finding]) -> None:
    """One command on its own line, never wrapped, so that it can be pasted."""
    if repair := commands.repair(records, findings):
        page.text("To repair it:", indent="  ")
        page.lines.append(f"    {repair}")
    elif records[0].command in commands.ON_HOSTS or (records[0].command == "judge" and not of_figures(records[0])):
        rest = all(is_interrupted(finding) for finding in findings)
        page.text("Run it again:" if rest else "After that, check again:", indent="  ")
        page.lines.append(f"    {commands.same(records)}")


def skipped(page: Page, findings: Iterable[Finding]) -> None:
    """How many checks were skipped, by reason."""
    skips = [finding for finding in findings if finding.status is Status.SKIP]
    if not skips:
        return
    page.blank()
    groups = sorted(causes.groups(skips), key=lambda group: -len(group.findings))
    if len(groups) > MOST_SKIPPED:
        groups, rest = groups[: MOST_SKIPPED - 1], groups[MOST_SKIPPED - 1 :]
    else:
        rest = []
    reasons = [(len(group.findings), shortened(group.cause, 120)) for group in groups]
    for count, reason in reasons:
        page.text(f"{count} {page.paint('skipped', Status.SKIP)}: {reason}", later=" " * 4)
    if rest:
        count = sum(len(group.findings) for group in rest)
        page.text(f"{count} {page.paint('skipped', Status.SKIP)} for other reasons")


def ending(
    page: Page, record: RunRecord, word: str, line: str, *, named: bool = True, error_shown: bool = False
) -> None:
    """The verdict: the last line of every page. `named`: with the id of the run. `error_shown`: elsewhere."""
    profile = f", {record.profile.name}" if record.profile else ""
    stand_in = " (simulated)" if record.source is Source.SIMULATED else ""
    line = line.removeprefix(f"{record.host}: ").rstrip(".")
    line = shortened(line, MOST_TOLD) if error_shown else line
    summary = counts(findings_of(record)) if record.verdict and not record.error else line
    run = f", run {record.run_id}" if named else ""
    line = f"{record.host}{stand_in}{profile}: {summary}"
    if run and len(word) + len(line) + len(run) + 2 > page.width:
        if not any(record.run_id in above for above in page.lines[-1:]):
            page.text(f"run {record.run_id}")
        run = ""
    page.text(f"{page.paint(word, word)}  {line}{run}", later="  ")


def counts(findings: Sequence[Finding]) -> str:
    """ "1 FAIL, 93 PASS, 26 SKIP"."""
    by_status = Counter(finding.status for finding in findings)
    return (
        ", ".join(f"{by_status[status]} {status.value}" for status in GRAVEST_FIRST if by_status[status])
        or "nothing was checked"
    )


def shortened(text: str, most: int = MOST_LETTERS) -> str:
    return text if len(text) <= most else f"{text[: most - 1].rstrip()}…"


def _by_hand(finding: Finding) -> str:
    """The remedy, without the command that is shown once below all findings."""
    if not finding.role:
        return finding.remedy
    remedy = finding.remedy
    if remedy.startswith(commands.FIX):
        return ""
    own = commands.QUOTED.match(remedy)
    return remedy[own.end() :].lstrip(" ;,") if own else remedy


# ---------------------------------------------------------------- in full


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


def skipped_causes(page: Page, findings: Iterable[Finding]) -> None:
    """One line for each cause, with the number of skipped checks."""
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
    """No line breaks inside backticks."""
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
