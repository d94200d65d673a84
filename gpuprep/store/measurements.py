"""Rows of the store's table of measurements, inside the caller's transaction. Use it through store/__init__.py.

A row is one figure by which runs can be compared (checks.baseline.figures_of): for every figure, more is better.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from gpuprep.performance.trend import Measurement
from gpuprep.records import Missing, RunRecord, Source
from gpuprep.store import hostnames
from gpuprep.store.tables import fitting, latest, measurements

# Judging again measures nothing: its figures are those of the run that it judges.
WITHOUT = ("judge",)
# Series whose frames per second a list shows: the first kind that was measured.
VIDEO = ("transcode", "encode", "decode")
AT_A_TIME = 500  # ids in one query


def rows(record: RunRecord) -> list[dict[str, Any]]:
    """The figures of a run as rows, simulated ones too."""
    snapshot = record.after or record.before
    version = snapshot.agent_version if snapshot else record.gpuprep_version
    named = {"run_id": record.run_id, "host": record.host, "started_at": record.started_at}
    probed = [(measurement.probe, measurement.source.value, measurement.values) for measurement in record.measurements]
    return [] if record.command in WITHOUT else _rows(named, version, probed)


def rows_of_text(text: str) -> list[dict[str, Any]]:
    """As `rows`, for a record as JSON from an older version; [] if the record is damaged."""
    try:
        document = json.loads(text)
        snapshot = document.get("after") or document.get("before") or {}
        version = snapshot.get("agent_version") or document["gpuprep_version"]
        named = {name: document[name] for name in ("run_id", "host", "started_at")}
        probed = [
            (measurement["probe"], measurement["source"], measurement["values"])
            for measurement in document["measurements"]
        ]
    except (ValueError, KeyError, TypeError, AttributeError):
        return []
    return [] if document.get("command") in WITHOUT else _rows(named, version, probed)


def add(connection: Connection, record: RunRecord) -> None:
    if new_rows := rows(record):
        connection.execute(measurements.insert(), new_rows)


def read(connection: Connection, host: str, since: str) -> list[Measurement]:
    """All figures of a host from `since` (UTC, ISO 8601) on, oldest first; without figures dated into the future."""
    started = measurements.c.started_at
    mine = measurements.c.host.in_(hostnames.of_host(connection, host))
    query = sa.select(measurements).where(mine, started >= since, started <= latest())
    ordered = query.order_by(measurements.c.started_at, measurements.c.run_id, measurements.c.position)
    return [
        Measurement(
            row["started_at"], row["run_id"], row["gpu_uuid"], row["probe"], row["versions"], row["figure"],
            row["value"], Source(row["source"]),
        )
        for row in connection.execute(ordered).mappings()
    ]  # fmt: skip


@dataclass(frozen=True)
class Headline:
    """The figures of one run that lists show: the highest of all GPUs; None: not measured."""

    fp16_tflops: float | None = None
    bf16_tflops: float | None = None
    memory_gb_per_s: float | None = None
    video_fps: float | None = None
    video: str = ""  # the series with these frames per second: "transcode h264 p4 1920x1080"
    leading: Series | None = None  # the first of these that there is: what a host's sparkline is of


@dataclass(frozen=True)
class Series:
    """Identifies one figure of one GPU that several runs measured with the same versions."""

    gpu_uuid: str
    probe: str
    versions: str
    figure: str
    source: Source


def headlines(connection: Connection, run_ids: Sequence[str]) -> dict[str, Headline]:
    """Run id ► its headline; only runs that measured a figure that lists show."""
    wanted = sa.or_(
        measurements.c.figure.startswith("fp16", autoescape=True),
        measurements.c.figure.startswith("bf16", autoescape=True),
        measurements.c.figure.startswith("device ", autoescape=True),
        measurements.c.probe == "throughput",
    )
    rows: dict[str, list[Any]] = {}
    for start in range(0, len(run_ids), AT_A_TIME):
        mine = measurements.c.run_id.in_(run_ids[start : start + AT_A_TIME])
        for row in connection.execute(sa.select(measurements).where(mine, wanted)):
            rows.setdefault(row.run_id, []).append(row)
    return {run_id: _headline(run_rows) for run_id, run_rows in rows.items()}


def _headline(rows: Sequence[Any]) -> Headline:
    products = [row for row in rows if row.probe == "gemm" and not row.figure.endswith(" sustained")]
    fp16 = _highest(row for row in products if _type(row.figure) == "fp16")
    bf16 = _highest(row for row in products if _type(row.figure) == "bf16")
    memory = _highest(row for row in rows if row.probe == "bandwidth" and row.figure.startswith("device "))
    of_video = [row for row in rows if row.probe == "throughput"]
    kinds = [[row for row in of_video if row.figure.startswith(kind)] for kind in VIDEO]
    video = _highest(next(filter(None, kinds), []))
    first = next((row for row in (fp16, bf16, memory, video) if row is not None), None)
    leading = None
    if first is not None:
        leading = Series(first.gpu_uuid, first.probe, first.versions, first.figure, Source(first.source))
    values = [row.value if row is not None else None for row in (fp16, bf16, memory, video)]
    return Headline(values[0], values[1], values[2], values[3], video.figure if video is not None else "", leading)


def _type(figure: str) -> str:
    """ "fp16 8192x8192x8192 TN" ► "fp16"; "fp16/fp16 ..." is another type."""
    return figure.partition(" ")[0]


def _highest(rows: Iterable[Any]) -> Any:
    return max(rows, key=lambda row: row.value, default=None)


def recent(connection: Connection, host: str, series: Series, limit: int) -> list[tuple[str, float]]:
    """(started_at, value) of the newest `limit` figures of one series of a host, oldest first."""
    mine = measurements.c.host.in_(hostnames.of_host(connection, host))
    same = [
        measurements.c.gpu_uuid == series.gpu_uuid, measurements.c.probe == series.probe,
        measurements.c.versions == series.versions, measurements.c.figure == series.figure,
        measurements.c.source == series.source.value, measurements.c.started_at <= latest(),
    ]  # fmt: skip
    query = sa.select(measurements.c.started_at, measurements.c.value).where(mine, *same)
    ordered = query.order_by(measurements.c.started_at.desc(), measurements.c.run_id.desc()).limit(limit)
    return [(row.started_at, row.value) for row in reversed(connection.execute(ordered).all())]


def newest(connection: Connection, host: str) -> str | None:
    """When the newest figure of a host was measured, ignoring times in the future; None without figures."""
    known = measurements.c.started_at <= latest()
    mine = measurements.c.host.in_(hostnames.of_host(connection, host))
    query = sa.select(sa.func.max(measurements.c.started_at)).where(mine, known)
    moment: str | None = connection.execute(query).scalar()
    return moment


def _rows(
    named: Mapping[str, str], version: str, probed: Sequence[tuple[str, str, Mapping[str, Any] | Missing]]
) -> list[dict[str, Any]]:
    from gpuprep.checks.baseline import figures_of

    by_series: dict[tuple[str, str, str, str], float] = {}
    sources = {}
    for probe, source, values in probed:  # of a probe that was made twice, the last
        sources[probe] = source
        for key, figures in figures_of({probe: values}, version).items():
            for name, value in figures.items():
                if math.isfinite(value):
                    by_series[fitting(key.gpu_uuid, 64), probe, fitting(key.versions, 200), fitting(name, 120)] = value
    return [
        {
            **named, "position": position, "source": sources[probe], "gpu_uuid": uuid, "probe": probe,
            "versions": versions, "figure": figure, "value": value,
        }
        for position, ((uuid, probe, versions, figure), value) in enumerate(by_series.items())
    ]  # fmt: skip
