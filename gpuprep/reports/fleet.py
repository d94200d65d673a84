"""Drift of several hosts on one page: one row per host, the worst first, then details of hosts that did not pass.

order(records)            the worst first, then by name
counts(records)           "47 PASS, 2 FAIL, 1 UNKNOWN of 50"
text(records)             for a terminal (text_hosts.py)
markdown(records)         the same for an issue or a wiki page; html/fleet.py makes an HTML page
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from textwrap import shorten

from gpuprep.records import RunRecord, Status
from gpuprep.records.findings import PROBLEMS, findings_of, in_order
from gpuprep.records.moments import moment
from gpuprep.reports.measured import simulated
from gpuprep.reports.text import SIMULATED, outcome, render

# A host of which nothing is known is as bad as one that failed; both come before what only could not tell.
ERROR = "error"
WORST_FIRST = (ERROR, "FAIL", "UNKNOWN", "WARN", "PASS", "SKIP")
COUNTED = ("PASS", "WARN", "FAIL", "UNKNOWN")
HEADS = ("HOST", "VERDICT", "SINCE", "PROFILE", "WHAT")
LEAST_ROOM = 20  # for the last column


def order(records: Sequence[RunRecord]) -> list[RunRecord]:
    return sorted(records, key=lambda record: (WORST_FIRST.index(rank(record)), record.host))


def counts(records: Sequence[RunRecord]) -> str:
    by_outcome = Counter(outcome(record)[0] for record in records)
    words = [*COUNTED, *sorted(by_outcome.keys() - set(COUNTED))]
    return ", ".join(f"{by_outcome[word]} {word}" for word in words if by_outcome[word]) + f" of {len(records)}"


def text(records: Sequence[RunRecord], *, color: bool = False, width: int = 80, everything: bool = False) -> str:
    """The table of hosts, also of a single one; with `everything` the whole page of each host above it.

    Lines have at most `width` columns where words allow it. `records` is not empty.
    """
    from gpuprep.reports import text_hosts

    pages = [render(record, color=color, width=width) for record in order(records)] if everything else []
    return "\n".join([*pages, text_hosts.render(records, color=color, width=width)])


def markdown(records: Sequence[RunRecord]) -> str:
    from gpuprep.reports.markdown import MARKS, findings_table, paragraph, plain, table

    ordered = order(records)
    rows = []
    for record in ordered:
        word = outcome(record)[0]
        mark = f"{MARKS[Status[word]]} {word}" if word in Status.__members__ else word
        rows.append((plain(record.host), mark, since(record), plain(profile_of(record)), plain(what(record))))
    commands = " ".join(dict.fromkeys(plain(record.command) for record in records))
    parts = [f"# gpuprep {commands}: {counts(records)}"]
    if any(simulated(record) for record in records):
        parts.append(f"> **{SIMULATED}**")
    parts.append(table([head.capitalize() for head in HEADS], rows))
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
