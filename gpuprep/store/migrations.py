"""The migrations of the store: named functions, in order, each applied once, all in one transaction.

A released migration is never changed; a new need is a new function at the end.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime, timezone

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from gpuprep.errors import StoreError
from gpuprep.store import measurements as measurement_rows
from gpuprep.store.tables import baselines, certified, findings, measurements, migrations, runs

# Of pg_advisory_xact_lock: any number, as long as it stays the same. "gpuprep" in ASCII.
MIGRATING = int.from_bytes(b"gpuprep", "big")


def create_runs(connection: Connection) -> None:
    runs.create(connection)


def create_findings(connection: Connection) -> None:
    """Findings as rows; those of runs recorded before are taken from their records."""
    findings.create(connection)
    for run_id, text in connection.execute(sa.select(runs.c.run_id, runs.c.record)).all():
        document = json.loads(text)
        found = (document.get("verdict") or document).get("findings", [])
        rows = [
            {name: finding[name] for name in ("subject", "property", "status", "expected", "actual")}
            | {"run_id": run_id, "position": position}
            for position, finding in enumerate(found)
        ]
        if rows:
            connection.execute(findings.insert(), rows)


def create_baselines(connection: Connection) -> None:
    """Baselines; runs recorded before are none: their probes measured otherwise."""
    baselines.create(connection)


def index_runs(connection: Connection) -> None:
    """So that the newest of a host, or of a host and a command, are found without looking at the others."""
    for statement in (
        "CREATE INDEX runs_newest ON runs (started_at, run_id)",
        "CREATE INDEX runs_newest_of_host ON runs (host, started_at, run_id)",
        "CREATE INDEX runs_newest_of_command ON runs (host, command, started_at, run_id, verdict)",
        "CREATE INDEX baselines_by_run ON baselines (run_id)",
        "DROP INDEX runs_by_host",
        "DROP INDEX runs_by_time",
    ):
        connection.exec_driver_sql(statement)


def create_measurements(connection: Connection) -> None:
    """Figures as rows; those of runs recorded before are taken from their records, one record at a time."""
    measurements.create(connection)
    for run_id in connection.execute(sa.select(runs.c.run_id)).scalars().all():
        text = connection.execute(sa.select(runs.c.record).where(runs.c.run_id == run_id)).scalar_one()
        if rows := measurement_rows.rows_of_text(text):
            connection.execute(measurements.insert(), rows)


def create_certified(connection: Connection) -> None:
    certified.create(connection)


MIGRATIONS: tuple[tuple[str, Callable[[Connection], None]], ...] = (
    ("create_runs", create_runs),
    ("create_findings", create_findings),
    ("create_baselines", create_baselines),
    ("index_runs", index_runs),
    ("create_measurements", create_measurements),
    ("create_certified", create_certified),
)


def missing(connection: Connection) -> list[str]:
    """Names of the migrations that this store still lacks.

    Raises StoreError for a store that a newer gpuprep wrote.
    """
    there = sa.inspect(connection).has_table(migrations.name)
    applied = set(connection.execute(sa.select(migrations.c.name)).scalars()) if there else set()
    known = [name for name, _ in MIGRATIONS]
    if unknown := sorted(applied - set(known)):
        raise StoreError(
            f"the store of runs was written by a newer gpuprep (it has {', '.join(unknown)})",
            "upgrade gpuprep, or give another store with --store",
        )
    return [name for name in known if name not in applied]


def migrate(connection: Connection) -> list[str]:
    """Bring the store up to date inside the caller's transaction, one process at a time; returns the names applied.

    On SQLite the caller's transaction holds the lock of the file; on PostgreSQL a lock is taken here.
    Raises StoreError for a store that a newer gpuprep wrote.
    """
    if connection.dialect.name == "postgresql":
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(MIGRATING)))
    wanted = missing(connection)
    if not wanted:
        return []
    migrations.create(connection, checkfirst=True)
    done = []
    for name, function in MIGRATIONS:
        if name in wanted:
            function(connection)
            moment = datetime.now(timezone.utc).isoformat(timespec="seconds")
            connection.execute(migrations.insert().values(name=name, applied_at=moment))
            done.append(name)
    return done
