"""CSV for spreadsheets: one row per run, per finding and per figure, all with the same columns.

The column `kind` is "run", "finding", "figure", or in a plan "step". Each row says which run and host it is of, so that
rows of many hosts can be filtered, and made into a pivot table, without a join. docs/reports.md lists the columns.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Iterator, Sequence

from gpuprep.records import Missing, RunRecord, Source
from gpuprep.records.evidence import Figure
from gpuprep.records.findings import findings_of
from gpuprep.records.moments import seconds_between
from gpuprep.reports import figures, measured
from gpuprep.reports.readings import is_partial
from gpuprep.reports.terminal import cut
from gpuprep.reports.text import outcome
from gpuprep.untrusted.plaintext import visible

COLUMNS = (
    "kind", "host", "run_id", "batch_id", "command", "profile", "started_at", "source", "subject", "name", "status",
    "value", "unit", "expected", "found", "reason", "remedy",
)  # fmt: skip
# Characters that begin a formula in a spreadsheet, or end a cell in some of them (OWASP, "CSV injection"). Numbers are
# no texts and stay as they are.
FORMULA = re.compile("(^|[;\t\r\n])(?=[=+\\-@\t\r\n\uff1d\uff0b\uff0d\uff20])")
UNFINISHED = "the probe did not finish: no check judged this figure"
# Without letters that a spreadsheet may read in another code page.
PLAIN_UNITS = {"°C": "degC", "µs": "us"}
MOST_LETTERS = 32_000  # a cell of a spreadsheet holds 32 767

Cells = tuple[object, ...]  # from "subject" on


def render(record: RunRecord) -> str:
    return render_several([record])


def render_several(records: Sequence[RunRecord]) -> str:
    """The rows of all runs below one line of heads, in the order of `records`."""
    return "".join(lines([COLUMNS, *(row for record in records for row in _rows(record))]))


def lines(rows: Iterable[Iterable[object]]) -> Iterator[str]:
    """A line of CSV for each row, with cells that no spreadsheet runs."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    for row in rows:
        writer.writerow([cell(value) for value in row])
        yield buffer.getvalue()
        buffer.seek(0)
        buffer.truncate()


def cell(value: object) -> object:
    """A number as it is; a text without control characters, and with a ' before what would be a formula."""
    return FORMULA.sub(r"\1'", visible(value)) if isinstance(value, str) else value


def _rows(record: RunRecord) -> Iterator[Cells]:
    named = (
        record.host, record.run_id, record.batch_id, record.command, record.profile.name if record.profile else "",
        record.started_at,
    )  # fmt: skip
    # Simulated if any part is.
    own = (Source.SIMULATED if measured.simulated(record) else record.source).value
    for kind, source, cells in _all(record, own):
        yield (kind, *named, source, *(cut(cell, MOST_LETTERS) if isinstance(cell, str) else cell for cell in cells))


def _all(record: RunRecord, own: str) -> Iterator[tuple[str, str, Cells]]:
    word, line = outcome(record)
    took = seconds_between(record.started_at, record.ended_at)
    timed = ("", "") if took is None else (took, "s")
    yield "run", own, ("run", "result", word, *timed, "", line, record.error or "", "")
    for step in record.plan.steps if record.plan and not record.verdict else ():
        reboots = "may reboot" if step.may_reboot else ""
        timed = ("", "") if step.seconds is None else (step.seconds, "s")
        yield "step", own, (step.role, step.title, "", *timed, "", reboots, "; ".join(step.reasons), "")
    for finding in findings_of(record):
        said = finding.expected, finding.actual, finding.reason, finding.remedy
        yield "finding", own, (finding.subject, finding.property, finding.status.value, "", "", *said)
    halves = {result.probe for result in record.measurements if is_partial(result)}
    for probe, subject, name, value, unit in _figures(record):
        if value is not None and not isinstance(value, Missing):
            why = UNFINISHED if probe in halves else ""
            source = measured.source_of(record, probe).value
            yield "figure", source, (subject, name, "", float(f"{value:.6g}"), unit, "", "", why, "")


def _figures(record: RunRecord) -> Iterator[tuple[str, str, str, Figure | None, str]]:
    """(probe, subject, name, value, unit) of all that was measured; the units are those of docs/records.md."""
    for table in figures.TABLES:
        for row in table.rows(record):
            subject, name = table.csv(row)
            for shown in table.figures:
                if shown.csv is not None:
                    unit = figures.product_unit(shown.unit, row) if table is figures.PRODUCTS else shown.unit
                    whole = f"{name} {shown.csv}".strip()
                    yield table.probe, subject, whole, shown.value(row), PLAIN_UNITS.get(unit, unit)
