"""Drift results as Prometheus metrics, for node_exporter's textfile collector or a page of a whole fleet.

    render(records)           records of drift checks ─► one text; each metric's HELP and TYPE once
    write(folder, record)     the same for one record, written completely or not at all, as gpuprep.prom

Runs on the controller and, after the nightly check, on the host itself. docs/drift.md lists the metrics.
"""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from gpuprep.agent.programs import atomicfile
from gpuprep.checks import commands
from gpuprep.checks.judges.gemm import decoded
from gpuprep.records import (
    Finding,
    GpuFacts,
    Missing,
    ProbeResult,
    RunRecord,
    Snapshot,
    Source,
    Status,
    ended,
    moments,
    showable,
)
from gpuprep.records.evidence import measured
from gpuprep.records.evidence.bandwidth import Bandwidth
from gpuprep.records.evidence.gemm import Gemm
from gpuprep.records.findings import DONE
from gpuprep.records.recorded_options import RecordedOptions
from gpuprep.untrusted.plaintext import visible

if TYPE_CHECKING:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
    from prometheus_client.registry import Collector


# ---------------------------------------------------------------- the text


PREFIX = "gpuprep_"
MOST_SERIES = 2000  # of one metric and host
MOST_LETTERS = 500  # of a label's value
COMMON = ("host", "profile", "source")
GPU = (*COMMON, "gpu", "uuid")


class Metric(NamedTuple):
    labels: tuple[str, ...]
    help: str

    def family(self, name: str) -> CounterMetricFamily | GaugeMetricFamily:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        kind = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
        return kind(PREFIX + name, self.help, labels=self.labels)


Metrics = Mapping[str, Metric]  # by name without prefix, in the order in which they are shown


