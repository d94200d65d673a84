"""A record as text for a terminal: short (text_findings.py), or everything. The verdict is the last line of both."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from gpuprep.checks import commands
from gpuprep.checks.common import FIRST_FAILURE, INTERRUPTED
from gpuprep.records import Effort, Finding, Missing, Plan, RunRecord, Snapshot, Source, Status, Step, ended
from gpuprep.records.findings import PROBLEMS, findings_of, in_order
from gpuprep.records.moments import seconds_between
from gpuprep.records.showable import SIMULATED
from gpuprep.reports import capacity, causes, drifted, figures, glance, measured, readings, text_findings
from gpuprep.reports.columns import LEGEND, LOWEST, MARKED, Columns, Row, columns
from gpuprep.reports.measured import Gemm
from gpuprep.reports.readings import IMPOSSIBLE, figure, known
from gpuprep.reports.terminal import Page, aligned, cut, plain
from gpuprep.reports.text_findings import not_passed, not_passed_groups, skipped_causes

# ---------------------------------------------------------------- what was measured


NOT_RUN = {
    INTERRUPTED: "the run was interrupted",
    FIRST_FAILURE: "the run ended at its first FAIL (--first-failure)",
}
MOST_FIGURES = 10  # of the first screen of several GPUs
NAME = 28  # columns of the widest name of a row; a longer one is cut
CLAIM = "lowest"  # the last column
# Shown in addition to the speeds of several GPUs, which are already side by side.
NO_SPEED = dataclasses.replace(figures.VIDEO, title="Video series without a speed", short=lambda row: row.best is None)


def first_figures(page: Page, record: RunRecord) -> None:
    """The few figures that people look for."""
    if _first_beside(page, record):
        return
    pairs = glance.lines(record)
    if pairs:
        page.heading(_marked("At a glance", simulated=measured.simulated(record)))
    for name, words in pairs:
        page.field(cut(plain(name), 16), plain(words))


def short_figures(page: Page, record: RunRecord) -> None:
    """The same in few lines: with several GPUs, the lowest and the highest."""
    if record.command == "capacity":  # its tables are the purpose of the command
        capacity.text(page, record)
        return
    beside = columns(record)
    if not beside.labels:
        first_figures(page, record)
        return
    title = f"At a glance: {len(beside.labels)} GPUs"
    page.heading(_marked(title, simulated=measured.simulated(record)))
    rows = [(f"{row.name} {row.unit}", _spread(row, beside.labels)) for row in beside.first]
    rows = [(cut(plain(name), NAME), spread) for name, spread in rows if spread]
    wide = max((len(name) for name, _ in rows), default=0)
    kept = rows if len(rows) <= MOST_FIGURES else rows[: MOST_FIGURES - 1]
    for name, spread in kept:
        page.text(f"{name:<{wide}}  {spread}", indent="  ", later=" " * (wide + 4))
    if len(kept) < len(rows):
        page.text(f"and {len(rows) - len(kept)} more", indent="  ")


def _spread(row: Row, labels: Sequence[str]) -> str:
    """ "265" of GPUs with equal figures; else "240 (GPU 1) to 265"; "impossible" if no figure can be true."""
    read = zip(map(known, row.values), labels, strict=True)
    pairs = [(value, label) for value, label in read if value is not None]
    if not pairs:
        return "" if row.is_empty else IMPOSSIBLE.reason
    low, high = min(pairs, key=lambda pair: pair[0]), max(pairs, key=lambda pair: pair[0])
    if not any(row.low):
        return figure(high[0]) + (f" ({high[1]})" if len(pairs) == 1 else "")
    return f"{figure(low[0])} ({low[1]}) to {figure(high[0])}"


def has_figures(record: RunRecord) -> bool:
    return bool(glance.lines(record))


def measured_lines(page: Page, record: RunRecord) -> None:
    beside = _beside(page, record)
    if not beside:
        _table(page, record, figures.PRODUCTS)
    _where_it_went(page, record)
    if not beside:
        _table(page, record, figures.TOGETHER)
        _table(page, record, figures.BANDWIDTHS)
    _table(page, record, figures.COLLECTIVES)
    _table(page, record, figures.CONVOLUTIONS)
    capacity.text(page, record)
    _table(page, record, figures.TRANSCODES)
    _table(page, record, NO_SPEED if beside else figures.VIDEO)
    silent = measured.unanswered(record)
    for reason, words in NOT_RUN.items():
        if rest := [probe for probe, missing in silent if missing.reason == reason]:
            page.heading(f"Not measured, because {words}")
            page.text(", ".join(rest), indent="  ")
    for probe, missing in silent:
        if missing.reason in NOT_RUN:
            continue
        page.heading(f"{probe}: no answer")
        page.text(f"{missing.reason.replace('_', ' ')}{': ' + missing.detail if missing.detail else ''}", indent="  ")


def _where_it_went(page: Page, record: RunRecord) -> None:
    """With several GPUs: all products of the first, and for each data type the product of the slowest GPU."""
    rows = measured.telling(measured.gemms(record))
    if rows:
        page.heading(_title("Where the speed went", record, "gemm"))
    slowest: dict[str, Gemm] = {}
    for row in rows:
        of = slowest.setdefault(f"{row.type} {row.shape}", row)
        if (known(row.tflops) or 0.0) < (known(of.tflops) or 0.0):
            slowest[f"{row.type} {row.shape}"] = row
    for row in rows:
        of, why = slowest[f"{row.type} {row.shape}"], row.attribution
        if why and (row.gpu.label == rows[0].gpu.label or of is row):
            head = f"  {row.gpu.label} {row.type} {row.shape}: "
            page.text(". ".join((why.words, *why.advice)), indent=head, later="      ")


def _table(page: Page, record: RunRecord, table: figures.Table[Any]) -> None:
    made = figures.filled(table, record, "text")
    if made.rows or made.left_out:
        page.heading(_title(made.title, record, table.probe))
    if made.rows:
        page.table(made.heads, made.rows, made.right, ["".join(notes) for notes in made.notes])
    for line in made.left_out:
        page.text(" ".join(plain(line).split()), indent="  ", later="      ")


def _title(name: str, record: RunRecord, probe: str) -> str:
    return _marked(name, simulated=measured.source_of(record, probe) is Source.SIMULATED)


def _marked(title: str, *, simulated: bool) -> str:
    return f"{title} (SIMULATED)" if simulated else title


# ---------------------------------------------------------------- several GPUs side by side


def _first_beside(page: Page, record: RunRecord) -> bool:
    """What people look for first; False where fewer than two GPUs were measured."""
    beside = columns(record)
    if not beside.labels:
        return False
    page.heading(_marked("At a glance", simulated=measured.simulated(record)))
    shared = _blocks(page, beside, beside.first, states=True)
    page.text(LEGEND if shared else MARKED, indent="  ")
    return True


def _beside(page: Page, record: RunRecord) -> bool:
    """All figures; False where fewer than two GPUs were measured."""
    beside = columns(record)
    for part in beside.parts:
        page.heading(_marked(part.title, simulated=measured.simulated(record)))
        _blocks(page, beside, part.rows)
    return bool(beside.labels)


def _blocks(page: Page, beside: Columns, rows: Sequence[Row], *, states: bool = False) -> bool:
    """`rows` for as many GPUs as fit into the width, then for the next ones. True if there was room for shares."""
    last = False
    names = [cut(plain(f"{row.name} {row.unit}"), NAME) for row in rows]
    cells = [[f"{cell}{LOWEST if low else ' '}" for cell, low in zip(row.cells, row.low, strict=True)] for row in rows]
    shares = ["" if row.share is None else figures.percent(row.share) for row in rows]
    worst = [[state.value if state else "–" for state in beside.states]] if states else []
    size = (
        max(
            len(cell)
            for line in (*cells, *([f"{word} " for word in line] for line in (beside.labels, *worst)))
            for cell in line
        )
        + 1
    )
    lines = [["", *(f"{label:>{size - 1}} " for label in beside.labels), f" {CLAIM}"]]
    lines += [["checks", *(f"{page.paint(word, word)} " for word in line), ""] for line in worst]
    lines += [[name, *line, share] for name, line, share in zip(names, cells, shares, strict=True)]
    room = page.width - 2 - max(map(len, names), default=0)
    for start, end in _fitting(len(beside.labels), room, size):
        last = end == len(beside.labels) and room - size * (end - start) > len(CLAIM) and any(shares)
        columns = [0, *range(1 + start, 1 + end), *([-1] if last else [])]
        block = aligned([[line[place] for place in columns] for line in lines], range(1, len(columns)))
        page.lines += [f"  {''.join(line)}".rstrip() for line in block]
    return last


def _fitting(count: int, room: int, size: int) -> Iterator[tuple[int, int]]:
    """(0, 8): where each block of columns begins and ends; blocks of nearly one size."""
    fit = max(1, room // size)
    blocks = -(-count // fit)
    fit = -(-count // blocks)
    yield from ((start, min(start + fit, count)) for start in range(0, count, fit))


# ---------------------------------------------------------------- what a plan takes


def size(megabytes: int) -> str:
    return f"{megabytes / 1000:.1f} GB" if megabytes >= 1000 else f"{megabytes} MB"


def minutes(seconds: float) -> str:
    """ "about 12 minutes", at least one."""
    took = max(1, round(seconds / 60))
    return f"about {took} minute{'' if took == 1 else 's'}"


def effort_sentence(effort: Effort) -> str:
    """ "about 12 minutes, downloads about 2.7 GB, restarts the machine at most once"."""
    loads = f"downloads about {size(effort.megabytes)}" if effort.megabytes else "downloads nothing large"
    times = {0: "no restart", 1: "restarts the machine at most once"}
    after = times.get(effort.restarts, f"restarts the machine at most {effort.restarts} times")
    return f"{minutes(effort.seconds)}, {loads}, {after}"


def whole_effort(effort: Effort) -> str:
    """The same, with the source of the figures."""
    return f"In all {effort_sentence(effort)} ({effort.basis})."


def step_costs(step: Step) -> list[str]:
    """["6 min", "120 MB", "may reboot the machine"]; less where nothing is known."""
    costs = [] if step.seconds is None else [f"{step.seconds / 60:.0f} min" if step.seconds >= 60 else "under a minute"]
    costs += [f"downloads {size(step.megabytes)}"] if step.megabytes else []
    return [*costs, *(["may reboot the machine"] if step.may_reboot else [])]


# ---------------------------------------------------------------- the report


def render(
    record: RunRecord,
    *,
    color: bool = False,
    width: int = 80,
    everything: bool = True,
    stored: bool = True,
    error_shown: bool = False,
) -> str:
    """The report of one run, in lines of at most `width` columns where words allow it; the verdict is the last line.

    Without `everything` only what did not pass, the best figures and counts of the rest. `error_shown`: as of document.
    """
    page = Page(color, max(40, width))
    if everything:
        _everything(page, record, error_shown)
        page.blank()
    else:
        _short(page, record, stored, error_shown)
    # a report that was not stored cannot be shown later
    named = stored or not (error_shown or record.command == "judge")
    text_findings.ending(page, record, *outcome(record), named=named, error_shown=error_shown)
    return page.done()


def _short(page: Page, record: RunRecord, stored: bool, error_shown: bool) -> None:
    if record.source is Source.SIMULATED and (not error_shown or record.verdict or readings.unfinished(record)):
        page.text(SIMULATED)
    _notes(page, record)
    if not error_shown:
        _error(page, record)
    findings = findings_of(record)
    if record.drift is not None:
        text_findings.problems(page, record, now=record.started_at)
        _waived(page, record, findings)
        put_back(page, record)
        _speeds(page, record)
        _against(page, record)
    elif record.verdict or record.measurements:
        text_findings.problems(page, record)
        short_figures(page, record)
        _waived(page, record, findings)
    elif record.plan is not None and not record.playbook:
        plan_lines(page, record.plan)
    _steps_in_short(page, record)
    if record.verdict:
        text_findings.skipped(page, findings)
    page.blank()
    if stored and not error_shown:
        page.lines.append(f"Report: {commands.report(record)}")


def _notes(page: Page, record: RunRecord, indent: str = "") -> None:
    half = readings.unfinished(record)
    for note in (*(record.history.notes if record.history else ()), *([half] if half else [])):
        page.text(f"note: {note}", indent=indent, later=indent + "  ")


def _everything(page: Page, record: RunRecord, error_shown: bool) -> None:
    _head(page, record)
    if not error_shown:
        _error(page, record)
    findings = findings_of(record)
    if record.drift is not None:
        not_passed(page, record, in_order(findings, PROBLEMS), now=record.started_at)
        _waived(page, record, findings)
        put_back(page, record)
        _speeds(page, record)
        _against(page, record)
        skipped_causes(page, findings)
    elif record.verdict or not record.plan or record.error:
        _first_screen(page, record, findings)
        _waived(page, record, findings)
    if record.plan is not None and record.verdict is None:
        plan_lines(page, record.plan)
    measured_lines(page, record)
    if record.verdict:
        _passed(page, findings)
    _steps(page, record)
    _versions(page, record.after or record.before)
    if (words := readings.licence(record)) and (record.after or record.before):
        page.field("FFmpeg's licence", words)
    page.heading("Run")
    page.field("started", f"{record.started_at}, took {_duration(seconds_between(record.started_at, record.ended_at))}")
    page.field("gpuprep", record.gpuprep_version)
    page.field("source", record.source.value)
    if record.profile:
        page.field("profile", f"{record.profile.name} ({record.profile.sha256[:12]}) {record.profile.path}")
    if held := readings.held_to(record):
        page.field("certified by", held)
    if record.playbook and record.playbook.log:
        page.field("whole log", record.playbook.log)
    if record.source is Source.SIMULATED:
        page.blank()
        page.text(SIMULATED)


def render_plan(record: RunRecord, *, color: bool = False, width: int = 80, error_shown: bool = False) -> str:
    """What would be done on a host and why: the same list for `plan` and `provision --check`. `error_shown`: above."""
    page = Page(color, max(40, width))
    if record.error and not error_shown:
        _head(page, record)
        _error(page, record)
    elif record.plan:
        if record.source is Source.SIMULATED:
            page.text(SIMULATED)
        plan_lines(page, record.plan)
        if record.playbook and record.playbook.status != "not needed":
            page.text(
                f"Check mode: {_count(record.playbook.changed, 'task')} would change something. "
                f"Whole log: {record.playbook.log}"
            )
        if record.plan.steps:
            page.blank()
            page.text("To do it:")
            page.lines.append(f"  {commands.carried_out([record])}")
    page.blank()
    text_findings.ending(page, record, *outcome(record), named=False, error_shown=error_shown)
    return page.done()


def outcome(record: RunRecord) -> tuple[str, str]:
    """One word and one line on how a run ended."""
    if record.error:
        word = ended.word(None, record.exit_code or ended.COULD_NOT_TELL)  # a run with an error is never DONE
        return word, record.error.splitlines()[0]
    if record.verdict:
        word, summary = record.verdict.status.value, record.verdict.summary
        if record.verdict.status is Status.WAIVED:
            return ended.word(Status.WAIVED, 0), f"its verdict is not valid: {summary}"
        return word, summary.removeprefix(f"{word}: ")
    if record.nightly is not None:
        return "DONE", drifted.night(record.nightly)
    if record.plan is not None:
        steps = len(record.plan.steps)
        return "PLAN", f"{_count(steps, 'step')} to do" if steps else "nothing to do"
    return "DONE", "no verdict was asked for"


def _head(page: Page, record: RunRecord) -> None:
    if record.source is Source.SIMULATED:
        page.text(SIMULATED)
    word, line = outcome(record)
    profile = f" --profile {record.profile.name}" if record.profile else ""
    page.text(f"{page.paint(word, word)}  {record.command} {record.host}{profile}")
    if not record.error:
        page.text(line, indent="  ")
    page.text(f"run {record.run_id}", indent="  ")
    _notes(page, record, "  ")


def _error(page: Page, record: RunRecord) -> None:
    if not record.error:
        return
    page.heading("What went wrong")
    error_lines(page, record.error)


def error_lines(page: Page, error: str) -> None:
    for line in error.splitlines():
        if line.startswith("  |"):
            page.lines.append(f"  {line}")
        else:
            page.text(line, indent="  ", later="    ")


def _speeds(page: Page, record: RunRecord) -> None:
    if figures := drifted.speeds(record):
        page.heading("Speed beside the baseline")
        for figure in figures:
            page.text(f"{figure.percent:6.1f} %  {figure.name}: {figure.now:g}, was {figure.before:g}", indent="  ",
                      later=" " * 12)  # fmt: skip


def _against(page: Page, record: RunRecord) -> None:
    page.heading("Compared with")
    for name, value in drifted.compared_with(record):
        page.field(name, value)


def put_back(page: Page, record: RunRecord, heading: str = "Put back") -> None:
    """What --fix did: each command once, with what the checks found before and afterwards."""
    done = drifted.put_back(record)
    if done:
        page.heading(heading)
    for fix in done:
        mark = page.paint("FAILED" if fix.failed else "DONE", "FAILED" if fix.failed else "DONE")
        page.text(f"{mark}{' ' * (2 if fix.failed else 4)}{fix.what}", indent="  ", later=" " * 10)
        page.text(f"# {fix.command}", indent=" " * 10, later=" " * 12)
        for line in filter(None, (fix.failed, *fix.changes)):
            page.text(line, indent=" " * 10, later=" " * 12)


def _first_screen(page: Page, record: RunRecord, findings: Sequence[Finding]) -> None:
    """The worst finding and what to do, then the figures that people look for first, then what else did not pass."""
    groups = causes.groups(in_order(findings, PROBLEMS))
    shown = has_figures(record)
    not_passed_groups(page, record, groups[:1] if shown else groups)
    more = groups[1:] if shown else []
    if more:
        page.text(
            f"{_count(sum(len(group.findings) for group in more), 'check')} more did not pass: see below", indent="  "
        )
    first_figures(page, record)
    not_passed_groups(page, record, more, heading="What else did not pass")
    skipped_causes(page, findings)


def _waived(page: Page, record: RunRecord, findings: Sequence[Finding]) -> None:
    if waived := [finding for finding in findings if finding.status is Status.WAIVED]:
        not_passed(page, record, waived, heading=f"Waived ({len(waived)})", now=record.started_at)


def plan_lines(page: Page, plan: Plan) -> None:
    page.heading(f"Plan for {plan.host}" + (f", profile {plan.profile}" if plan.profile else ""))
    if not plan.steps:
        nothing = "the host's facts already match" if plan.profile else "nothing of gpuprep is there"
        page.text(f"nothing to do: {nothing}", indent="  ")
    for number, step in enumerate(plan.steps, 1):
        known = step_costs(step)
        took = f" ({', '.join(known)})" if known else ""
        name = page.paint(step.role.removeprefix("gpu_"), "bold")
        page.text(f"{number}. {name}: {step.title}{took}", indent="  ", later="     ")
        for reason in step.reasons:
            page.text(f"- {reason}", indent="     ", later="       ")
    for note in plan.notes:
        page.text(f"note: {note}", indent="  ", later="    ")
    if plan.effort:
        page.text(whole_effort(plan.effort), indent="  ")


def _passed(page: Page, findings: Iterable[Finding]) -> None:
    groups: dict[str, list[Finding]] = {}
    for finding in findings:
        if finding.status is Status.PASS:
            groups.setdefault(finding.subject, []).append(finding)
    if not groups:
        return
    page.heading(f"Passed ({sum(len(group) for group in groups.values())})")
    for subject, group in groups.items():
        shown = "; ".join(f"{words(finding.property)} {finding.actual}".rstrip() for finding in group)
        page.field(subject, shown)


def _steps(page: Page, record: RunRecord) -> None:
    if record.playbook is None:
        return
    page.heading("Steps")
    if record.playbook.status == "not needed":
        page.text("none needed: the host's facts already matched, Ansible was not started", indent="  ")
        return
    for role in measured.roles(record):
        page.field(role.name, f"{_duration(role.seconds):>10}  {_count(role.tasks, 'task')}, {role.changed} changed")
    total = record.playbook
    page.field("all", f"{_duration(total.seconds):>10}  {total.changed} changed, {total.failed} failed")


def _steps_in_short(page: Page, record: RunRecord) -> None:
    """One line: how much changed, and how long it took."""
    played = record.playbook
    if played is None or played.status == "not needed":
        return
    where = ", ".join(f"{role.name} {role.changed}" for role in measured.roles(record) if role.changed)
    failed = f", {played.failed} failed" if played.failed else ""
    page.blank()
    page.text(
        f"{_count(played.changed, 'task')} changed something in {_duration(played.seconds)}{failed}"
        + (f": {where}" if where else "")
    )


def _versions(page: Page, snapshot: Snapshot | None) -> None:
    if snapshot is None:
        return
    page.heading("Found on the host")
    page.field("system", f"{snapshot.os.pretty_name}, kernel {snapshot.kernel.running}, {snapshot.os.architecture}")
    if isinstance(snapshot.gpus, Missing):
        page.field("GPUs", f"{len(snapshot.pci_gpus)} on the PCI bus; NVML: {shown(snapshot.gpus)}")
    else:
        page.field("GPUs", "; ".join(f"{gpu.index}: {gpu.name}" for gpu in snapshot.gpus) or "none")
    loaded = snapshot.driver.loaded_version
    flavour = f" ({shown(snapshot.driver.loaded_flavour)})" if isinstance(loaded, str) else ""
    page.field("driver", "not loaded" if loaded is None else f"{shown(loaded)}{flavour}")
    page.field("CUDA", shown(snapshot.cuda.nvcc_version))
    page.field("cuDNN", shown(snapshot.cudnn.version))
    page.field("NVENC headers", shown(snapshot.codec.headers_version))
    page.field("FFmpeg", shown(snapshot.codec.ffmpeg_version))


def shown(value: object) -> str:
    if isinstance(value, Missing):
        return f"could not be read ({words(value.reason)}{': ' + value.detail if value.detail else ''})"
    return "none" if value is None else str(value)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def words(name: str) -> str:
    return name.replace("_", " ")


def _duration(seconds: float | None) -> str:
    if seconds is None or not math.isfinite(seconds):
        return "–"
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes} min {rest:02d} s"
