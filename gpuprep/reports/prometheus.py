"""Prometheus text exposition: the figures and statuses of one run, in base units, for a textfile collector.

For a drift check it also has the metrics of nightly/metrics.py.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence

from gpuprep.nightly import metrics
from gpuprep.nightly.exposition import COMMON, GPU, Exposition, Metric, times
from gpuprep.records import RunRecord, Status, ended
from gpuprep.records.findings import findings_of
from gpuprep.reports import measured
from gpuprep.reports.readings import is_partial
from gpuprep.reports.rows import Gpu

GEMM = (*GPU, "dtype", "accumulate", "shape")
COLLECTIVE = (*COMMON, "operation", "bytes", "gpus")
CASE = (*COMMON, "case", "title")
SERIES = (*GPU, "kind", "codec", "preset", "size")
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
    "gemm_sustained_operations_per_second": Metric(GEMM, "The same over a long run."),
    "gemm_peak_ratio": Metric(GEMM, "Matrix product: share of the peak at boost clock."),
    "gemm_graphics_clock_hertz": Metric(GEMM, "Clock of the SMs, mean during the product."),
    "gemm_power_watts": Metric(GEMM, "Power drawn during the product."),
    "gemm_temperature_celsius": Metric(GEMM, "Temperature of the GPU during the product."),
    "bandwidth_peak_ratio": Metric((*GPU, "path"), "Share of the peak of the memory or the link."),
    "nccl_bus_bytes_per_second": Metric(COLLECTIVE, "Collective of NCCL over all GPUs: bus bandwidth."),
    "nccl_algorithm_bytes_per_second": Metric(COLLECTIVE, "The same: size divided by duration."),
    "nccl_duration_seconds": Metric(COLLECTIVE, "How long one of them takes; of small messages the latency."),
    "convolution_operations_per_second": Metric((*COMMON, "dtype", "layout", "shape"), "Convolution through cuDNN."),
    "transcode_completed": Metric(CASE, "1 where the transcode ran to its end, else 0."),
    "transcode_duration_seconds": Metric(CASE, "How long the transcode took."),
    "transcode_frames_per_second": Metric(CASE, "Frames of all outputs, divided by the duration."),
    "transcode_psnr_decibels": Metric(CASE, "PSNR against the source; of several outputs the lowest."),
    "throughput_frames_per_second": Metric(SERIES, "Frames a second of all sessions, at the best number of sessions."),
    "throughput_sessions": Metric(SERIES, "That number of sessions."),
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
        self._gemms(record)
        self._bandwidths(record)
        self._video(record)
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

    def _gemms(self, record: RunRecord) -> None:
        for row in measured.gemms(record):
            labels = {**_gpu(row.gpu), "dtype": row.dtype, "accumulate": row.accumulate}
            labels["shape"] = "x".join("?" if size is None else str(size) for size in (row.m, row.n, row.k))
            self._add("gemm_sustained_operations_per_second", times(row.sustained_tflops, 1e12), **labels)
            self._add("gemm_peak_ratio", times(row.percent, 0.01), **labels)
            self._add("gemm_graphics_clock_hertz", times(row.graphics_clock_mhz, 1e6), **labels)
            self._add("gemm_power_watts", row.power_watts, **labels)
            self._add("gemm_temperature_celsius", row.temperature_c, **labels)
        for made in measured.convolutions(record):
            labels = {"dtype": made.dtype, "layout": made.layout, "shape": made.shape}
            self._add("convolution_operations_per_second", times(made.tflops, 1e12), **labels)

    def _bandwidths(self, record: RunRecord) -> None:
        for row in measured.bandwidths(record):
            labels = {**_gpu(row.gpu), "path": row.what}
            self._add("bandwidth_peak_ratio", times(row.percent, 0.01), **labels)

        for collective in measured.collectives(record):
            labels = {
                "operation": collective.operation,
                "bytes": str(collective.bytes or ""),
                "gpus": str(collective.gpus),
            }
            self._add("nccl_bus_bytes_per_second", times(collective.busbw_gb_per_s, 1e9), **labels)
            self._add("nccl_algorithm_bytes_per_second", times(collective.algbw_gb_per_s, 1e9), **labels)
            self._add("nccl_duration_seconds", times(collective.microseconds, 1e-6), **labels)

    def _video(self, record: RunRecord) -> None:
        for case in measured.transcodes(record):
            labels = {"case": case.id, "title": case.title}
            if case.outcome not in ("not_built", "not_run"):
                self._add("transcode_completed", float(case.outcome == "completed"), **labels)
            self._add("transcode_duration_seconds", case.seconds, **labels)
            self._add("transcode_frames_per_second", case.fps, **labels)
            self._add("transcode_psnr_decibels", case.psnr_db, **labels)
        for series in measured.throughputs(record):
            labels = {**_gpu(series.gpu), "kind": series.kind, "codec": series.codec, "preset": series.preset}
            if series.best:
                self._add("throughput_frames_per_second", series.best.fps, **labels, size=series.size)
                self._add("throughput_sessions", series.best.sessions, **labels, size=series.size)


def _whole(record: RunRecord) -> RunRecord:
    """Without what a probe had measured that did not come to its end: a metric cannot say so beside its figure."""
    return dataclasses.replace(
        record, measurements=tuple(measurement for measurement in record.measurements if not is_partial(measurement))
    )


def _gpu(gpu: Gpu) -> dict[str, str]:
    return {"gpu": "" if gpu.index is None else str(gpu.index), "uuid": gpu.uuid}
