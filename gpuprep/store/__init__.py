"""Which runs were there? The store: append, list, read, certify, prune, export. SQLite or PostgreSQL.

A run is one row with the columns that lists are made of, and the whole record as JSON beside them; its findings and the
figures that it measured are rows of their own. All are written in one transaction: a record is there whole or not at
all. SQLAlchemy and Alembic are imported in this package and nowhere else.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine

from gpuprep.checks.drift.samehost import Identity
from gpuprep.errors import StoreError, UsageError
from gpuprep.paths import check_state_dir, private_folder, state_dir
from gpuprep.performance.trend import Measurement
from gpuprep.records import DecodeError, ProfileRef, RunRecord, Source, Status, ended, to_json
from gpuprep.records.baseline import Baseline, BaselineKey, Measured
from gpuprep.records.findings import findings_of
from gpuprep.store import baselines, fleet, hostnames, migrations, retention, storedrecord
from gpuprep.store import certified as certified_rows
from gpuprep.store import engine as database
from gpuprep.store import measurements as measurement_rows
from gpuprep.store.hostnames import Known, Named
from gpuprep.store.measurements import Headline, Series
from gpuprep.store.tables import (
    begins_with,
    findings,
    fitting,
    insert_new,
    latest,
    measurements,
    runs,
    silent,
    storable,
)

# What `history export --format csv` can write.
EXPORTED = {"runs": runs, "findings": findings, "measurements": measurements}
# Rows that an export holds in memory.
ROWS_AT_A_TIME = 50
FEW = 7  # runs whose times are an estimate of the next one's
GREATEST_CODE = 2**31 - 1  # of an exit code, as databases hold it


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
    batch_id: str = ""  # the same for all hosts of one command; "": a command on one host


@dataclass(frozen=True)
class HostBaseline:
    """The certified run and the figures that drift compares a host with."""

    host: str
    run_id: str | None  # the certified run; None: there is none yet
    run_at: str  # when it began, UTC; "" where there is none
    set_at: str  # when `baseline set` named it; "": it is the newest run that passed
    figures: Baseline
    reason: str = ""  # why, as the user wrote with `baseline set`
    names: tuple[str, ...] = ()  # other names of the same host


class Store:
    """Open with `Store.open`; safe for several processes and threads at a time."""

    def __init__(self, engine: Engine, shown_url: str) -> None:
        self._engine = engine
        self._shown_url = shown_url

    @classmethod
    def open(cls, url: str | None) -> Store:
        """The store at a URL (docs/history.md); None: history.db in the XDG state folder. Migrates it.

        Raises UsageError for an invalid URL, StoreError if the database cannot be used.
        """
        path = state_dir() / "history.db"
        try:
            if url:
                check_state_dir()  # it has the logs of runs
            else:
                private_folder(state_dir())
        except OSError as error:
            raise StoreError(
                f"the store of runs {path} cannot be made: {error}", "see --store and XDG_STATE_HOME"
            ) from error
        return cls._migrated(*(database.make(url) if url else (database.sqlite(path), str(path))))

    @classmethod
    def open_existing(cls, url: str) -> Store:
        """As `open`, but raises UsageError if the database file does not exist, and does not make it."""
        engine, shown = database.make(url)
        database.check_there(engine, shown)
        return cls._migrated(engine, shown)

    @classmethod
    def _migrated(cls, engine: Engine, shown: str) -> Store:
        store = cls(engine, shown)
        try:
            store._migrate()
        except BaseException:
            store.close()
            raise
        return store

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._engine.dispose()

    @property
    def shown_url(self) -> str:
        """The store's URL without its password."""
        return self._shown_url

    def append(self, record: RunRecord, baseline: Measured | None = None) -> None:
        """Add one run, and those figures of `baseline` that the host does not have yet, in one transaction.

        Raises StoreError if that fails, or if the store already has the run.
        """
        if not self.append_new(record, baseline):
            raise StoreError(f"this run is already in the store {self._shown_url}")

    def append_new(self, record: RunRecord, baseline: Measured | None = None, *, kept_elsewhere: bool = False) -> bool:
        """As append, but returns False and changes nothing if the store already has the run.

        `kept_elsewhere`: a host has it, too, so it need not be on the disk yet when this returns (store/engine.py).
        """
        verdict = record.verdict
        error_line = record.error.splitlines()[0] if record.error else ""
        row = {
            "run_id": storable(record.run_id),
            "command": storable(record.command),
            "host": storable(record.host),
            "profile": storable(record.profile.name) if record.profile else "",
            "started_at": storable(record.started_at),
            "ended_at": storable(record.ended_at),
            "source": record.source.value,
            "verdict": verdict.status.value if verdict else None,
            "exit_code": max(-GREATEST_CODE, min(GREATEST_CODE, record.exit_code)),
            "summary": storable(error_line or (verdict.summary if verdict else "")),
            "record": storedrecord.packed(record),
            "certifies": record.history.certifies if record.history else None,
            "batch_id": storable(record.batch_id) or None,
        }
        rows = [
            {
                "run_id": row["run_id"],
                "position": position,
                "subject": fitting(finding.subject, 255),
                "property": fitting(finding.property, 255),
                "status": finding.status.value,
                "expected": storable(finding.expected),
                "actual": storable(finding.actual),
            }
            for position, finding in enumerate(findings_of(record))
        ]
        with self._transaction(durable=not kept_elsewhere) as connection:
            if not insert_new(connection, runs, row):
                return False
            if not ended.tells(record):
                connection.execute(silent.insert().values(run_id=row["run_id"]))
            if rows:
                connection.execute(findings.insert(), rows)
            measurement_rows.add(connection, record)
            if baseline:
                baselines.add(connection, record.host, record.run_id, record.started_at, baseline)
        return True

    def host_of(self, run_id: str) -> str | None:
        """The host of a run; None if the run is not in the store."""
        with self._transaction(write=False) as connection:
            host: str | None = connection.execute(sa.select(runs.c.host).where(runs.c.run_id == run_id)).scalar()
            return host

    def runs(
        self,
        host: str | None = None,
        limit: int = 50,
        *,
        hosts: Collection[str] = (),
        since: str = "",
        failed: bool = False,
        batch: str | None = None,
    ) -> list[RunSummary]:
        """Runs of all hosts or of some, the newest first; runs dated into the future by a wrong clock come last.

        `host` or any of `hosts`; `since` a moment in UTC, ISO 8601; `failed`: exit code not 0; `batch`: its id, the
        beginning of it, or "last". Raises UsageError if no batch matches, or more than one.
        """
        query = fleet.lines().order_by(runs.c.started_at.desc(), runs.c.run_id.desc())
        if since:
            query = query.where(runs.c.started_at >= since)
        if failed:
            query = query.where(runs.c.exit_code != 0)
        asked = {*hosts, *([] if host is None else [host])}
        summaries: list[RunSummary] = []
        with self._transaction(write=False) as connection:
            if asked:
                names = {name for host in asked for name in hostnames.of_host(connection, host)}
                query = query.where(runs.c.host.in_(sorted(names)))
            if batch is not None:
                query = query.where(runs.c.batch_id == self._batch_id(connection, batch))
            moment = latest()
            for when in (runs.c.started_at <= moment, runs.c.started_at > moment):
                rows = connection.execute(query.where(when).limit(limit - len(summaries)))
                summaries += [_summary(row._mapping) for row in rows]
        return summaries

    def ids(self, host: str, command: str, limit: int) -> list[str]:
        """Ids of the newest runs of a command on this host, under all its names; reads only the index."""
        with self._transaction(write=False) as connection:
            return certified_rows.ids(connection, host, command, limit)

    def newest_of_each(self) -> list[tuple[RunSummary | None, RunSummary]]:
        """Of each host: its newest run that says how it is (None: there is none), and its newest run of any kind."""
        with self._transaction(write=False) as connection:
            newest = fleet.newest_of_each(connection)
        return [(None if telling is None else _summary(telling), _summary(last)) for telling, last in newest]

    def batch(self, batch: str) -> list[RunRecord]:
        """The records of a batch: by its id, by the beginning of it, or "last".

        Raises UsageError if no batch matches, or more than one; StoreError if a record cannot be read.
        """
        with self._transaction(write=False) as connection:
            batch_id = self._batch_id(connection, batch)
            query = (
                sa.select(runs.c.run_id).where(runs.c.batch_id == batch_id).order_by(runs.c.started_at, runs.c.run_id)
            )
            return self._records(connection, query)

    def _batch_id(self, connection: Connection, batch: str) -> str:
        batch = storable(batch)
        if not batch:
            raise UsageError("the batch has no name", "give its id, the beginning of it, or `last`")
        if batch == "last":
            # Uses only the index of batches: rows of runs are large.
            known = (runs.c.batch_id.is_not(None), runs.c.started_at <= latest())
            began = sa.func.max(runs.c.started_at)
            newest = sa.select(runs.c.batch_id).where(*known).group_by(runs.c.batch_id)
            ordered = newest.order_by(began.desc(), runs.c.batch_id.desc()).limit(1)
            batch_ids = connection.execute(ordered).scalars().all()
        else:
            same_prefix = begins_with(runs.c.batch_id, batch)
            query = sa.select(runs.c.batch_id).where(same_prefix).distinct().order_by(runs.c.batch_id).limit(6)
            batch_ids = connection.execute(query).scalars().all()
        if not batch_ids:
            raise UsageError(
                f"no batch {batch!r} in {self._shown_url}",
                "a command on several hosts makes one; see `gpuprep history`",
            )
        return _the_one(batch, batch_ids, "batches")

    def get(self, run_id: str) -> RunRecord:
        """The record of a run by its id, by a prefix of it that only one run has, or by "last".

        Raises UsageError if no run matches, or more than one; StoreError if the record cannot be read.
        """
        run_id = storable(run_id)
        if not run_id:
            raise UsageError("the run has no name", "give its id, the beginning of it, or `last`")
        same_prefix = sa.select(runs.c.run_id).where(begins_with(runs.c.run_id, run_id))
        with self._transaction(write=False) as connection:
            if run_id == "last":
                run_ids = _newest_id(connection)
            else:
                run_ids = connection.execute(same_prefix.order_by(runs.c.run_id).limit(6)).scalars().all()
            if not run_ids:
                raise UsageError(
                    f"no run {run_id!r} in {self._shown_url}", "`gpuprep history` lists the runs there are"
                )
            return self._record(connection, _the_one(run_id, run_ids, "runs"))

    def _records(self, connection: Connection, query: sa.Select[Any]) -> list[RunRecord]:
        """The records of the run ids that `query` selects, in its order."""
        return [self._record(connection, run_id) for run_id in connection.execute(query).scalars().all()]

    def _record(self, connection: Connection, run_id: str) -> RunRecord:
        text = connection.execute(sa.select(runs.c.record).where(runs.c.run_id == run_id)).scalar()
        if text is None:  # soundrows.py left the damaged row out
            raise StoreError(f"the record of run {run_id} cannot be read", "its row is damaged")
        try:
            return storedrecord.unpacked(text)
        except DecodeError as error:
            raise StoreError(f"the record of run {run_id} cannot be read: {error}", "its row is damaged") from error

    def certified(self, host: str) -> RunRecord | None:
        """The certified run of the host: the one chosen with `certify`, else the newest provision or validate that
        passed; None without such a run.
        """
        with self._transaction(write=False) as connection:
            run_id = certified_rows.run_of(connection, host)
            return None if run_id is None else self._record(connection, run_id)

    def taken_back(self, host: str) -> tuple[str, str] | None:
        """(run_id, started_at) of the newest unprovision of the whole host, if no provision of it came after."""
        with self._transaction(write=False) as connection:
            gone = certified_rows.taken_back(connection, host)
            again = certified_rows.newest(connection, host, "provision", runs.c.exit_code == 0)
        return None if gone is None or (again is not None and again[1] > gone[1]) else gone

    def newest(self, host: str, command: str) -> RunRecord | None:
        """The newest run of `command` on this host that has a verdict; None without one."""
        with self._transaction(write=False) as connection:
            run = certified_rows.newest(connection, host, command, runs.c.verdict.is_not(None))
            return self._record(connection, run[0]) if run else None

    def ended_well(self, command: str, source: Source, *, host: str = "", profile: str = "") -> list[RunRecord]:
        """The newest runs of `command` with exit code 0, of one host or of one profile; a few of them.

        `source` separates simulated and real machines: their times differ. Raises StoreError if a run cannot be read.
        """
        query = (
            sa.select(runs.c.run_id)
            .where(runs.c.command == command, runs.c.source == source.value, runs.c.exit_code == 0)
            .where(runs.c.started_at <= latest())
            .order_by(runs.c.started_at.desc(), runs.c.run_id.desc())
            .limit(FEW)
        )
        with self._transaction(write=False) as connection:
            mine = runs.c.host.in_(hostnames.of_host(connection, host))
            query = query.where(mine if host else runs.c.profile == storable(profile))
            return self._records(connection, query)

    # ------------------------------------------------------------ what a host is compared with

    def baseline(self, host: str, keys: Collection[BaselineKey]) -> Baseline:
        """The host's figures under these keys; a key without any is left out."""
        with self._transaction(write=False) as connection:
            return baselines.read(connection, host, keys)

    def baseline_of(self, host: str) -> Baseline:
        """All figures of the host, with all keys."""
        with self._transaction(write=False) as connection:
            return baselines.read_all(connection, host)

    def host_baseline(self, host: str) -> HostBaseline:
        """The certified run of a host and all its figures."""
        with self._transaction(write=False) as connection:
            chosen = certified_rows.chosen(connection, host)
            run_id = chosen.run_id if chosen else certified_rows.newest_passed(connection, host)
            began = connection.execute(sa.select(runs.c.started_at).where(runs.c.run_id == run_id)).scalar() or ""
            figures = baselines.read_all(connection, host)
            names = hostnames.of_host(connection, host)[1:]
        when, why = (chosen.set_at, chosen.reason) if chosen else ("", "")
        return HostBaseline(host, run_id, began, when, figures, why, tuple(names))

    def chosen(self, host: str) -> str | None:
        """The id of the run that `baseline set` chose; None if it chose no run."""
        with self._transaction(write=False) as connection:
            choice = certified_rows.chosen(connection, host)
        return choice.run_id if choice else None

    def certify(self, host: str, run_id: str, set_at: str, measured: Measured, reason: str = "") -> None:
        """Make a run the certified run of its host, and its figures the baseline, replacing those with the same key.

        `measured` are the run's figures; the caller has checked the run (workflows.certify).
        """
        with self._transaction() as connection:
            certified_rows.set_run(connection, host, run_id, set_at, reason)
            baselines.replace(connection, host, run_id, set_at, measured)

    def clear_baseline(self, host: str, probe: str | None = None) -> tuple[int, bool]:
        """Delete a host's figures, or those of one probe; without a probe also the chosen certified run.

        Returns (number of deleted figures, whether a run had been chosen).
        """
        with self._transaction() as connection:
            named = certified_rows.clear(connection, host) if probe is None else False
            return baselines.clear(connection, host, probe), named

    def newest_passed(self, host: str, *, any_part: bool = False) -> str | None:
        """Id of the newest provision or validate that passed and may certify this host; `any_part`: that passed."""
        with self._transaction(write=False) as connection:
            return certified_rows.newest_passed(connection, host, any_part=any_part)

    def is_real(self, host: str) -> bool:
        """Whether any run of this host saw a real GPU."""
        with self._transaction(write=False) as connection:
            return certified_rows.is_real(connection, host)

    # ------------------------------------------------------------ the names of a host

    def know(self, name: str, identity: Identity, at: str) -> Known:
        """Store the identity that the host behind a name reported; returns its other names, and notes on news."""
        with self._transaction(write=False) as connection:
            known = hostnames.nothing_new(connection, name, identity)
        if known is not None:
            return known
        with self._transaction() as connection:
            return hostnames.know(connection, name, identity, at, lambda: certified_rows.run_of(connection, name))

    def is_identified(self, name: str) -> bool:
        """Whether it is stored which host this name is, found or said by the user."""
        with self._transaction(write=False) as connection:
            return hostnames.has_row(connection, name)

    def profile_file(self, host: str, command: str, profile: ProfileRef) -> str | None:
        """The path of the profile's file, as the newest run of `command` on this host had it; None without one."""
        with self._transaction(write=False) as connection:
            return certified_rows.profile_file(connection, host, command, profile)

    def names(self) -> list[Named]:
        """All names whose host identity is known; names of one host are adjacent."""
        with self._transaction(write=False) as connection:
            return hostnames.all_names(connection)

    def names_of(self, host: str) -> list[str]:
        """All names of this host, the given one first."""
        with self._transaction(write=False) as connection:
            return hostnames.of_host(connection, host)

    def has_host(self, name: str) -> bool:
        """Whether any run or identity of this name is stored."""
        with self._transaction(write=False) as connection:
            ran = connection.execute(sa.select(runs.c.run_id).where(runs.c.host == storable(name)).limit(1)).scalar()
            return ran is not None or hostnames.has_row(connection, name)

    def join(self, name: str, other: str, at: str) -> list[str]:
        """Join two names as one host, as the user asks; returns all names of the host."""
        with self._transaction() as connection:
            hostnames.join_by_hand(connection, name, other, at)
            return hostnames.of_host(connection, name)

    def set_apart(self, name: str, at: str) -> list[str]:
        """Make a name a host of its own, as the user asks; returns the names that it was joined with."""
        with self._transaction() as connection:
            return hostnames.set_apart(connection, name, at, certified_rows.run_of(connection, name))

    # ------------------------------------------------------------ over time

    def figures(self, host: str, since: str) -> list[Measurement]:
        """All figures that a host measured from `since` (UTC, ISO 8601) on, oldest first."""
        with self._transaction(write=False) as connection:
            return measurement_rows.read(connection, host, since)

    def newest_figure(self, host: str) -> str | None:
        """When the newest figure of a host was measured; None without figures."""
        with self._transaction(write=False) as connection:
            return measurement_rows.newest(connection, host)

    def headlines(self, run_ids: Sequence[str]) -> dict[str, Headline]:
        """Run id ► the figures that lists show; only runs that measured such figures."""
        with self._transaction(write=False) as connection:
            return measurement_rows.headlines(connection, run_ids)

    def recent(self, host: str, series: Series, limit: int = 12) -> list[tuple[str, float]]:
        """(started_at, value) of the newest figures of one series of a host, oldest first."""
        with self._transaction(write=False) as connection:
            return measurement_rows.recent(connection, host, series, limit)

    def count(self, before: str = "") -> int:
        """How many runs there are; with `before` (UTC, ISO 8601) only those that began earlier."""
        query = sa.select(sa.func.count()).select_from(runs)
        with self._transaction(write=False) as connection:
            return int(connection.execute(query.where(runs.c.started_at < before) if before else query).scalar_one())

    def prunable(self, before: str, keep_last: int, names: Sequence[str] | None = None) -> list[str]:
        """Ids of runs that began before `before` and may be deleted (store/retention.py), oldest first."""
        with self._transaction(write=False) as connection:
            return retention.old(connection, before, keep_last, names)

    def prune(self, run_ids: list[str]) -> list[str]:
        """Delete runs with their findings and measurements, a few hundred at a time; returns the deleted ids."""
        removed: list[str] = []
        for start in range(0, len(run_ids), retention.BATCH):
            with self._transaction() as connection:
                removed += retention.delete(connection, run_ids[start : start + retention.BATCH])
        return removed

    def forget(self, name: str) -> list[str]:
        """Delete all that is stored under this name; returns the ids of its runs. Other names of the host stay."""
        with self._transaction() as connection:
            return retention.forget(connection, name, hostnames.of_host(connection, name)[1:])

    def export_records(self, host: str | None = None) -> Iterator[str]:
        """Each record as one line of JSON, oldest first, read while it is written out. A damaged one is as it is."""
        query = sa.select(runs.c.record).order_by(runs.c.started_at, runs.c.run_id)
        for row in self._stream(query if host is None else query.where(runs.c.host.in_(self.names_of(host)))):
            try:
                yield to_json(storedrecord.unpacked(row[0]))
            except DecodeError:
                yield row[0]

    def export_rows(self, what: str, host: str | None = None) -> Iterator[tuple[Any, ...]]:
        """Rows of the table `what` (one of EXPORTED) as tuples, oldest run first, after a tuple of column names."""
        table = EXPORTED[what]
        columns = [column for column in table.c if column.name != "record"]
        query = sa.select(*columns).order_by(runs.c.started_at, runs.c.run_id)
        if table is not runs:
            query = query.join(runs, runs.c.run_id == table.c.run_id).order_by(table.c.position)
        if host is not None:
            query = query.where(runs.c.host.in_(self.names_of(host)))
        yield tuple(column.name for column in columns)
        for row in self._stream(query):
            yield tuple(row)

    def _stream(self, query: sa.Select[Any]) -> Iterator[sa.Row[Any]]:
        with self._transaction(write=False) as connection:
            yield from connection.execution_options(yield_per=ROWS_AT_A_TIME).execute(query)

    def _migrate(self) -> None:
        """Migrate the store. Checks the version without a lock first, because nearly every store is up to date."""
        with self._transaction(write=False) as connection:
            version = migrations.version(connection)
        if version != migrations.HEAD:
            with self._transaction() as connection:
                migrations.migrate(connection)

    @contextmanager
    def _transaction(self, *, write: bool = True, durable: bool = True) -> Iterator[Connection]:
        with database.transaction(self._engine, self._shown_url, write=write, durable=durable) as connection:
            yield connection


def _the_one(asked: str, ids: Sequence[str], kinds: str) -> str:
    """The id that was asked for whole, else the only one. Raises UsageError where several begin with it."""
    if asked in ids:
        return asked
    if len(ids) == 1:
        return ids[0]
    listed = ", ".join(ids[:5]) + (" …" if len(ids) > 5 else "")
    raise UsageError(f"{asked!r} fits several {kinds}: {listed}", "give more of the id")


def _newest_id(connection: Connection) -> Sequence[str]:
    """The id of the run that began last; a run dated into the future only if there is no other run."""
    newest = sa.select(runs.c.run_id).order_by(runs.c.started_at.desc(), runs.c.run_id.desc()).limit(1)
    run_ids = connection.execute(newest.where(runs.c.started_at <= latest())).scalars().all()
    return run_ids or connection.execute(newest).scalars().all()


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
        batch_id=row["batch_id"] or "",
    )
