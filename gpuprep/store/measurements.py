"""Rows of the store's table of measurements, inside the caller's transaction. Use it through store/__init__.py.

A row is one figure that runs can be compared by (checks.baseline.figures_of): more is better in all of them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from gpuprep.performance.trend import Measurement
from gpuprep.records import Missing, RunRecord, Source
from gpuprep.store import hostnames
from gpuprep.store.tables import fitting, latest, measurements

# Judging again measures nothing: its figures are those of the run that it judges.
WITHOUT = ("judge",)


def rows(record: RunRecord) -> list[dict[str, Any]]:
    """The figures of a run as rows, simulated ones too."""
    snapshot = record.after or record.before
    version = snapshot.agent_version if snapshot else record.gpuprep_version
    named = {"run_id": record.run_id, "host": record.host, "started_at": record.started_at}
    probed = [(one.probe, one.source.value, one.values) for one in record.measurements]
    return [] if record.command in WITHOUT else _rows(named, version, probed)


def rows_of_text(text: str) -> list[dict[str, Any]]:
    """The same of a record as JSON, as older versions stored it; [] where the row is damaged."""
    try:
        document = json.loads(text)
        snapshot = document.get("after") or document.get("before") or {}
        version = snapshot.get("agent_version") or document["gpuprep_version"]
        named = {name: document[name] for name in ("run_id", "host", "started_at")}
        probed = [(one["probe"], one["source"], one["values"]) for one in document["measurements"]]
    except (ValueError, KeyError, TypeError, AttributeError):
        return []
    return [] if document.get("command") in WITHOUT else _rows(named, version, probed)


def add(connection: Connection, record: RunRecord) -> None:
    if found := rows(record):
        connection.execute(measurements.insert(), found)


def read(connection: Connection, host: str, since: str) -> list[Measurement]:
    """All figures of a host from `since` (UTC, ISO 8601) on, oldest first; none of a moment that is yet to come."""
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


def newest(connection: Connection, host: str) -> str | None:
    """When the newest figure of a host was measured, as far as its clock can be right; None where there is none."""
    known = measurements.c.started_at <= latest()
    mine = measurements.c.host.in_(hostnames.of_host(connection, host))
    query = sa.select(sa.func.max(measurements.c.started_at)).where(mine, known)
    found: str | None = connection.execute(query).scalar()
    return found


def _rows(
    named: Mapping[str, str], version: str, probed: Sequence[tuple[str, str, Mapping[str, Any] | Missing]]
) -> list[dict[str, Any]]:
    from gpuprep.checks.baseline import figures_of

    found: dict[tuple[str, str, str, str], float] = {}
    sources = {}
    for probe, source, values in probed:  # of a probe that was made twice, the last
        sources[probe] = source
        for key, figures in figures_of({probe: values}, version).items():
            for name, value in figures.items():
                if math.isfinite(value):
                    found[fitting(key.gpu_uuid, 64), probe, fitting(key.versions, 200), fitting(name, 120)] = value
    return [
        {
            **named, "position": position, "source": sources[probe], "gpu_uuid": uuid, "probe": probe,
            "versions": versions, "figure": figure, "value": value,
        }
        for position, ((uuid, probe, versions, figure), value) in enumerate(found.items())
    ]  # fmt: skip
