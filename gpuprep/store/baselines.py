"""Rows of the store's table of baselines, inside the caller's transaction. Use it through store/__init__.py."""

from __future__ import annotations

from collections.abc import Collection

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from gpuprep.records.baseline import Baseline, BaselineFigure, BaselineKey, Measured
from gpuprep.store.tables import baselines, fitting, insert_missing

KEY = ("host", "gpu_uuid", "probe", "versions", "figure")


def read(connection: Connection, host: str, keys: Collection[BaselineKey]) -> Baseline:
    found: dict[BaselineKey, dict[str, BaselineFigure]] = {}
    for key in keys:
        query = sa.select(baselines).where(*(baselines.c[name] == value for name, value in _where(host, key).items()))
        rows = connection.execute(query.order_by(baselines.c.figure)).mappings()
        figures = {row["figure"]: BaselineFigure(row["value"], row["run_id"], row["set_at"]) for row in rows}
        if figures:
            found[key] = figures
    return found


def read_all(connection: Connection, host: str) -> Baseline:
    found: dict[BaselineKey, dict[str, BaselineFigure]] = {}
    query = sa.select(baselines).where(baselines.c.host == host)
    for row in connection.execute(query.order_by(baselines.c.probe, baselines.c.figure)).mappings():
        key = BaselineKey(row["gpu_uuid"], row["probe"], row["versions"])
        found.setdefault(key, {})[row["figure"]] = BaselineFigure(row["value"], row["run_id"], row["set_at"])
    return found


def add(connection: Connection, host: str, run_id: str, set_at: str, measured: Measured) -> None:
    """Those figures that the host has none of yet; what another writer puts there meanwhile stays."""
    rows = [
        {**_where(host, key), "figure": fitting(name, 120), "value": value, "run_id": run_id, "set_at": set_at}
        for key, figures in measured.items()
        for name, value in figures.items()
    ]
    # In one order: two writers of the same figures would wait for each other.
    insert_missing(connection, baselines, sorted(rows, key=lambda row: [str(row[name]) for name in KEY]))


def replace(connection: Connection, host: str, run_id: str, set_at: str, measured: Measured) -> None:
    """Those figures in place of what the host has under the same keys."""
    for key in measured:
        same = [baselines.c[name] == value for name, value in _where(host, key).items()]
        connection.execute(baselines.delete().where(*same))
    add(connection, host, run_id, set_at, measured)


def clear(connection: Connection, host: str, probe: str | None) -> int:
    """Forget the figures of a host, or of one probe of it; returns how many."""
    query = baselines.delete().where(baselines.c.host == host)
    if probe is not None:
        query = query.where(baselines.c.probe == probe)
    return connection.execute(query).rowcount


def _where(host: str, key: BaselineKey) -> dict[str, str]:
    return {"host": host, "gpu_uuid": key.gpu_uuid, "probe": key.probe, "versions": fitting(key.versions, 200)}
