"""Rows of the store's table of baselines, inside the caller's transaction. Use it through store/__init__.py.

Figures are written under the first name of a host and read under all of its names. If two names have the same figure,
the older one counts.
"""

from __future__ import annotations

from collections.abc import Collection

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from gpuprep.records.baseline import Baseline, BaselineFigure, BaselineKey, Measured
from gpuprep.store import hostnames
from gpuprep.store.tables import baselines, fitting, insert_missing

ORDER = (baselines.c.figure, baselines.c.set_at, baselines.c.run_id)
KEY = ("host", "gpu_uuid", "probe", "versions", "figure")


def read(connection: Connection, host: str, keys: Collection[BaselineKey]) -> Baseline:
    """The figures under these keys; a key without any is left out."""
    names = hostnames.of_host(connection, host)
    by_key: dict[BaselineKey, dict[str, BaselineFigure]] = {}
    for key in keys:
        rows = connection.execute(sa.select(baselines).where(*_where(names, key)).order_by(*ORDER)).mappings()
        figures: dict[str, BaselineFigure] = {}
        for row in rows:
            figures.setdefault(row["figure"], BaselineFigure(row["value"], row["run_id"], row["set_at"]))
        if figures:
            by_key[key] = figures
    return by_key


def read_all(connection: Connection, host: str) -> Baseline:
    by_key: dict[BaselineKey, dict[str, BaselineFigure]] = {}
    query = sa.select(baselines).where(baselines.c.host.in_(hostnames.of_host(connection, host)))
    for row in connection.execute(query.order_by(baselines.c.probe, *ORDER)).mappings():
        key = BaselineKey(row["gpu_uuid"], row["probe"], row["versions"])
        figure = BaselineFigure(row["value"], row["run_id"], row["set_at"])
        by_key.setdefault(key, {}).setdefault(row["figure"], figure)
    return by_key


def add(connection: Connection, host: str, run_id: str, set_at: str, measured: Measured) -> None:
    """Add the figures that the host does not have yet; figures that another writer adds meanwhile stay."""
    host = hostnames.first_of(connection, host)
    rows = [
        {"host": host, **_columns(key), "figure": fitting(name, 120), "value": value, "run_id": run_id,
         "set_at": set_at}
        for key, figures in measured.items()
        for name, value in figures.items()
    ]  # fmt: skip
    # In a fixed order: otherwise two writers of the same figures could wait for each other.
    insert_missing(connection, baselines, sorted(rows, key=lambda row: [str(row[name]) for name in KEY]))


def replace(connection: Connection, host: str, run_id: str, set_at: str, measured: Measured) -> None:
    """Replace all figures of the host with the same keys."""
    names = hostnames.of_host(connection, host)
    for key in measured:
        connection.execute(baselines.delete().where(*_where(names, key)))
    add(connection, host, run_id, set_at, measured)


def clear(connection: Connection, host: str, probe: str | None) -> int:
    """Delete the figures of a host, or those of one probe; returns how many were deleted."""
    query = baselines.delete().where(baselines.c.host.in_(hostnames.of_host(connection, host)))
    if probe is not None:
        query = query.where(baselines.c.probe == probe)
    return connection.execute(query).rowcount


def _where(names: Collection[str], key: BaselineKey) -> list[sa.ColumnElement[bool]]:
    same = [baselines.c[name] == value for name, value in _columns(key).items()]
    return [baselines.c.host.in_(names), *same]


def _columns(key: BaselineKey) -> dict[str, str]:
    return {"gpu_uuid": key.gpu_uuid, "probe": key.probe, "versions": fitting(key.versions, 200)}
