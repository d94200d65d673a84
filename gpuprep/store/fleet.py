"""The newest runs of each host, with few queries for any number of runs. Use it through store/__init__.py."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from gpuprep.records import Status, ended
from gpuprep.store.tables import findings, host_names, latest, runs, tells


def lines() -> sa.Select[Any]:
    """Each row of runs without its record, and `failed`: how many of its findings did."""
    failed = (
        sa.select(sa.func.count())
        .where(findings.c.run_id == runs.c.run_id, findings.c.status == Status.FAIL.value)
        .scalar_subquery()
    )
    columns = [column for column in runs.c if column.name != "record"]
    return sa.select(*columns, failed.label("failed"))


def newest_of_each(connection: Connection) -> list[tuple[Any | None, Any]]:
    """For each host, under any of its names: its newest run that says how it is (None: there is none), and its newest
    run; rows of runs without the record, with `failed`. Sorted by host.

    A run dated into the future by a wrong clock counts only if its host has no other run.
    """
    any_run = _newest(connection, sa.true())
    speaking = _newest(connection, tells())
    return [(speaking.get(host), any_run[host]) for host in sorted(any_run)]


def _newest(connection: Connection, which: sa.ColumnElement[bool]) -> dict[str, Any]:
    moment = latest()
    by_host: dict[str, Any] = {}
    first = {row.name: row.host for row in connection.execute(sa.select(host_names.c.name, host_names.c.host))}
    for when in (runs.c.started_at <= moment, runs.c.started_at > moment):
        named: dict[str, Any] = {}
        for row in _newest_by_name(connection, when & which):
            host = first.get(row["host"], row["host"])
            known = named.get(host)
            if known is None or (row["started_at"], row["run_id"]) > (known["started_at"], known["run_id"]):
                named[host] = row
        by_host = {**named, **by_host}
    return by_host


def _newest_by_name(connection: Connection, which: sa.ColumnElement[bool]) -> list[Any]:
    chosen = runs.c.command.in_(ended.ABOUT_HOSTS) & which
    newest = (
        sa.select(runs.c.host, sa.func.max(runs.c.started_at).label("at"))
        .where(chosen)
        .group_by(runs.c.host)
        .subquery()
    )
    query = lines().join(newest, (runs.c.host == newest.c.host) & (runs.c.started_at == newest.c.at)).where(chosen)
    return list(connection.execute(query).mappings())
