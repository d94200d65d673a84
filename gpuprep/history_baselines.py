"""Rows of the store's table of baselines, inside the caller's transaction. history.py is the door to it."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from gpuprep.baselines import Baseline, BaselineFigure, BaselineKey, Measured
from gpuprep.history_schema import baselines


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
    have = read(connection, host, list(measured))
    rows: list[Mapping[str, Any]] = [
        {**_where(host, key), "figure": name, "value": value, "run_id": run_id, "set_at": set_at}
        for key, figures in measured.items()
        for name, value in ((_fitting(name, 120), value) for name, value in figures.items())
        if name not in have.get(key, {})
    ]
    if rows:
        connection.execute(baselines.insert(), rows)


def _where(host: str, key: BaselineKey) -> dict[str, str]:
    return {"host": host, "gpu_uuid": key.gpu_uuid, "probe": key.probe, "versions": _fitting(key.versions, 200)}


def _fitting(text: str, width: int) -> str:
    """A text that is longer than its column ends in a digest of the whole."""
    if len(text) <= width:
        return text
    return f"{text[: width - 17]} {hashlib.sha256(text.encode()).hexdigest()[:16]}"
