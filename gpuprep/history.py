"""The store of runs: append, list, read, migrate. The only import of SQLAlchemy.

A run is one row with the columns that lists are made of, and the whole record as JSON beside them; its
findings are rows of their own. Both are written in one transaction: a record is there whole or not at all.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.exc import ArgumentError, IntegrityError, NoSuchModuleError, SQLAlchemyError

from gpuprep import history_baselines
from gpuprep.baselines import Baseline, BaselineKey, Measured
from gpuprep.errors import StoreError, UsageError
from gpuprep.history_schema import findings, migrate, runs
from gpuprep.paths import state_dir
from gpuprep.records import DecodeError, RunRecord, Source, Status, from_json, to_json

# How long a writer waits for another one. A write takes milliseconds.
BUSY_SECONDS = 30
# Commands whose PASS certifies a host: what drift compares with.
CERTIFYING = ("provision", "validate")


@dataclass(frozen=True)
class RunSummary:
    """One line of `gpuprep history`."""

    run_id: str
    command: str
    host: str
    profile: str  # "" where the run had none
    started_at: str
    ended_at: str
    source: Source
    verdict: Status | None  # None: the run ended before one
    exit_code: int
    summary: str  # the verdict's line, or the first line of the error
    failed: int  # findings that failed


class Store:
    """Open with `Store.open`; safe for several processes and threads at a time."""

    def __init__(self, engine: Engine, shown_url: str) -> None:
        self._engine = engine
        self._shown_url = shown_url

    @classmethod
    def open(cls, url: str | None) -> Store:
        """The store at an SQLAlchemy URL; None: history.db in the XDG state folder. Migrates it.

        Raises UsageError for a URL that is none, StoreError where the database cannot be used.
        """
        shown = url or str(state_dir() / "history.db")
        try:
            if not url:
                state_dir().mkdir(parents=True, exist_ok=True, mode=0o700)
            parsed = sa.make_url(url) if url else sa.URL.create("sqlite", database=shown)
            shown = parsed.render_as_string(hide_password=True) if url else shown
            engine = _engine(parsed)
        except (ArgumentError, NoSuchModuleError, ImportError) as error:
            raise UsageError(
                f"--store {shown}: {error}", "give an SQLAlchemy URL, for example sqlite:////home/you/gpuprep.db"
            ) from error
        except OSError as error:
            raise StoreError(
                f"the store of runs {shown} cannot be made: {error}", "see --store and XDG_STATE_HOME"
            ) from error
        store = cls(engine, shown)
        with store._transaction() as connection:
            migrate(connection)
        return store

    def close(self) -> None:
        self._engine.dispose()

    def append(self, record: RunRecord, baseline: Measured | None = None) -> None:
        """Add one run, and its figures to the host's baseline where it has none; both or neither.

        Raises StoreError where it cannot, or where the run is there already.
        """
        verdict = record.verdict
        error_line = record.error.splitlines()[0] if record.error else ""
        row = {
            "run_id": record.run_id,
            "command": record.command,
            "host": record.host,
            "profile": record.profile.name if record.profile else "",
            "started_at": record.started_at,
            "ended_at": record.ended_at,
            "source": record.source.value,
            "verdict": verdict.status.value if verdict else None,
            "exit_code": record.exit_code,
            "summary": error_line or (verdict.summary if verdict else ""),
            "record": to_json(record),
        }
        found = verdict.findings if verdict else record.findings
        rows = [
            {
                "run_id": record.run_id,
                "position": position,
                "subject": finding.subject,
                "property": finding.property,
                "status": finding.status.value,
                "expected": finding.expected,
                "actual": finding.actual,
            }
            for position, finding in enumerate(found)
        ]
        with self._transaction() as connection:
            connection.execute(runs.insert().values(row))
            if rows:
                connection.execute(findings.insert(), rows)
            if baseline:
                history_baselines.add(connection, record.host, record.run_id, record.started_at, baseline)

    def baseline(self, host: str, keys: Collection[BaselineKey]) -> Baseline:
        """The host's figures under these keys; a key without any is left out."""
        with self._transaction(write=False) as connection:
            return history_baselines.read(connection, host, keys)

    def baseline_of(self, host: str) -> Baseline:
        """All figures of the host, under whatever key."""
        with self._transaction(write=False) as connection:
            return history_baselines.read_all(connection, host)

    def set_baseline(self, host: str, run_id: str, set_at: str, measured: Measured) -> None:
        """Add the figures that the host has no baseline of yet; those it has stay."""
        with self._transaction() as connection:
            history_baselines.add(connection, host, run_id, set_at, measured)

    def runs(self, host: str | None = None, limit: int = 50) -> list[RunSummary]:
        """The newest runs first, of all hosts or of one."""
        failed = (
            sa.select(sa.func.count())
            .where(findings.c.run_id == runs.c.run_id, findings.c.status == Status.FAIL.value)
            .scalar_subquery()
        )
        columns = [column for column in runs.c if column.name != "record"]
        query = sa.select(*columns, failed.label("failed")).order_by(runs.c.started_at.desc(), runs.c.run_id.desc())
        if host is not None:
            query = query.where(runs.c.host == host)
        with self._transaction(write=False) as connection:
            return [_summary(row._mapping) for row in connection.execute(query.limit(limit))]

    def certified(self, host: str) -> RunRecord | None:
        """The newest provision or validate of this host that passed, with its facts; None where there is none."""
        return self._newest(runs.c.host == host, runs.c.command.in_(CERTIFYING), runs.c.verdict == Status.PASS.value)

    def newest(self, host: str, command: str) -> RunRecord | None:
        """The newest run of `command` on this host that came to a verdict."""
        return self._newest(runs.c.host == host, runs.c.command == command, runs.c.verdict.is_not(None))

    def _newest(self, *where: Any) -> RunRecord | None:
        query = sa.select(runs.c.record).where(*where).order_by(runs.c.started_at.desc(), runs.c.run_id.desc())
        with self._transaction(write=False) as connection:
            text = connection.execute(query.limit(1)).scalar()
        return None if text is None else from_json(RunRecord, text)

    def get(self, run_id: str) -> RunRecord:
        """The record of a run by its id, by a prefix of it that only one run has, or by "last".

        Raises UsageError where there is none or more than one, StoreError where the record cannot be read.
        """
        newest = sa.select(runs.c.run_id, runs.c.record).order_by(runs.c.started_at.desc(), runs.c.run_id.desc())
        if run_id == "last":
            query = newest.limit(1)
        else:
            query = newest.where(runs.c.run_id.startswith(run_id, autoescape=True)).limit(6)
        with self._transaction(write=False) as connection:
            rows = list(connection.execute(query))
        exact = [row for row in rows if row.run_id == run_id]
        rows = exact or rows
        if not rows:
            raise UsageError(f"no run {run_id!r} in {self._shown_url}", "`gpuprep history` lists the runs there are")
        if len(rows) > 1:
            ids = ", ".join(row.run_id for row in rows[:5]) + (" …" if len(rows) > 5 else "")
            raise UsageError(f"{run_id!r} fits several runs: {ids}", "give more of the id")
        try:
            return from_json(RunRecord, rows[0].record)
        except DecodeError as error:
            raise StoreError(
                f"the record of run {rows[0].run_id} cannot be read: {error}", "its row is damaged"
            ) from error

    @contextmanager
    def _transaction(self, *, write: bool = True) -> Iterator[Connection]:
        try:
            with self._engine.connect() as plain:
                connection = plain.execution_options(gpuprep_write=write)
                with connection.begin():
                    yield connection
        except SQLAlchemyError as error:
            if isinstance(error, IntegrityError) and "runs.run_id" in str(error.orig):
                raise StoreError(f"this run is already in the store {self._shown_url}") from error
            cause = str(getattr(error, "orig", None) or error).splitlines()[0]
            raise StoreError(
                f"the store of runs {self._shown_url} cannot be used: {cause}",
                "see that its folder can be written and has space, or give another store with --store",
            ) from error


def _engine(url: sa.URL) -> Engine:
    if url.get_backend_name() != "sqlite":
        return sa.create_engine(url)
    engine = sa.create_engine(url, connect_args={"timeout": BUSY_SECONDS})

    @sa.event.listens_for(engine, "connect")
    def configure(connection: Any, _record: Any) -> None:
        # Python's sqlite3 opens transactions by itself and not before DDL: take that away and begin them below.
        connection.isolation_level = None
        cursor = connection.cursor()
        cursor.execute("PRAGMA foreign_keys = ON")
        if cursor.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
            cursor.execute("PRAGMA journal_mode = WAL")
        cursor.close()

    @sa.event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        # A writer takes the lock at once: two that read first and write later would fail each other.
        write = connection.get_execution_options().get("gpuprep_write", True)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")

    return engine


def _summary(row: Any) -> RunSummary:
    verdict = row["verdict"]
    return RunSummary(
        run_id=row["run_id"],
        command=row["command"],
        host=row["host"],
        profile=row["profile"],
        started_at=row["started_at"],
        ended_at=row["ended_at"],
        source=Source(row["source"]),
        verdict=Status(verdict) if verdict else None,
        exit_code=row["exit_code"],
        summary=row["summary"],
        failed=row["failed"],
    )
