"""Tables of the store, the same on SQLite and PostgreSQL. migrations/versions makes them; a test compares.

On both, texts have no width limit and are ordered and compared by their bytes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

if TYPE_CHECKING:
    from sqlalchemy.dialects import postgresql, sqlite

metadata = sa.MetaData()
LAST_CHARACTER = "\U0010ffff"
AHEAD = timedelta(minutes=5)  # by which the clock of another machine may differ from ours


def _text(width: int) -> sa.types.TypeEngine[str]:
    """A text column that is compared by bytes, as SQLite does; PostgreSQL gets the same collation."""
    return sa.String(width).with_variant(sa.Text(collation="C"), "postgresql")


# What was done to a store before Alembic. Now it has one name, for a gpuprep of then: v07_alembic_versions.py.
migrations = sa.Table(
    "migrations",
    metadata,
    sa.Column("name", _text(100), primary_key=True),
    sa.Column("applied_at", _text(32), nullable=False),
)

runs = sa.Table(
    "runs",
    metadata,
    sa.Column("run_id", _text(64), primary_key=True),
    sa.Column("command", _text(32), nullable=False),
    sa.Column("host", _text(255), nullable=False),
    sa.Column("profile", _text(255), nullable=False),
    sa.Column("started_at", _text(32), nullable=False),
    sa.Column("ended_at", _text(32), nullable=False),
    sa.Column("source", _text(16), nullable=False),
    sa.Column("verdict", _text(16)),
    sa.Column("exit_code", sa.Integer, nullable=False),
    sa.Column("summary", sa.Text, nullable=False),
    sa.Column("record", sa.Text, nullable=False),
    # Whether it may become the certified run (RunRecord.history); NULL: not decided, as in earlier versions.
    sa.Column("certifies", sa.Boolean),
    sa.Column("batch_id", _text(64)),  # the same for all hosts of one command; NULL: a command on one host
    sa.Index("runs_newest", "started_at", "run_id"),
    sa.Index("runs_newest_of_host", "host", "started_at", "run_id"),
    sa.Index("runs_by_batch", "batch_id", "started_at", "run_id"),
    sa.Index("runs_newest_of_command", "host", "command", "started_at", "run_id", "verdict"),
)

findings = sa.Table(
    "findings",
    metadata,
    sa.Column("run_id", sa.ForeignKey("runs.run_id", ondelete="CASCADE"), primary_key=True),
    sa.Column("position", sa.Integer, primary_key=True),
    sa.Column("subject", _text(255), nullable=False),
    sa.Column("property", _text(255), nullable=False),
    sa.Column("status", _text(16), nullable=False),
    sa.Column("expected", sa.Text, nullable=False),
    sa.Column("actual", sa.Text, nullable=False),
    sa.Index("findings_by_key", "subject", "property", "status"),
)

# Runs that say nothing of how their host is: plans, refusals, runs that were stopped before they changed anything.
silent = sa.Table(
    "silent",
    metadata,
    sa.Column("run_id", sa.ForeignKey("runs.run_id", ondelete="CASCADE"), primary_key=True),
)

# What hosts measured in their first run that passed: gpuprep.baselines, a row a figure.
baselines = sa.Table(
    "baselines",
    metadata,
    sa.Column("host", _text(255), primary_key=True),
    sa.Column("gpu_uuid", _text(64), primary_key=True),
    sa.Column("probe", _text(32), primary_key=True),
    sa.Column("versions", _text(200), primary_key=True),
    sa.Column("figure", _text(120), primary_key=True),
    sa.Column("value", sa.Float, nullable=False),
    sa.Column("run_id", _text(64), nullable=False),
    sa.Column("set_at", _text(32), nullable=False),
    sa.Index("baselines_by_run", "run_id"),
)

# What runs measured, a row a figure: checks.baseline.figures_of. Simulated ones say so and are never mixed with others.
measurements = sa.Table(
    "measurements",
    metadata,
    sa.Column("run_id", sa.ForeignKey("runs.run_id", ondelete="CASCADE"), primary_key=True),
    sa.Column("position", sa.Integer, primary_key=True),
    sa.Column("host", _text(255), nullable=False),
    sa.Column("started_at", _text(32), nullable=False),
    sa.Column("source", _text(16), nullable=False),
    sa.Column("gpu_uuid", _text(64), nullable=False),
    sa.Column("probe", _text(32), nullable=False),
    sa.Column("versions", _text(200), nullable=False),
    sa.Column("figure", _text(120), nullable=False),
    sa.Column("value", sa.Float, nullable=False),
    sa.Index("measurements_by_host", "host", "started_at"),
)

# The run that `baseline set` named as what a host was certified as; a host without a row has none.
certified = sa.Table(
    "certified",
    metadata,
    sa.Column("host", _text(255), primary_key=True),
    sa.Column("run_id", sa.ForeignKey("runs.run_id"), nullable=False),
    sa.Column("set_at", _text(32), nullable=False),
    sa.Column("reason", sa.Text, nullable=False, server_default=""),  # why, in the user's words
)

# The names that the user gave hosts, and which of them are one host. A name without a row is a host of its own.
host_names = sa.Table(
    "host_names",
    metadata,
    sa.Column("name", _text(255), primary_key=True),
    sa.Column("host", _text(255), nullable=False),  # the same for all names of one host: the first of them
    sa.Column("identity", sa.Text, nullable=False),  # what it reported of itself when it was asked last; JSON
    sa.Column("seen_at", _text(32), nullable=False),
    sa.Column("by_hand", _text(16), nullable=False),  # "joined" or "apart": the user said so; "": by its identity
    sa.Index("host_names_by_host", "host"),
)


def insert_new(connection: Connection, table: sa.Table, row: Mapping[str, Any]) -> bool:
    """Insert a row; False if its key already exists. Waits for another writer of the same key."""
    statement = _insert(connection, table).values(row).on_conflict_do_nothing()
    return connection.execute(statement, execution_options={"preserve_rowcount": True}).rowcount == 1


def insert_missing(connection: Connection, table: sa.Table, rows: Sequence[Mapping[str, Any]]) -> None:
    """Insert the rows whose keys do not exist yet."""
    if rows:
        connection.execute(_insert(connection, table).on_conflict_do_nothing(), rows)


def _insert(connection: Connection, table: sa.Table) -> postgresql.Insert | sqlite.Insert:
    """The insert of the present database; the other database's is not imported: that takes longer than a query."""
    if connection.dialect.name == "postgresql":
        from sqlalchemy.dialects import postgresql

        return postgresql.insert(table)
    from sqlalchemy.dialects import sqlite

    return sqlite.insert(table)


def latest() -> str:
    """The latest moment that a run can have begun, as runs.started_at: a host's clock may be wrong by years."""
    return (datetime.now(timezone.utc) + AHEAD).isoformat(timespec="seconds")


def tells(run: sa.FromClause = runs) -> sa.ColumnElement[bool]:
    """Whether a run says how its host is (records/ended.py). `run`: runs, or another name of it."""
    return ~sa.exists().where(silent.c.run_id == run.c.run_id)


def begins_with(column: sa.Column[Any], prefix: str) -> sa.ColumnElement[bool]:
    """A range and not LIKE: by the column's index on both databases, and no letter is a wildcard."""
    return (column >= prefix) & (column < prefix + LAST_CHARACTER)


def fitting(text: str, width: int) -> str:
    """Cut a text that is longer than its column; it then ends in a digest of the whole text."""
    text = storable(text)
    if len(text) <= width:
        return text
    return f"{text[: width - 17]} {hashlib.sha256(text.encode()).hexdigest()[:16]}"


def storable(text: str) -> str:
    """Escape half surrogates and NUL: machines may send them and databases refuse them."""
    return text.encode("utf-8", "backslashreplace").decode().replace("\0", "\\x00")
