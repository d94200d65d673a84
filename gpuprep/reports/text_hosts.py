"""Several hosts on a terminal: a table with the worst first, then each cause once with its hosts; counts at the end.

The page of sixty hosts has at most MOST_LINES lines, whatever their state: `gpuprep report RUN` has the rest of a host.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from gpuprep.checks import commands
from gpuprep.records import Finding, RunRecord
from gpuprep.records.findings import PROBLEMS, findings_of, in_order
from gpuprep.records.showable import SIMULATED
from gpuprep.reports import causes, fleet, text, text_findings
from gpuprep.reports.failures import Failed, without
from gpuprep.reports.measured import simulated
from gpuprep.reports.terminal import Page, aligned
from gpuprep.reports.text import outcome, put_back
from gpuprep.reports.text_findings import shortened, whole_commands

MOST_LINES = 80
MOST_ROWS = 40  # of hosts that did not pass
ALL_ROWS = 16  # up to so many hosts each has a row, also one that passed
MOST_NAMES = 6  # hosts named beside a cause
WIDE = 80  # width from which the table shows the ids of the runs
FEW = 3  # hosts of one outcome that still have a row each
FOLD_LINES = 9  # of the names of hosts that share one row
AT_END = 5  # lines kept free for the command and the counts
WELL = ("PASS", "DONE", "SKIP")
GPU = re.compile(r"\bgpu \d+\b")


@dataclass
class Cause:
    """One cause on several hosts."""

    finding: Finding
    group: causes.Group
    records: list[RunRecord]


def document(
    records: Sequence[RunRecord],
    *,
    color: bool = False,
    width: int = 80,
    everything: bool = False,
    as_plan: bool = False,
    stored: bool = True,
    error_shown: bool = False,
) -> str:
    """What a command prints: the page of one host, a table of several. `stored`: whether `gpuprep report` has them.

    With `everything` the whole page of each host, too. `error_shown`: the error of a single host stands elsewhere, with
    the report's command; its last line has it all the same.
    """
    pages = []
    if len(records) == 1 or everything:
        for record in records:
            if as_plan:
                pages.append(text.render_plan(record, color=color, width=width, error_shown=error_shown))
            else:
                pages.append(
                    text.render(
                        record, color=color, width=width, everything=everything, stored=stored, error_shown=error_shown
                    )
                )
    if len(records) > 1:
        pages.append(render(records, color=color, width=width, as_plan=as_plan, stored=stored))
    return "\n".join(pages)


def fleet_page(records: Sequence[RunRecord], *, color: bool = False, width: int = 80, everything: bool = False) -> str:
    """The table of hosts, also of a single one; with `everything` the whole page of each host above it.

    Lines have at most `width` columns where words allow it. `records` is not empty.
    """
    pages = [text.render(record, color=color, width=width) for record in fleet.order(records)] if everything else []
    return "\n".join([*pages, render(records, color=color, width=width)])


def render(
    records: Sequence[RunRecord],
    *,
    color: bool = False,
    width: int = 80,
    as_plan: bool = False,
    stored: bool = True,
) -> str:
    """`records` is not empty."""
    page = Page(color, max(60, width))
    if stand_ins := sum(simulated(record) for record in records):
        some = f"SIMULATED: the GPUs of {stand_ins} of these hosts are stand-ins."
        page.text(SIMULATED if stand_ins == len(records) else some)
        page.blank()
    ordered = fleet.order(records)
    _table(page, ordered, stored and not as_plan)
    if as_plan:
        _plans(page, ordered)
    else:
        _causes(page, ordered)
        _put_back(page, ordered)
    _commands(page, ordered, stored=stored, as_plan=as_plan)
    # "57 PASS, 2 FAIL, 1 UNKNOWN of 60", each status in its colour
    page.lines.append(re.sub(r"\b[A-Z]{4,}\b", lambda found: page.paint(found[0], found[0]), fleet.counts(records)))
    return page.done()


# ---------------------------------------------------------------- the table


def _table(page: Page, ordered: Sequence[RunRecord], stored: bool) -> None:
    """A row a host; of many hosts those with the same outcome share a row."""
    shared: dict[tuple[str, str], list[RunRecord]] = {}
    for record in ordered:
        shared.setdefault((outcome(record)[0], _shared_reason(record)), []).append(record)
    many = len(ordered) > ALL_ROWS
    folded = {key: listed for key, listed in shared.items() if many and (len(listed) > FEW or key[0] in WELL)}
    rows = [record for key, listed in shared.items() if key not in folded for record in listed]
    rows = [record for record in ordered if any(record is row for row in rows)]
    _rows(page, rows[:MOST_ROWS], ordered, stored)
    for (word, reason), listed in folded.items():
        _fold(page, word, [record.host for record in listed], reason)
    if rest := rows[MOST_ROWS:]:
        _fold(page, outcome(rest[0])[0], [record.host for record in rest], "and other hosts that did not pass")


def _shared_reason(record: RunRecord) -> str:
    """The key of hosts that the table may show in one row."""
    return _what(record, 200) if outcome(record)[0] not in ("PASS", "DONE") else ""


def _rows(page: Page, rows: Sequence[RunRecord], ordered: Sequence[RunRecord], stored: bool) -> None:
    if not rows:
        return
    columns = [("HOST", 28), ("VERDICT", 7)]
    columns += [("SINCE", 10)] if any(fleet.since(record) != "–" for record in rows) else []
    columns += [("PROFILE", 12)] if len({fleet.profile_of(record) for record in ordered}) > 1 else []
    columns += (
        [("RUN", 32)]
        if stored and page.width >= WIDE and any(outcome(record)[0] not in WELL for record in rows)
        else []
    )
    cells = [[_cell(head, record) for head, _ in columns] for record in rows]
    if len({simulated(record) for record in ordered}) > 1:
        cells = [
            [f"{row[0]} (simulated)" if simulated(record) else row[0], *row[1:]]
            for record, row in zip(rows, cells, strict=True)
        ]
    table = [[head for head, _ in columns]]
    for row in cells:
        short = [cell if len(cell) <= most else "" for cell, (_, most) in zip(row, columns, strict=True)]
        table.append([short[0], page.paint(short[1], short[1]), *short[2:]])
    heads, *lines = [f"{'  '.join(row)}  " for row in aligned(table)]
    page.lines.append(page.paint(f"{heads}WHAT", "bold"))
    for record, row, start in zip(rows, cells, lines, strict=True):
        page.lines += [cell for cell, (_, most) in zip(row, columns, strict=True) if len(cell) > most]
        # One line for each host: the rest is shown once, among the causes.
        room = page.width - len(heads)
        page.lines.append((start + shortened(_what(record, room), room)).rstrip())


def _cell(head: str, record: RunRecord) -> str:
    if head == "VERDICT":
        return outcome(record)[0]
    if head == "SINCE":
        return fleet.since(record)
    if head == "PROFILE":
        return fleet.profile_of(record)
    return record.run_id if head == "RUN" else record.host


def _what(record: RunRecord, room: int) -> str:
    if record.plan is not None and not record.verdict and not record.error:
        steps = record.plan.steps
        known = [text.minutes(record.plan.effort.seconds)] if record.plan.effort else []
        known += ["may reboot"] if any(step.may_reboot for step in steps) else []
        names = ", ".join(step.role.removeprefix("gpu_") for step in steps) or "nothing to do"
        return names + (f" ({', '.join(known)})" if known else "")
    reason = fleet.what(record, max(room, fleet.LEAST_ROOM))
    return reason or ("" if record.verdict else outcome(record)[1])


def _fold(page: Page, word: str, names: Sequence[str], reason: str) -> None:
    """One row of several hosts: their names, as many as fit."""
    in_brackets = f" ({shortened(reason, 60)})" if reason else ""
    head = f"{len(names)} {word}{in_brackets}: "
    later = " " * min(len(head), 12)
    room = FOLD_LINES * (page.width - len(later)) - len(head) - 20
    shown: list[str] = []
    for name in names:
        if sum(map(len, shown)) + 2 * len(shown) + len(name) > room:
            break
        shown.append(name)
    more = f" and {len(names) - len(shown)} more" if len(shown) < len(names) else ""
    page.text(f"{len(names)} {page.paint(word, word)}{in_brackets}: {', '.join(shown)}{more}", later=later)


# ---------------------------------------------------------------- the causes


def _causes(page: Page, ordered: Sequence[RunRecord]) -> None:
    """Each cause once, the one of most hosts first among the worst, while the page has room."""
    blocks = _errors(page, ordered)
    for cause in _grouped(ordered):
        part, first = Page(page.color, page.width), cause.records[0]
        text_findings.cause(part, cause.group, first, now=first.started_at, where=_on(cause.records))
        blocks.append(part.lines)
    if blocks:
        page.heading("What did not pass")
    _add_while_room(page, blocks, "causes: the report of a host has them")


def _add_while_room(page: Page, blocks: Sequence[list[str]], left: str) -> None:
    """The blocks, and after the last that fits the number of the others; `left` says what they are, and where to find
    them.
    """
    for place, block in enumerate(blocks):
        if len(page.lines) + len(block) > MOST_LINES - AT_END - 1:
            page.text(f"{len(blocks) - place} more {left}", indent="  ")
            return
        page.lines += block


def _grouped(ordered: Sequence[RunRecord]) -> list[Cause]:
    by_finding: dict[tuple[str, ...], Cause] = {}
    for record in ordered:
        for group in causes.groups(in_order(findings_of(record), PROBLEMS)):
            first = group.first
            words = (first.status.value, first.property, first.expected, group.cause, first.remedy)
            key = tuple(GPU.sub("gpu", without(record.host, word)) for word in words)
            by_finding.setdefault(key, Cause(first, group, [])).records.append(record)
    return sorted(by_finding.values(), key=lambda group: (PROBLEMS.index(group.finding.status), -len(group.records)))


def _errors(page: Page, ordered: Sequence[RunRecord]) -> list[list[str]]:
    """Errors of runs, each once."""
    by_message: dict[str, list[RunRecord]] = {}
    for record in ordered:
        if record.error:
            by_message.setdefault(Failed(record.host, record.error, record.run_id).plain, []).append(record)
    blocks = []
    for message, records in sorted(by_message.items(), key=lambda pair: -len(pair[1])):
        part = Page(page.color, page.width)
        word = outcome(records[0])[0]
        own = (records[0].error or "").removeprefix(f"{records[0].host}: ")
        lines = (message if len(records) > 1 else own).splitlines()
        part.text(f"{page.paint(f'{word:<7}', word)} {lines[0]}{_on(records)}", indent="  ", later=" " * 10)
        for line in [line for line in lines[1:] if not line.startswith("  |")][:3]:
            part.text(whole_commands(line.strip()), indent=" " * 10, later=" " * 12)
        blocks.append(part.lines)
    return blocks


def _on(records: Sequence[RunRecord]) -> str:
    """ " (12 hosts: gpu-01, gpu-02 and 10 more)"."""
    names = [record.host for record in records]
    if len(names) == 1:
        return f" ({names[0]})"
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return f" ({len(names)} hosts: {', '.join(names[:MOST_NAMES])}{more})"


def _put_back(page: Page, ordered: Sequence[RunRecord]) -> None:
    for record in ordered:
        if not (record.drift and record.drift.fixes):
            continue
        part = Page(page.color, page.width)
        put_back(part, record, f"Put back on {record.host}")
        if len(page.lines) + len(part.lines) > MOST_LINES - AT_END - 1:
            page.text("more was put back: the report of a host has it", indent="  ")
            return
        page.blank()
        page.lines += part.lines


def _plans(page: Page, ordered: Sequence[RunRecord]) -> None:
    """Why a step runs, each reason once; and errors."""
    by_reason: dict[tuple[str, str], list[RunRecord]] = {}
    for record in ordered:
        for step in record.plan.steps if record.plan else ():
            for reason in step.reasons:
                by_reason.setdefault((step.role, GPU.sub("gpu", reason)), []).append(record)
    blocks = _errors(page, ordered)
    for (role, reason), records in by_reason.items():
        part = Page(page.color, page.width)
        name = page.paint(role.removeprefix("gpu_"), "bold")
        hosts = list({record.host: record for record in records}.values())
        part.text(f"{name}: {shortened(reason)}{_on(hosts)}", indent="  ", later="    ")
        blocks.append(part.lines)
    if blocks:
        page.heading("Why")
    _add_while_room(page, blocks, "reasons: the plan of one host has them")


# ---------------------------------------------------------------- the end


def _commands(page: Page, ordered: Sequence[RunRecord], *, stored: bool, as_plan: bool) -> None:
    bad = [record for record in ordered if outcome(record)[0] not in (*WELL, "PLAN")]
    reached = [record for record in ordered if in_order(findings_of(record), PROBLEMS) and not record.error]
    findings = [finding for record in reached for finding in in_order(findings_of(record), PROBLEMS)]
    page.blank()
    if as_plan:
        to_do = [record for record in ordered if record.plan and record.plan.steps and not record.error]
        if to_do:
            page.lines.append(f"To do it: {commands.carried_out(to_do)}")
        elif bad:
            page.lines.append(f"After that, plan again: {commands.same(bad)}")
        return
    repairable = [
        record for record in reached if any(finding.role for finding in in_order(findings_of(record), PROBLEMS))
    ]
    if repair := commands.repair(repairable, findings):
        page.lines.append(f"To repair it: {repair}")
    elif bad:
        page.lines.append(f"After that, check again: {commands.same(bad)}")
    # `drift last` stores a host's result; if there is none, no run is stored.
    kept = [record for record in (bad or ordered) if record.command != "last" or not record.error]
    if stored and kept:
        page.lines.append(f"Report of a host: {commands.report(kept[0])}")
