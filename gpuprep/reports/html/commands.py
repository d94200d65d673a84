"""The commands for what to do next with a host, in one block: with the run's own options, safe to paste."""

from __future__ import annotations

import re
from dataclasses import dataclass

from gpuprep.records import RunRecord
from gpuprep.records.findings import PROBLEMS, findings_of
from gpuprep.reports import commands as pasted
from gpuprep.untrusted.plaintext import command

# An id of a run may come from another machine: one that is no plain name is no name of a file here.
FILE_NAME = re.compile(r"[0-9A-Za-z][0-9A-Za-z._-]{0,63}")


@dataclass(frozen=True)
class Command:
    why: str
    line: str


def commands(record: RunRecord) -> list[Command]:
    """A run of a record file has no host that could be asked again."""
    suggestions = []
    if record.profile and record.command in pasted.ON_HOSTS:
        bad = [finding for finding in findings_of(record) if finding.status in PROBLEMS]
        if repair := pasted.repair([record], bad):
            suggestions.append(Command("put it in order", repair))
        suggestions.append(Command("measure and judge again", pasted.again(record, "validate")))
    suggestions.append(Command("all that was recorded", report(record, "json")))
    return suggestions


def report(record: RunRecord, style: str) -> str:
    """The command that writes this run into a file of the format `style`."""
    file = f"{record.run_id if FILE_NAME.fullmatch(record.run_id) else 'report'}.{style}"
    return command("gpuprep", "report", "--format", style, "--output", file, about=record.run_id)
