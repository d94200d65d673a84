"""Prometheus text exposition: the figures and statuses of one run, in base units, for a textfile collector.

Only numbers that were read are exposed: an absent series is Prometheus' own word for no reading.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import datetime

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector

from gpuprep.records import RunRecord, Source, Status
from gpuprep.reports import measured
from gpuprep.reports.readings import Number, known
from gpuprep.reports.rows import Gpu

COMMON = ("host", "profile", "source")
GPU = (*COMMON, "gpu", "uuid")
GEMM = (*GPU, "dtype", "accumulate", "shape")
CASE = (*COMMON, "case", "title")
SERIES = (*GPU, "kind", "codec", "preset", "size")
# name without prefix: labels and HELP.
METRICS: dict[str, tuple[tuple[str, ...], str]] = {
    "run_info": ((*COMMON, "run", "command", "version"), "The run that these figures are of; always 1."),
    "run_start_timestamp_seconds": (COMMON, "When the run began, in seconds since 1970."),
    "run_duration_seconds": (COMMON, "How long the run took."),
    "run_exit_code": (COMMON, "Exit code of the command: 0 as wanted, 1 judged otherwise, see the manual for more."),
    "verdict": ((*COMMON, "status"), "1 for the status of the verdict, 0 for the others."),
    "findings": ((*COMMON, "status"), "How many checks ended with this status."),
    "check": ((*COMMON, "subject", "property", "status"), "One check of the run; always 1."),
    "gemm_operations_per_second": (GEMM, "Matrix product: operations a second, a multiply and an add are two."),
    "gemm_sustained_operations_per_second": (GEMM, "The same over a long run."),
    "gemm_peak_ratio": (GEMM, "Matrix product: share of the peak at boost clock."),
    "gemm_graphics_clock_hertz": (GEMM, "Clock of the SMs, mean during the product."),
    "gemm_power_watts": (GEMM, "Power drawn during the product."),
    "gemm_temperature_celsius": (GEMM, "Temperature of the GPU during the product."),
    "bandwidth_bytes_per_second": ((*GPU, "path"), "Bytes moved a second."),
    "bandwidth_peak_ratio": ((*GPU, "path"), "Share of the peak of the memory or the link."),
    "convolution_operations_per_second": ((*COMMON, "dtype", "layout", "shape"), "Convolution through cuDNN."),
    "transcode_completed": (CASE, "1 where the transcode ran to its end, else 0."),
    "transcode_duration_seconds": (CASE, "How long the transcode took."),
    "transcode_frames_per_second": (CASE, "Frames of all outputs, divided by the duration."),
    "transcode_psnr_decibels": (CASE, "PSNR against the source; of several outputs the lowest."),
    "throughput_frames_per_second": (SERIES, "Frames a second of all sessions, at the best number of sessions."),
    "throughput_sessions": (SERIES, "That number of sessions."),
}


def render(record: RunRecord) -> str:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Run(record))
    return generate_latest(registry).decode()


class _Run(Collector):
    def __init__(self, record: RunRecord) -> None:
        profile = record.profile.name if record.profile else ""
        source = (Source.SIMULATED if measured.simulated(record) else record.source).value
        self._common = {"host": record.host, "profile": profile, "source": source}
        # By labels: a series may be exposed once only, whatever a record repeats.
        self._samples: dict[str, dict[tuple[str, ...], float]] = {}
        self._run(record)
        self._gemms(record)
        self._bandwidths(record)
        self._video(record)

    def collect(self) -> Iterator[GaugeMetricFamily]:
        for name, (labels, words) in METRICS.items():
            family = GaugeMetricFamily(f"gpuprep_{name}", words, labels=labels)
            for labelled, value in self._samples.get(name, {}).items():
                family.add_metric(labelled, value)
            if family.samples:
                yield family

    def _add(self, name: str, value: Number | None, **labels: str) -> None:
        read = None if value is None else known(value)
        if read is not None:
            every = {**self._common, **labels}
            key = tuple(every[label] for label in METRICS[name][0])
            self._samples.setdefault(name, {})[key] = read

    def _run(self, record: RunRecord) -> None:
        began, ended = (datetime.fromisoformat(moment) for moment in (record.started_at, record.ended_at))
        self._add("run_info", 1, run=record.run_id, command=record.command, version=record.gpuprep_version)
        self._add("run_start_timestamp_seconds", began.timestamp())
        self._add("run_duration_seconds", (ended - began).total_seconds())
        self._add("run_exit_code", record.exit_code)
        findings = record.verdict.findings if record.verdict else record.findings
        counts = Counter(finding.status for finding in findings)
        for status in Status:
            if record.verdict:
                self._add("verdict", float(record.verdict.status is status), status=status.value)
            self._add("findings", counts[status], status=status.value)
        for finding in findings:
            self._add("check", 1, subject=finding.subject, property=finding.property, status=finding.status.value)

    def _gemms(self, record: RunRecord) -> None:
        for row in measured.gemms(record):
            labels = {**_gpu(row.gpu), "dtype": row.dtype, "accumulate": row.accumulate}
            labels["shape"] = "x".join("?" if size is None else str(size) for size in (row.m, row.n, row.k))
            self._add("gemm_operations_per_second", _times(row.tflops, 1e12), **labels)
            self._add("gemm_sustained_operations_per_second", _times(row.sustained_tflops, 1e12), **labels)
            self._add("gemm_peak_ratio", _times(row.percent, 0.01), **labels)
            self._add("gemm_graphics_clock_hertz", _times(row.graphics_clock_mhz, 1e6), **labels)
            self._add("gemm_power_watts", row.power_watts, **labels)
            self._add("gemm_temperature_celsius", row.temperature_c, **labels)
        for made in measured.convolutions(record):
            labels = {"dtype": made.dtype, "layout": made.layout, "shape": made.shape}
            self._add("convolution_operations_per_second", _times(made.tflops, 1e12), **labels)

    def _bandwidths(self, record: RunRecord) -> None:
        for row in measured.bandwidths(record):
            labels = {**_gpu(row.gpu), "path": row.what}
            self._add("bandwidth_bytes_per_second", _times(row.gb_per_s, 1e9), **labels)
            self._add("bandwidth_peak_ratio", _times(row.percent, 0.01), **labels)

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


def _gpu(gpu: Gpu) -> dict[str, str]:
    return {"gpu": "" if gpu.index is None else str(gpu.index), "uuid": gpu.uuid}


def _times(value: Number | None, factor: float) -> float | None:
    """Rounded to the figures that were read: 763.2 TFLOPS is 763.2e12, without the dust of the product."""
    read = None if value is None else known(value)
    return None if read is None else float(f"{read * factor:.12g}")
