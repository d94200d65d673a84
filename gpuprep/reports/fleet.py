"""What the pages of several hosts share: text_hosts.py for a terminal, markdown.py, html/fleet.py.

order(records)            the worst first, then by name
counts(records)           "47 PASS, 2 FAIL, 1 UNKNOWN of 50"
since(record), what(record), profile_of(record)    the columns of a host's row
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from textwrap import shorten

from gpuprep.records import RunRecord, Status
from gpuprep.records.findings import PROBLEMS, findings_of, in_order
from gpuprep.records.moments import moment
from gpuprep.reports.text import outcome

# A host without any result is as bad as one that failed; both come before hosts with the verdict UNKNOWN.
ERROR = "error"
WORST_FIRST = (ERROR, *(status.value for status in (*PROBLEMS, Status.PASS, Status.SKIP)))
COUNTED = ("PASS", "WARN", "FAIL", "UNKNOWN")
HEADS = ("HOST", "VERDICT", "SINCE", "PROFILE", "WHAT")
LEAST_ROOM = 20  # for the last column


def order(records: Sequence[RunRecord]) -> list[RunRecord]:
    return sorted(records, key=lambda record: (WORST_FIRST.index(rank(record)), record.host))


def counts(records: Sequence[RunRecord]) -> str:
    by_outcome = Counter(outcome(record)[0] for record in records)
    words = [*COUNTED, *sorted(by_outcome.keys() - set(COUNTED))]
    return ", ".join(f"{by_outcome[word]} {word}" for word in words if by_outcome[word]) + f" of {len(records)}"


def since(record: RunRecord) -> str:
    """The day (UTC) of the oldest finding that did not pass: "2026-11-19"; "–" if nothing is known."""
    read = (moment(finding.since) for finding in findings_of(record) if finding.status in PROBLEMS and finding.since)
    moments = [moment for moment in read if moment is not None]
    return f"{min(moments):%Y-%m-%d}" if moments else "–"


def what(record: RunRecord, room: int = 80) -> str:
    """Keys of findings that did not pass, as many as fit into `room` columns, at least one; or the error's line."""
    if record.error:
        line = record.error.splitlines()[0].removeprefix(f"{record.host}: ")
        return shorten(line, max(room, LEAST_ROOM), placeholder=" …")
    findings = findings_of(record)
    keys = [finding.key for finding in in_order(findings, PROBLEMS)]
    waived = sum(finding.status is Status.WAIVED for finding in findings)
    for named in range(len(keys), 0, -1):
        more = f" +{len(keys) - named}" if named < len(keys) else ""
        if len(listed := ", ".join(keys[:named]) + more) <= room:
            break
    return listed if keys else f"{waived} waived" if waived else ""


def rank(record: RunRecord) -> str:
    word = record.verdict.status.value if record.verdict else "UNKNOWN"
    return ERROR if record.error else word if word in WORST_FIRST else "UNKNOWN"


def profile_of(record: RunRecord) -> str:
    return record.profile.name if record.profile else "–"
