"""Tables of the store and the migrations that lead to them: named functions, in order, each applied once, all in one
transaction. A released migration is never changed; a new need is a new function at the end.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime, timezone

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from gpuprep.errors import StoreError

metadata = sa.MetaData()

migrations = sa.Table(
    "migrations",
    metadata,
    sa.Column("name", sa.String(100), primary_key=True),
    sa.Column("applied_at", sa.String(32), nullable=False),
)

runs = sa.Table(
    "runs",
    metadata,
    sa.Column("run_id", sa.String(64), primary_key=True),
    sa.Column("command", sa.String(32), nullable=False),
    sa.Column("host", sa.String(255), nullable=False),
    sa.Column("profile", sa.String(255), nullable=False),
    sa.Column("started_at", sa.String(32), nullable=False),
    sa.Column("ended_at", sa.String(32), nullable=False),
    sa.Column("source", sa.String(16), nullable=False),
    sa.Column("verdict", sa.String(16)),
    sa.Column("exit_code", sa.Integer, nullable=False),
    sa.Column("summary", sa.Text, nullable=False),
    sa.Column("record", sa.Text, nullable=False),
    sa.Index("runs_by_host", "host", "started_at"),
    sa.Index("runs_by_time", "started_at"),
)

findings = sa.Table(
    "findings",
    metadata,
    sa.Column("run_id", sa.ForeignKey("runs.run_id", ondelete="CASCADE"), primary_key=True),
    sa.Column("position", sa.Integer, primary_key=True),
    sa.Column("subject", sa.String(255), nullable=False),
    sa.Column("property", sa.String(255), nullable=False),
    sa.Column("status", sa.String(16), nullable=False),
    sa.Column("expected", sa.Text, nullable=False),
    sa.Column("actual", sa.Text, nullable=False),
    sa.Index("findings_by_key", "subject", "property", "status"),
)

# What hosts measured in their first run that passed: gpuprep.baselines, a row a figure.
baselines = sa.Table(
    "baselines",
    metadata,
    sa.Column("host", sa.String(255), primary_key=True),
    sa.Column("gpu_uuid", sa.String(64), primary_key=True),
    sa.Column("probe", sa.String(32), primary_key=True),
    sa.Column("versions", sa.String(200), primary_key=True),
    sa.Column("figure", sa.String(120), primary_key=True),
    sa.Column("value", sa.Float, nullable=False),
    sa.Column("run_id", sa.String(64), nullable=False),
    sa.Column("set_at", sa.String(32), nullable=False),
)


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


MIGRATIONS: tuple[tuple[str, Callable[[Connection], None]], ...] = (
    ("create_runs", create_runs),
    ("create_findings", create_findings),
    ("create_baselines", create_baselines),
)


def migrate(connection: Connection) -> list[str]:
    """Bring the store up to date inside the caller's transaction; returns the names applied.

    Raises StoreError for a store that a newer gpuprep wrote.
    """
    migrations.create(connection, checkfirst=True)
    applied = set(connection.execute(sa.select(migrations.c.name)).scalars())
    known = {name for name, _ in MIGRATIONS}
    if unknown := sorted(applied - known):
        raise StoreError(
            f"the store of runs was written by a newer gpuprep (it has {', '.join(unknown)})",
            "upgrade gpuprep, or give another store with --store",
        )
    done = []
    for name, function in MIGRATIONS:
        if name not in applied:
            function(connection)
            moment = datetime.now(timezone.utc).isoformat(timespec="seconds")
            connection.execute(migrations.insert().values(name=name, applied_at=moment))
            done.append(name)
    return done