class Exposition:
    """Collects series, then shows them as text."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        # By labels: Prometheus accepts each series only once, even if a record repeats it.
        self._series: dict[str, dict[tuple[str, ...], float]] = {}
        self._counts: Counter[tuple[str, str]] = Counter()

    def add(self, name: str, value: object, labels: Mapping[str, str]) -> None:
        """Add one series of metric `name`, unless `value` is not a number (Missing, None). Unknown labels are dropped.

        At most MOST_SERIES per host and metric, so that the owner of one machine cannot fill the shared Prometheus.
        """
        number, host = _number(value), labels.get("host", "")
        if number is not None and self._counts[name, host] < MOST_SERIES:
            key = tuple(_label(labels[label]) for label in self._metrics[name].labels)
            self._series.setdefault(name, {})[key] = number
            self._counts[name, host] += 1

    def collect(self) -> Iterator[CounterMetricFamily | GaugeMetricFamily]:
        for name, metric in self._metrics.items():
            if name in self._series:
                family = metric.family(name)
                for labels, value in self._series[name].items():
                    family.add_metric(labels, value)
                yield family

    def text(self) -> str:
        from prometheus_client.exposition import generate_latest

        return generate_latest(cast("Collector", self)).decode()  # prometheus_client calls only `collect`


def times(value: object, factor: float) -> float | None:
    """The value in base units, without rounding errors of the product: 763.2 TFLOPS is 763.2e12.

    None for a negative figure, which no measurement can produce and no graph should show.
    """
    number = _number(value)
    return None if number is None or number < 0 else float(f"{number * factor:.12g}")


def _number(value: object) -> float | None:
    """The value as a float; None if it is not a number, not finite, or too large for a float."""
    if not isinstance(value, (int, float)):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def _label(text: str) -> str:
    """A label of safe characters and limited length: a lone surrogate from JSON would make the text unwritable."""
    text = visible(text)
    return text if len(text) <= MOST_LETTERS else f"{text[: MOST_LETTERS - 1]}…"


# ---------------------------------------------------------------- the metrics


FILE = "gpuprep.prom"  # node_exporter reads *.prom
MODE = 0o644  # node_exporter runs as a user of its own
MOST_FINDINGS = 100  # series of findings a host: an alert names a few, the counts have all

FINDING = (*COMMON, "subject", "property")
SPEEDS = {
    "gemm_operations_per_second": Metric(
        (*GPU, "dtype", "accumulate", "shape"),
        "Matrix product: operations a second, a multiply and an add are two.",
    ),
    "bandwidth_bytes_per_second": Metric((*GPU, "path"), "Bytes moved a second."),
}
METRICS = {
    "drift_info": Metric(
        (*COMMON, "profile_sha256", "run", "version", "check", "last", "schedule"),
        "The drift check that these figures are of; always 1. The last three are commands for the controller.",
    ),
    "drift_last_run_timestamp_seconds": Metric(COMMON, "When the drift check ended, in seconds since 1970."),
    "drift_duration_seconds": Metric(COMMON, "How long the drift check took."),
    "drift_verdict": Metric((*COMMON, "status"), "1 for the status of the verdict, 0 for the others."),
    "drift_findings": Metric((*COMMON, "status"), "How many checks ended with this status."),
    "drift_waived": Metric(COMMON, "How many checks did not pass and are waived by the profile."),
    "drift_finding": Metric((*FINDING, "status"), "A check that did not pass; always 1, absent where it passed."),
    "drift_finding_since_timestamp_seconds": Metric(
        FINDING, "Since when the check has not passed, in seconds since 1970."
    ),
    "drift_waiver_expiry_timestamp_seconds": Metric(
        FINDING, "When the waiver of a check that does not pass ends or ended, in seconds since 1970."
    ),
    "drift_random_delay_seconds": Metric(
        COMMON, "How much later than its set time the nightly check may start, by chance."
    ),
    "drift_probe_asked_since_timestamp_seconds": Metric(
        COMMON, "Since when the nightly check is asked to measure the speed, in seconds since 1970."
    ),
    "drift_probe_last_measured_timestamp_seconds": Metric(
        COMMON, "When a nightly check last measured the speed, in seconds since 1970."
    ),
    "drift_certified_timestamp_seconds": Metric(
        COMMON, "When the run began that the host is compared with, in seconds since 1970."
    ),
    "drift_baseline_ratio": Metric(
        (*GPU, "probe", "figure"), "What was measured, divided by the same figure of the host's baseline."
    ),
    **SPEEDS,
    "gpu_persistence_mode": Metric(GPU, "1 if persistence mode is on, else 0."),
    "gpu_power_limit_watts": Metric(GPU, "Power limit in force."),
    "gpu_power_draw_watts": Metric(GPU, "Power drawn at the moment of the check."),
    "gpu_temperature_celsius": Metric(GPU, "Temperature at the moment of the check."),
    "gpu_application_clock_hertz": Metric((*GPU, "clock"), "Application clock in force."),
    "gpu_clock_hertz": Metric((*GPU, "clock"), "Clock at the moment of the check."),
    "gpu_memory_total_bytes": Metric(GPU, "Memory of the GPU."),
    "gpu_ecc_errors_total": Metric((*GPU, "kind"), "ECC errors in the life of the GPU."),
    "gpu_pcie_replays_total": Metric(GPU, "Packets sent again over PCIe since the driver was loaded."),
    "gpu_throttled_seconds_total": Metric(
        (*GPU, "reason"), "How long this reason has lowered the clocks since the driver was loaded."
    ),
    "gpu_retired_pages": Metric((*GPU, "kind"), "Memory pages retired (Volta and Turing)."),
    "gpu_remapped_rows": Metric((*GPU, "kind"), "Memory rows remapped (Ampere and newer)."),
    "gpu_repair_pending": Metric(GPU, "1 if a page or row of memory waits for a reset of the GPU, else 0."),
    "gpu_remap_failure": Metric(GPU, "1 if a defective row of memory could not be replaced, else 0."),
    "gpu_row_banks": Metric((*GPU, "spare_rows"), "Banks of memory by how many spare rows they have left."),
    "gpu_memory_errors_total": Metric((*GPU, "memory", "kind"), "ECC errors in the life of the GPU, of DRAM and SRAM."),
    "gpu_sram_threshold_exceeded": Metric(GPU, "1 if SRAM had more errors than a board may have, else 0."),
    "gpu_pcie_errors_total": Metric((*GPU, "kind"), "Errors of the PCIe link since the driver was loaded."),
    "gpu_memory_temperature_celsius": Metric(GPU, "Temperature of the memory at the moment of the check."),
    "gpu_slowdown_temperature_celsius": Metric(GPU, "Temperature from which the hardware lowers the clocks."),
    "gpu_slowdown_margin_celsius": Metric(GPU, "Degrees left until the nearest slowdown (Ada, Hopper and newer)."),
    "gpu_recovery_action": Metric((*GPU, "action"), "What the driver says must be done with the GPU; always 1."),
}


def render(records: Sequence[RunRecord]) -> str:
    """The text for any number of hosts, each with its newest drift check."""
    # which limits its own number of series, and counts all findings
    return showable.document(_text, records, whole=True)


def _text(records: Sequence[RunRecord]) -> str:
    exposition = Exposition(METRICS)
    for record in records:
        add(exposition, record)
    return exposition.text()


def write(folder: Path, record: RunRecord) -> None:
    """Replace `folder`/gpuprep.prom; one writer at a time. Raises OSError if the folder cannot be written.

    Until it is complete, the new file has a name that node_exporter does not read.
    """
    atomicfile.tidy(folder, FILE)
    atomicfile.write(folder / FILE, render([record]), MODE)


def common(record: RunRecord) -> dict[str, str]:
    """The labels that all series of a run have."""
    sources = (record.source, *(result.source for result in record.measurements))
    return {
        "host": record.host,
        "profile": record.profile.name if record.profile else "",
        "source": (Source.SIMULATED if Source.SIMULATED in sources else record.source).value,
    }


def add(exposition: Exposition, record: RunRecord) -> None:
    """All series of one drift check. A check without a verdict is UNKNOWN, and has no counts."""
    labels = common(record)
    began, end = seconds(record.started_at), seconds(record.ended_at)
    info = {
        "profile_sha256": record.profile.sha256 if record.profile else "",
        "run": record.run_id,
        "version": record.gpuprep_version,
        "check": commands.again(record, "drift"),
        "last": commands.again(record, "drift last"),
        "schedule": commands.again(record, "drift schedule"),
    }
    exposition.add("drift_info", 1, {**labels, **info})
    exposition.add("drift_last_run_timestamp_seconds", end, labels)
    if began is not None and end is not None:
        exposition.add("drift_duration_seconds", max(0.0, end - began), labels)
    delay = RecordedOptions.read(record.options).random_delay_minutes
    exposition.add("drift_random_delay_seconds", times(delay, 60), labels)
    if record.drift is not None:
        asked, last = record.drift.probe_asked_since, record.drift.probe_measured_at
        exposition.add("drift_probe_asked_since_timestamp_seconds", seconds(asked), labels)
        exposition.add("drift_probe_last_measured_timestamp_seconds", seconds(last), labels)
    status = ended.status(record)
    for state in Status:
        exposition.add("drift_verdict", float(status is state), {**labels, "status": state.value})
    if record.verdict:
        _findings(exposition, labels, record.verdict.findings)
    if record.drift:
        exposition.add("drift_certified_timestamp_seconds", seconds(record.drift.certified_at), labels)
        for compared in record.drift.compared:
            if compared.before > 0:
                ratio = times(compared.now / compared.before, 1.0)
                gpu = _of_uuid(record.after, compared.gpu_uuid)
                exposition.add(
                    "drift_baseline_ratio", ratio, {**labels, **gpu, "probe": compared.probe, "figure": compared.name}
                )
    add_speeds(exposition, record)
    _gpus(exposition, labels, record.after)


def add_speeds(exposition: Exposition, record: RunRecord) -> None:
    """The speeds of the probes gemm and bandwidth, if the run has them."""
    labels = common(record)
    products = measured(Gemm, _values(record.measurements, "gemm"))
    for gpu in [] if isinstance(products, Missing) else decoded.gpus(products):
        of_gpu = {**labels, "gpu": str(gpu.index), "uuid": gpu.uuid}
        for gemm in gpu.gemms:
            shape = "x".join("?" if size is None else str(size) for size in (gemm.m, gemm.n, gemm.k))
            kind = {"dtype": gemm.dtype, "accumulate": gemm.accumulate, "shape": shape}
            exposition.add("gemm_operations_per_second", times(gemm.tflops, 1e12), {**of_gpu, **kind})
    moved = measured(Bandwidth, _values(record.measurements, "bandwidth"))
    if isinstance(moved, Missing):
        return
    indexed: dict[str, dict[str, str]] = {}
    for entry in moved.gpus:
        if isinstance(entry, Missing):
            continue
        index = _index(entry.index)
        indexed[index] = {**labels, "gpu": index, "uuid": entry.uuid}
        for path, speed in {**entry.memory, **entry.host}.items():
            exposition.add("bandwidth_bytes_per_second", times(speed, 1e9), {**indexed[index], "path": path})
    for pair in moved.peers:
        start, end = _index(pair.start), _index(pair.end)
        of_gpu = indexed.get(start, {**labels, "gpu": start, "uuid": ""})
        path = f"GPU {start} to GPU {end}"
        exposition.add("bandwidth_bytes_per_second", times(pair.gb_per_s, 1e9), {**of_gpu, "path": path})


def seconds(moment: str) -> float | None:
    """UTC, ISO 8601 ─► seconds since 1970; None if the text is not a moment."""
    read = moments.moment(moment)
    return read.timestamp() if read else None


def _findings(exposition: Exposition, labels: Mapping[str, str], findings: Sequence[Finding]) -> None:
    counts = Counter(finding.status for finding in findings)
    for status in Status:
        exposition.add("drift_findings", counts[status], {**labels, "status": status.value})
    exposition.add("drift_waived", counts[Status.WAIVED], labels)
    for finding in [finding for finding in findings if finding.status not in DONE][:MOST_FINDINGS]:
        named = {**labels, "subject": finding.subject, "property": finding.property}
        exposition.add("drift_finding", 1, {**named, "status": finding.status.value})
        exposition.add("drift_finding_since_timestamp_seconds", seconds(finding.since), named)
        last_day = seconds(finding.waiver_expires)
        if last_day is not None:  # it holds to the end of that day, UTC; a second later is another date
            exposition.add("drift_waiver_expiry_timestamp_seconds", last_day + 86399, named)


def _gpus(exposition: Exposition, labels: Mapping[str, str], snapshot: Snapshot | None) -> None:
    if snapshot is None or isinstance(snapshot.gpus, Missing):
        return
    for gpu in snapshot.gpus:
        of_gpu = {**labels, "gpu": str(gpu.index), "uuid": gpu.uuid}
        for name, value, more in _readings(gpu):
            exposition.add(name, value, {**of_gpu, **more})


def _readings(gpu: GpuFacts) -> Iterator[tuple[str, object, dict[str, str]]]:
    """(metric, value in base units, labels in addition to the GPU's) for each reading."""
    yield "gpu_persistence_mode", gpu.persistence_mode, {}
    yield "gpu_power_limit_watts", gpu.power.current_watts, {}
    yield "gpu_power_draw_watts", gpu.power_watts, {}
    yield "gpu_temperature_celsius", gpu.temperature_c, {}
    yield "gpu_memory_total_bytes", times(gpu.memory_total_mib, 2**20), {}
    clocks = {"graphics": gpu.graphics_clock_mhz, "memory": gpu.memory_clock_mhz, "video": gpu.video_clock_mhz}
    for clock, mhz in clocks.items():
        yield "gpu_clock_hertz", times(mhz, 1e6), {"clock": clock}
    if not isinstance(gpu.application_clocks, Missing):
        pair = gpu.application_clocks
        yield "gpu_application_clock_hertz", times(pair.graphics_mhz, 1e6), {"clock": "graphics"}
        yield "gpu_application_clock_hertz", times(pair.memory_mhz, 1e6), {"clock": "memory"}
    if not isinstance(gpu.ecc_errors, Missing):
        yield "gpu_ecc_errors_total", gpu.ecc_errors.corrected_aggregate, {"kind": "corrected"}
        yield "gpu_ecc_errors_total", gpu.ecc_errors.uncorrected_aggregate, {"kind": "uncorrected"}
    if not isinstance(gpu.pcie, Missing):
        yield "gpu_pcie_replays_total", gpu.pcie.replays, {}
    yield from _each("gpu_throttled_seconds_total", gpu.throttled, "reason")
    if not isinstance(gpu.retired_pages, Missing):
        yield "gpu_retired_pages", gpu.retired_pages.single_bit, {"kind": "single_bit"}
        yield "gpu_retired_pages", gpu.retired_pages.double_bit, {"kind": "double_bit"}
    if not isinstance(gpu.remapped_rows, Missing):
        yield "gpu_remapped_rows", gpu.remapped_rows.correctable, {"kind": "correctable"}
        yield "gpu_remapped_rows", gpu.remapped_rows.uncorrectable, {"kind": "uncorrectable"}
        yield "gpu_remap_failure", gpu.remapped_rows.failure, {}
    yield from _health(gpu)


def _health(gpu: GpuFacts) -> Iterator[tuple[str, object, dict[str, str]]]:
    waits = [each.pending for each in (gpu.retired_pages, gpu.remapped_rows) if not isinstance(each, Missing)]
    known = [each for each in waits if not isinstance(each, Missing)]
    yield "gpu_repair_pending", any(known) if known else None, {}
    yield from _each("gpu_row_banks", gpu.spare_rows, "spare_rows")
    for memory, errors in (("dram", gpu.dram_errors), ("sram", gpu.sram_errors)):
        if not isinstance(errors, Missing):
            of_memory = {"memory": memory}
            yield "gpu_memory_errors_total", errors.corrected_aggregate, {**of_memory, "kind": "corrected"}
            yield "gpu_memory_errors_total", errors.uncorrected_aggregate, {**of_memory, "kind": "uncorrected"}
    yield "gpu_sram_threshold_exceeded", gpu.sram_threshold_exceeded, {}
    yield from _each("gpu_pcie_errors_total", gpu.pcie_errors, "kind")
    yield "gpu_slowdown_temperature_celsius", gpu.slowdown_temperature_c, {}
    if not isinstance(gpu.temperatures, Missing):
        yield "gpu_memory_temperature_celsius", gpu.temperatures.memory, {}
        yield "gpu_slowdown_margin_celsius", gpu.temperatures.margin, {}
    if isinstance(gpu.recovery_action, str):
        yield "gpu_recovery_action", 1, {"action": gpu.recovery_action}


def _each(name: str, readings: Any, label: str) -> Iterator[tuple[str, object, dict[str, str]]]:
    """One series per field of `readings`, a dataclass or Missing."""
    for each in () if isinstance(readings, Missing) else dataclasses.fields(readings):
        yield name, getattr(readings, each.name), {label: each.name}


def _of_uuid(snapshot: Snapshot | None, uuid: str) -> dict[str, str]:
    gpus = () if snapshot is None or isinstance(snapshot.gpus, Missing) else snapshot.gpus
    return {"gpu": next((str(gpu.index) for gpu in gpus if gpu.uuid == uuid), ""), "uuid": uuid}


def _values(measurements: Sequence[ProbeResult], probe: str) -> object:
    """The values of the last run of a probe; None without any."""
    return next((result.values for result in reversed(measurements) if result.probe == probe), None)


def _index(index: int | None) -> str:
    return "" if index is None else str(index)
