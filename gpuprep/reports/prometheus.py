"""Prometheus text exposition: the figures and statuses of one run, in base units, for a textfile collector.

For a drift check it also has the metrics of nightly/metrics.py.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence

from gpuprep.nightly import metrics
from gpuprep.nightly.metrics import COMMON, Exposition, Metric, times
from gpuprep.records import RunRecord, Status, ended
from gpuprep.records.findings import findings_of
from gpuprep.reports import figures
from gpuprep.reports.readings import is_partial

# name without prefix: labels and HELP.
METRICS = {
    "run_info": Metric((*COMMON, "run", "command", "version"), "The run that these figures are of; always 1."),
    "run_start_timestamp_seconds": Metric(COMMON, "When the run began, in seconds since 1970."),
    "run_duration_seconds": Metric(COMMON, "How long the run took."),
    "run_exit_code": Metric(COMMON, "Exit code of the command: 0 passed, 1 a check failed; docs/cli.md lists all."),
    "verdict": Metric((*COMMON, "status"), "1 for the status of the verdict, 0 for the others."),
    "findings": Metric((*COMMON, "status"), "How many checks ended with this status."),
    "check": Metric((*COMMON, "subject", "property", "status"), "One check of the run; always 1."),
    **metrics.METRICS,
    **{
        shown.metric: Metric((*COMMON, *table.labels), shown.help)
        for table in figures.TABLES
        for shown in table.figures
        if shown.metric
    },
}


def render(record: RunRecord) -> str:
    return several([record])


def several(records: Sequence[RunRecord]) -> str:
    """Each metric's HELP and TYPE once, the series of all runs below it."""
    exposition = Exposition(METRICS)
    for record in records:
        _run(record, exposition)
        # Figures of a probe that did not finish are left out: a metric cannot say that.
        whole = tuple(result for result in record.measurements if not is_partial(result))
        record = dataclasses.replace(record, measurements=whole)
        _figures(record, exposition)
        if record.command == "drift":
            metrics.add(exposition, record)
        else:
            metrics.add_speeds(exposition, record)
    return exposition.text()


def _run(record: RunRecord, exposition: Exposition) -> None:
    common = metrics.common(record)

    def add(name: str, value: object, **labels: str) -> None:
        exposition.add(name, value, {**common, **labels})

    began, end = metrics.seconds(record.started_at), metrics.seconds(record.ended_at)
    add("run_info", 1, run=record.run_id, command=record.command, version=record.gpuprep_version)
    add("run_start_timestamp_seconds", began)
    if began is not None and end is not None:
        add("run_duration_seconds", max(0.0, end - began))
    add("run_exit_code", record.exit_code)
    findings = findings_of(record)
    counts = Counter(finding.status for finding in findings)
    for status in Status:
        if record.verdict:
            add("verdict", float(ended.status(record) is status), status=status.value)
        add("findings", counts[status], status=status.value)
    for finding in findings:
        add("check", 1, subject=finding.subject, property=finding.property, status=finding.status.value)


def _figures(record: RunRecord, exposition: Exposition) -> None:
    common = metrics.common(record)
    for table in figures.TABLES:
        for row in table.rows(record):
            labels = {**common, **{name: value(row) for name, value in table.labels.items()}}
            for shown in table.figures:
                if shown.metric:
                    exposition.add(shown.metric, times(shown.value(row), shown.factor), labels)
