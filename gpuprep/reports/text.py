"""A record as text for a terminal: short (text_findings.py), or everything. The verdict is the last line of both."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from gpuprep.records import Finding, Missing, Plan, RunRecord, Snapshot, Source, Status, ended
from gpuprep.records.findings import PROBLEMS, findings_of, in_order
from gpuprep.records.moments import seconds_between
from gpuprep.records.showable import SIMULATED
from gpuprep.reports import causes, commands, drifted, measured, readings, taking, text_findings, text_measured
from gpuprep.reports.terminal import Page
from gpuprep.reports.text_findings import not_passed, not_passed_groups, skipped_causes


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
    named = stored or not (error_shown or record.command == "judge")  # nobody can ask for a verdict that was not kept
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
        text_measured.short(page, record)
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
    text_measured.lines(page, record)
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
        page.field("held to", held)
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
            page.lines.append(f"  {commands.carried_out(record)}")
    page.blank()
    text_findings.ending(page, record, *outcome(record), named=False, error_shown=error_shown)
    return page.done()


def outcome(record: RunRecord) -> tuple[str, str]:
    """One word and one line on how a run ended."""
    if record.error:
        word = ended.word(None, record.exit_code or ended.COULD_NOT_TELL)  # with an error no run is done
        return word, record.error.splitlines()[0]
    if record.verdict:
        word, summary = record.verdict.status.value, record.verdict.summary
        if record.verdict.status is Status.WAIVED:
            return ended.word(Status.WAIVED, 0), f"its verdict is none: {summary}"
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
    shown = text_measured.has_first(record)
    not_passed_groups(page, record, groups[:1] if shown else groups)
    more = groups[1:] if shown else []
    if more:
        page.text(
            f"{_count(sum(len(group.findings) for group in more), 'check')} more did not pass: see below", indent="  "
        )
    text_measured.first(page, record)
    not_passed_groups(page, record, more, heading="What else did not pass")
    skipped_causes(page, findings)


def _waived(page: Page, record: RunRecord, findings: Sequence[Finding]) -> None:
    if waived := [finding for finding in findings if finding.status is Status.WAIVED]:
        not_passed(page, record, waived, heading=f"Waived ({len(waived)})", now=record.started_at)


def plan_lines(page: Page, plan: Plan) -> None:
    page.heading(f"Plan for {plan.host}, profile {plan.profile}")
    if not plan.steps:
        page.text("nothing to do: the host's facts already match", indent="  ")
    for number, step in enumerate(plan.steps, 1):
        known = taking.of_step(step)
        took = f" ({', '.join(known)})" if known else ""
        name = page.paint(step.role.removeprefix("gpu_"), "bold")
        page.text(f"{number}. {name}: {step.title}{took}", indent="  ", later="     ")
        for reason in step.reasons:
            page.text(f"- {reason}", indent="     ", later="       ")
    for note in plan.notes:
        page.text(f"note: {note}", indent="  ", later="    ")
    if plan.effort:
        page.text(taking.whole(plan.effort), indent="  ")


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
        page.text("none was needed: the host's facts already matched, Ansible was not started", indent="  ")
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
