"""A record, or the records of one command on several hosts, as one JSON document."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gpuprep.records import SCHEMA_VERSION, RunRecord
from gpuprep.records.showable import strict_json
from gpuprep.reports import capacity


def render(record: RunRecord) -> str:
    """One run; the document is described by gpuprep/records/record.schema.json."""
    return strict_json(record, indent=2)


def render_several(records: Sequence[RunRecord], exit_code: int) -> str:
    """The output of a command with --json: one form for one host and for many.

    Several hosts are on one line, because Python's encoder with indentation takes ten times as long.
    """
    document: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "runs": records,
        "exit_code": exit_code,
    }
    counted = [record for record in records if record.command == "capacity"]
    if counted:  # the records have the figures; these are the streams that they mean
        document["streams"] = [row for record in counted for row in capacity.lines(record)]
    return strict_json(document, indent=2 if len(records) == 1 else None)
