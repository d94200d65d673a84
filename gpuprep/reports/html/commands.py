"""The commands for what to do next with a host, in one block. Each is safe to paste, whatever the host's name is."""

from __future__ import annotations

import re
from dataclasses import dataclass

from gpuprep.records import RunRecord
from gpuprep.records.findings import PROBLEMS, findings_of
from gpuprep.untrusted.plaintext import command

# An id of a run may come from another machine: one that is no plain name is no name of a file here.
FILE_NAME = re.compile(r"[0-9A-Za-z][0-9A-Za-z._-]{0,63}")
TUNING = "gpu_tuning"
REACHED = ("provision", "validate", "tune", "plan", "drift", "last")  # commands of which the host can be asked again


@dataclass(frozen=True)
class Command:
    why: str
    line: str


def commands(record: RunRecord) -> list[Command]:
    found = []
    wanted = ["--profile", record.profile.name] if record.profile and record.command in REACHED else []
    roles = {one.role for one in findings_of(record) if one.status in PROBLEMS and one.role}
    if wanted and roles:
        repair = "tune" if roles == {TUNING} else "provision"
        found.append(
            Command("show what would be done", command("gpuprep", repair, *wanted, "--check", about=record.host))
        )
        found.append(Command("put it in order", command("gpuprep", repair, *wanted, about=record.host)))
    if wanted:
        found.append(Command("measure and judge again", command("gpuprep", "validate", *wanted, about=record.host)))
    found.append(Command("all that was recorded", report(record, "json")))
    return found


def report(record: RunRecord, style: str) -> str:
    """The command that writes this run into a file of the format `style`."""
    file = f"{record.run_id if FILE_NAME.fullmatch(record.run_id) else 'report'}.{style}"
    return command("gpuprep", "report", "--format", style, "--output", file, about=record.run_id)
