"""What the metrics of a night say, read back by Prometheus' own library."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from builders import gpu_facts, pci, resolved
from prometheus_client import Metric, samples
from prometheus_client.parser import text_string_to_metric_families
from records_for_tests import SNAPSHOT, record

from gpuprep.nightly import metrics, monitoring
from gpuprep.records import (
    ClockPair,
    DriftFacts,
    EccErrors,
    Finding,
    Missing,
    ProfileRef,
    RunRecord,
    Source,
    Status,
    Throttled,
    Verdict,
)

FINDINGS = (
    Finding("gpu 0", "application_clocks", Status.FAIL, "5001, 1590", "5001, 585", since="2026-11-19T02:30:00+00:00"),
    Finding(
        "gpu 0",
        "power_limit",
        Status.WAIVED,
        "70 W",
        "60 W",
        since="2026-11-01T02:30:00+00:00",
        waived="FAIL",
        waiver_expires="2026-11-30",
    ),
    Finding("driver", "loaded_version", Status.PASS, "550.163.01", "550.163.01"),
    Finding("gpu 0", "ecc", Status.SKIP, "", ""),
)


CARD = dataclasses.replace(
    gpu_facts(0, pci(["t4"])[0], resolved()),
    application_clocks=ClockPair(5001, 585),
    ecc_errors=EccErrors(0, 0, 7, Missing("not_supported")),
    throttled=Throttled(12.5, 0.0, Missing("not_supported"), 0.0, 0.0),
)


def drifted(host: str = "gpu-01", findings: tuple[Finding, ...] = FINDINGS, status: Status = Status.FAIL) -> RunRecord:
    return dataclasses.replace(
        record(),
        run_id="20261121-023000-0aa",
        command="drift",
        host=host,
        source=Source.MEASURED,
        started_at="2026-11-21T02:30:00+00:00",
        ended_at="2026-11-21T02:30:02+00:00",
        profile=ProfileRef("t4", "/profiles/t4.yml", "c0ffee" * 10),
        after=dataclasses.replace(SNAPSHOT, source=Source.MEASURED, gpus=(CARD,)),
        before=None,
        measurements=(),
        verdict=Verdict(status, f"{status.value}: of a test", findings),
        findings=findings,
        error=None,
        drift=DriftFacts("20261101-120000-0aa", "2026-11-01T12:00:00+00:00"),
    )


def families(text: str) -> dict[str, Metric]:
    return {family.name: family for family in text_string_to_metric_families(text)}


def series(text: str, name: str) -> list[samples.Sample]:
    return [one for family in families(text).values() for one in family.samples if one.name == name]


# Each metric by its whole name ► its labels.
METRICS = {f"gpuprep_{name}": metric.labels for name, metric in metrics.METRICS.items()}


def text_of(*nights: RunRecord) -> str:
    """What Prometheus is told of these checks."""
    return metrics.render(nights)


def write(folder: Path, night: RunRecord) -> None:
    """As each check leaves it for node_exporter."""
    metrics.write(folder, night)


def for_prometheus(name: str) -> str:
    """The "rules" or the "dashboard" that people load."""
    return monitoring.text(name)
