"""Markdown with GitHub's tables: for a pull request, an issue or a wiki page."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence

from gpuprep.checks import commands
from gpuprep.records import Finding, RunRecord, Status
from gpuprep.records.findings import PROBLEMS, findings_of, in_order
from gpuprep.records.recorded_options import RecordedOptions
from gpuprep.records.showable import SIMULATED
from gpuprep.reports import capacity, causes, drifted, figures, fleet, glance, measured
from gpuprep.reports.columns import LEGEND, LOWEST, Columns, Part, Row, columns
from gpuprep.reports.readings import figure, held_to, unfinished
from gpuprep.reports.text import outcome, step_costs, whole_effort, words
from gpuprep.untrusted.plaintext import visible

MARKS = {
    Status.PASS: "✅", Status.WARN: "⚠️", Status.FAIL: "❌", Status.SKIP: "⏭️", Status.UNKNOWN: "❔",
    Status.WAIVED: "🤝",
}  # fmt: skip
# Text from a host must not become a link, a mention, a heading, a formula or a new column.
SPECIAL = re.compile(r"([\\`*_\[\]#|~@$]|:(?=\S)|(?<=\bwww)\.)", re.IGNORECASE)
# GitHub and GitLab replace these in the finished page: @all, #1, GH-1, :tada:. An empty comment splits them.
# `0000:3b:00.0` is the address of a GPU, not a picture.
FOUND_LATER = re.compile(r"(?<=[@#!])(?=\w)|(?<=\bGH-)(?=\d)|(?<=:)(?=(?![0-9a-f]{1,2}:)[a-z0-9_+-]+:)", re.IGNORECASE)
PARTED = "\0"  # place of the comment while the rest is escaped
LINE_START = re.compile(r"([-+=]|\d+(?=[.)]))")


def render(record: RunRecord) -> str:
    word, line = outcome(record)
    mark = MARKS[Status[word]] + " " if word in Status.__members__ else ""
    parts = [f"# {mark}{word}: gpuprep {plain(record.command)} {plain(record.host)}"]
    if measured.simulated(record):
        parts.append(f"> **{SIMULATED}**")
    parts.append(paragraph(line))
    parts += [paragraph(f"Note: {note}") for note in (record.history.notes if record.history else ())]
    if half := unfinished(record):
        parts.append(paragraph(f"Note: {half}"))
    if record.error:
        parts.append("## What went wrong\n\n" + _code(record.error))
    findings = findings_of(record)
    planned = _is_plan(record)
    if planned and record.plan is not None:
        parts += _plan(record)
    if rest := in_order(findings, PROBLEMS):
        title = "Differs from the profile" if planned else "Did not pass"
        parts.append(f"## {title}\n\n{findings_table(record, rest, record.started_at)}")
    glanced = [(plain(name), plain(words)) for name, words in glance.lines(record)]
    beside = columns(record)
    parts += _beside(beside) if beside.labels else _section("At a glance", ("", ""), glanced)
    if skipped := [finding for finding in findings if finding.status is Status.SKIP]:
        parts.append(f"## Skipped ({len(skipped)})\n\n{_skipped(skipped)}")
    waived = [finding for finding in findings if finding.status is Status.WAIVED]
    if waived:
        parts.append(f"## Waived ({len(waived)})\n\n{findings_table(record, waived, record.started_at)}")
    parts += _drift(record)
    measurements = _measurements(record)
    if beside.labels and measurements:  # already shown side by side
        listed = "\n\n".join(measurements)
        measurements = [f"<details><summary>Measurements, GPU by GPU</summary>\n\n{listed}\n\n</details>"]
    parts += measurements
    passed = [finding for finding in findings if finding.status is Status.PASS]
    rows = [(plain(finding.subject), plain(words(finding.property)), plain(finding.actual)) for finding in passed]
    listed = table(("Subject", "Check", "Found"), rows)
    if passed:
        parts.append(f"<details><summary>Passed ({len(passed)})</summary>\n\n{listed}\n\n</details>")
    if held := held_to(record):
        parts.append(paragraph(f"The host is still compared with {held}."))
    profile = f", profile {plain(record.profile.name)}" if record.profile else ""
    parts.append(
        f"Run {plain(record.run_id)} of {plain(record.started_at)}{profile}, "
        f"gpuprep {plain(record.gpuprep_version)}, {record.source.value}."
    )
    return "\n\n".join(parts) + "\n"


def several(records: Sequence[RunRecord]) -> str:
    """Runs of several hosts: a row a host, then what did not pass; of plans, the page of each."""
    if all(map(_is_plan, records)):
        return "\n".join(render(record) for record in records)
    return _hosts(records)


def _hosts(records: Sequence[RunRecord]) -> str:
    ordered = fleet.order(records)
    rows = []
    for record in ordered:
        word = outcome(record)[0]
        mark = f"{MARKS[Status[word]]} {word}" if word in Status.__members__ else word
        rows.append(
            (plain(record.host), mark, fleet.since(record), plain(fleet.profile_of(record)), plain(fleet.what(record)))
        )
    named = " ".join(dict.fromkeys(plain(record.command) for record in records))
    parts = [f"# gpuprep {named}: {fleet.counts(records)}"]
    if any(measured.simulated(record) for record in records):
        parts.append(f"> **{SIMULATED}**")
    parts.append(table([head.capitalize() for head in fleet.HEADS], rows))
    for record in ordered:
        rest = [finding for finding in findings_of(record) if finding.status in PROBLEMS]
        if record.error or rest:
            error = [paragraph(line) for line in record.error.splitlines()] if record.error else []
            parts += [
                f"## {plain(record.host)}",
                *error,
                *([findings_table(record, rest, record.started_at)] if rest else []),
            ]
    return "\n\n".join(parts) + "\n"


def _is_plan(record: RunRecord) -> bool:
    """Whether the run changed nothing: `plan`, or another command with --check."""
    return record.command == "plan" or RecordedOptions.read(record.options).check is True


def _plan(record: RunRecord) -> list[str]:
    """What would be done, and why."""
    assert record.plan is not None
    rows = [
        (
            str(number), plain(step.title), plain(step.role.removeprefix("gpu_")), plain("; ".join(step.reasons)),
            plain(", ".join(step_costs(step))),
        )
        for number, step in enumerate(record.plan.steps, 1)
    ]  # fmt: skip
    notes = [*record.plan.notes, *([whole_effort(record.plan.effort)] if record.plan.effort else [])]
    return _section("Plan", ("", "What", "Step", "Why", ""), rows) + [paragraph(note) for note in notes]


def _drift(record: RunRecord) -> list[str]:
    done = [
        (
            plain(fix.what),
            code(fix.command),
            plain(fix.failed or "done"),
            "<br>".join(plain(change) for change in fix.changes),
        )
        for fix in drifted.put_back(record)
    ]
    parts = _section("Put back", ("What", "Command", "Result", "Before and after"), done)
    rows = [
        (plain(speed.name), figure(speed.now), figure(speed.before), f"{speed.percent:.1f} %")
        for speed in drifted.speeds(record)
    ]
    heads = ("What", "now", "baseline", "of the baseline")
    parts += _section("Speed beside the baseline", heads, rows, right=heads[1:])
    facts = [(plain(name), plain(value)) for name, value in drifted.compared_with(record)]
    return parts + _section("Compared with", ("", ""), facts)


def findings_table(record: RunRecord, findings: Iterable[Finding], now: str = "") -> str:
    """A row a cause. With `now`, the start of the check, each finding says since when it exists."""
    heads = ("", "Check", "Expected", "Found", "Why", "What to do")
    rows = [_finding(record, group, now) for group in causes.groups(findings, now)]
    return table(heads, rows)


def _finding(record: RunRecord, group: causes.Group, now: str) -> tuple[str, ...]:
    finding = group.first
    seen = (finding.expected, finding.actual) if group.same_values else ("", "")
    since = drifted.since(finding, now) if now else ""
    why = "; ".join(filter(None, [group.cause, since]))
    remedy = commands.expanded(finding.remedy, record, group.subject)
    return (
        f"{MARKS[finding.status]} {finding.status.value}",
        *map(plain, ("; ".join(group.names), *seen, why, remedy)),
    )


def _skipped(findings: Iterable[Finding]) -> str:
    """A row a cause, with how many were skipped for it; then all of them, folded."""
    groups = causes.groups(findings)
    rows = [(f"{MARKS[Status.SKIP]} {Status.SKIP.value}", plain(group.count), plain(group.cause)) for group in groups]
    names = [paragraph(name) for group in groups if len(group.findings) > 1 for name in group.names]
    listed = "\n".join(f"- {name}" for name in names)
    fold = f"\n\n<details><summary>All of these</summary>\n\n{listed}\n\n</details>" if names else ""
    return table(("", "Checks", "Why"), rows) + fold


def _beside(beside: Columns) -> list[str]:
    """Several GPUs side by side."""
    heads = ("", *map(plain, beside.labels), "lowest")
    states = ("checks", *(f"{MARKS[state]} {state.value}" if state else "–" for state in beside.states), "")
    parts = []
    for part in (Part("At a glance", beside.first), *beside.parts):
        rows = [_columns_row(row) for row in part.rows]
        first = [states] if part.rows is beside.first else []
        parts += _section(plain(part.title), heads, [*first, *rows], right=heads[1:])
    return [*parts[:1], LEGEND, *parts[1:]]


def _columns_row(row: Row) -> tuple[str, ...]:
    cells = [f"**{cell} {LOWEST}**" if low else cell for cell, low in zip(row.cells, row.low, strict=True)]
    return (plain(f"{row.name} {row.unit}"), *cells, figures.percent(row.share))


def _measurements(record: RunRecord) -> list[str]:
    parts = []
    for each in figures.TABLES:
        if each is figures.VIDEO:
            parts += _streams(record)
        made = figures.filled(each, record, "markdown")
        rows = [tuple(map(plain, (*row, *notes))) for row, notes in zip(made.rows, made.notes, strict=True)]
        right = [made.heads[place] for place in made.right]
        parts += _section(made.title, (*made.heads, *made.note_heads), rows, right)
        parts += map(paragraph, made.left_out)
    return parts


def _streams(record: RunRecord) -> list[str]:
    """How many streams of 30 pictures a second, and what is the limit."""
    rows = [
        (plain("GPU" if line.gpu is None else f"GPU {line.gpu}"), plain(line.kind), *map(plain, capacity.cells(line)))
        for line in capacity.lines_of(record)
    ]
    if not rows:
        return []
    section = _section("Streams", ("GPU", "Work", *capacity.HEADS), rows, right=("1080p30", "4K30"))
    return [*section, *(paragraph(note) for note in capacity.notes(record))]


def plain(text: str) -> str:
    """`text` escaped, so that Markdown shows it literally, on one line."""
    line = FOUND_LATER.sub(PARTED, visible(" ".join(text.split())))
    return SPECIAL.sub(r"\\\1", html.escape(line, quote=False)).replace(PARTED, "<!-- -->")


def paragraph(text: str) -> str:
    """The same for the beginning of a line: it must not become a list or a rule."""
    line = plain(text)
    start = LINE_START.match(line)
    return f"{line[: start.end() - 1]}&#{ord(line[start.end() - 1])};{line[start.end() :]}" if start else line


def code(text: str) -> str:
    """A command as code; it may contain characters of Markdown."""
    escaped = html.escape(visible(" ".join(text.split())), quote=False)
    return f"<code>{SPECIAL.sub(lambda found: f'&#{ord(found.group())};', escaped)}</code>"


def _section(title: str, heads: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[str] = ()) -> list[str]:
    return [f"## {title}\n\n{table(heads, rows, right)}"] if rows else []


def table(heads: Sequence[str], rows: Iterable[Sequence[str]], right: Sequence[str] = ()) -> str:
    rule = ("---:" if head in right else "---" for head in heads)
    return "\n".join(f"| {' | '.join(row)} |" for row in (heads, tuple(rule), *rows))


def _code(text: str) -> str:
    """A fenced block whose fence is longer than any in the text."""
    text = visible(text)
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}\n{text}\n{fence}"
