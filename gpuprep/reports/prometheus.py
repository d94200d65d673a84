"""Prometheus text exposition: the figures and statuses of one run, in base units, for a textfile collector.

For a drift check it also has the metrics of nightly/metrics.py.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence

from gpuprep.nightly import metrics
from gpuprep.nightly.exposition import COMMON, Exposition, Metric, times
from gpuprep.records import RunRecord, Status, ended
from gpuprep.records.findings import findings_of
from gpuprep.reports import figures
from gpuprep.reports.readings import is_partial

# name without prefix: labels and HELP.
METRICS = {
    "run_info": Metric((*COMMON, "run", "command", "version"), "The run that these figures are of; always 1."),
    "run_start_timestamp_seconds": Metric(COMMON, "When the run began, in seconds since 1970."),
    "run_duration_seconds": Metric(COMMON, "How long the run took."),
    "run_exit_code": Metric(COMMON, "Exit code of the command: 0 as wanted, 1 judged otherwise; docs/cli.md has all."),
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
        _Run(record, exposition)
    return exposition.text()


class _Run:
    def __init__(self, record: RunRecord, exposition: Exposition) -> None:
        self.exposition = exposition
        self._common = metrics.common(record)
        self._run(record)
        record = _whole(record)
        self._figures(record)
        if record.command == "drift":
            metrics.add(self.exposition, record)
        else:
            metrics.add_speeds(self.exposition, record)

    def _add(self, name: str, value: object, **labels: str) -> None:
        self.exposition.add(name, value, {**self._common, **labels})

    def _run(self, record: RunRecord) -> None:
        began, end = metrics.seconds(record.started_at), metrics.seconds(record.ended_at)
        self._add("run_info", 1, run=record.run_id, command=record.command, version=record.gpuprep_version)
        self._add("run_start_timestamp_seconds", began)
        if began is not None and end is not None:
            self._add("run_duration_seconds", max(0.0, end - began))
        self._add("run_exit_code", record.exit_code)
        findings = findings_of(record)
        counts = Counter(finding.status for finding in findings)
        for status in Status:
            if record.verdict:
                self._add("verdict", float(ended.status(record) is status), status=status.value)
            self._add("findings", counts[status], status=status.value)
        for finding in findings:
            self._add("check", 1, subject=finding.subject, property=finding.property, status=finding.status.value)

    def _figures(self, record: RunRecord) -> None:
        for table in figures.TABLES:
            for row in table.rows(record):
                labels = {name: value(row) for name, value in table.labels.items()}
                for shown in table.figures:
                    if shown.metric:
                        self._add(shown.metric, times(shown.value(row), shown.factor), **labels)


def _whole(record: RunRecord) -> RunRecord:
    """Without what a probe had measured that did not come to its end: a metric cannot say so beside its figure."""
    return dataclasses.replace(
        record, measurements=tuple(measurement for measurement in record.measurements if not is_partial(measurement))
    )
