"""`gpuprep-drift last`: shows the newest result of this host to any user of the host."""

from __future__ import annotations

import os
import sys
import textwrap
from datetime import datetime, timezone
from pathlib import Path

from gpuprep.checks import commands
from gpuprep.nightly import freshness, hooks
from gpuprep.nightly.results import FOLDER, LAST, Results, is_simulated
from gpuprep.records import Finding, RunRecord, Status, showable
from gpuprep.records.ended import COULD_NOT_TELL
from gpuprep.records.findings import PROBLEMS, in_order
from gpuprep.untrusted.plaintext import one_line, visible

WIDTH = 100
HOW = "`sudo gpuprep-drift run` makes one; `systemctl list-timers gpuprep-drift.timer` shows when the next is due"


def main(folder: Path = FOLDER, *, as_json: bool = False, plan: Path = hooks.PLAN, now: datetime | None = None) -> int:
    """Print the newest result. Returns the check's exit code; 3 if it is too old, of another machine, or absent."""
    now = now or datetime.now(timezone.utc)
    record, damaged = Results(folder).newest()
    for path in damaged:
        sys.stderr.write(f"gpuprep-drift: {one_line(str(path))}\n")
    if record is None:
        sys.stderr.write(f"Error: there is no result in {folder}\n  what to do: {HOW}\n")
        return COULD_NOT_TELL
    why = freshness.why_unknown(record, now, hooks.fresh_for(plan), hooks.here())
    if not why and any(path.path == folder / LAST for path in damaged):
        why = f"the newest result is damaged, and this is the one before it, of {record.ended_at}"
    if not why and not (folder / LAST).exists():
        why = f"the newest result could not be kept, and this is the one before it, of {record.ended_at}"
    if why:
        sys.stderr.write(
            f"Error: the present state of this machine is not known: {one_line(why)}\n  what to do: {HOW}\n"
        )
    try:
        rendered = showable.document(
            lambda shown: showable.strict_json(shown[0], indent=2) if as_json else text(shown[0], now, visible(why)),
            [record],
            whole=as_json,
        )
        sys.stdout.write(rendered + "\n")
        sys.stdout.flush()
    except BrokenPipeError:  # `| head`: the exit code is still the check's, and Python must not flush once more
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return COULD_NOT_TELL if why else record.exit_code


def text(record: RunRecord, now: datetime, why_unknown: str = "") -> str:
    """The verdict and its time; findings that did not pass (since when, why, what to do); what was not measured.

    With `why_unknown` the text begins with UNKNOWN, and gives the verdict as an earlier one.
    """
    error = (record.error or "").splitlines()
    if error or not record.verdict:
        summary = f"UNKNOWN: {error[0] if error else 'the check came to no verdict'}"
    else:
        summary = record.verdict.summary
    lines = [f"{record.host}: UNKNOWN: {why_unknown}", f"its result was: {summary}"] if why_unknown else []
    lines = lines or [f"{record.host}: {summary}"]
    lines += [f"  {line}" for line in error[1:]]
    profile = f", profile {record.profile.name}" if record.profile else ""
    lines.append(f"checked {record.ended_at} ({_ago(record.ended_at, now)}){profile}, run {record.run_id}")
    if record.drift and record.drift.certified_run:
        lines.append(f"compared with run {record.drift.certified_run} of {record.drift.certified_at}")
    if record.drift and record.drift.probe_skipped:
        lines.append(f"speed not measured: {record.drift.probe_skipped}")
    if is_simulated(record):
        lines.append(showable.SIMULATED)
    findings = record.verdict.findings if record.verdict else ()
    for finding in in_order(findings, (*PROBLEMS, Status.WAIVED)):
        lines += ["", *_finding(commands.filled(finding, record))]
    return "\n".join(lines)


def _finding(finding: Finding) -> list[str]:
    since = f", since {finding.since}" if finding.since else ""
    head = f"{finding.status.value} {finding.key}: {finding.actual}, expected {finding.expected}{since}"
    parts = [("why", finding.reason), ("do", finding.remedy)]
    return [head, *(line for name, text in parts if text for line in _folded(f"     {name}: ", text))]


def _folded(name: str, text: str) -> list[str]:
    return textwrap.wrap(f"{name}{text}", WIDTH, subsequent_indent=" " * len(name), break_long_words=False)


def _ago(moment: str, now: datetime) -> str:
    """How long ago `moment` was, in words: "3 h ago"."""
    try:
        minutes = int((now - datetime.fromisoformat(moment)).total_seconds() // 60)
    except (ValueError, TypeError):
        return "at no known time"
    for size, unit in ((2 * 24 * 60, "days"), (2 * 60, "h")):
        if minutes >= size:
            return f"{minutes // (24 * 60 if unit == 'days' else 60)} {unit} ago"
    return f"{minutes} min ago" if minutes >= 0 else "later than now: is the clock right?"
