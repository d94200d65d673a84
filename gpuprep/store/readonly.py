"""The store for reading only: no method makes, migrates or writes anything.

SQLite is opened with mode=ro; on PostgreSQL each transaction is READ ONLY, and statements have a time limit.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import sqlalchemy as sa
from sqlalchemy.engine import Engine

from gpuprep.errors import StoreError
from gpuprep.paths import state_dir
from gpuprep.store import Store, migrations, overview, soundrows
from gpuprep.store import engine as database
from gpuprep.store.overview import Finding, Run

STATEMENT_SECONDS = 10
STEPS = 20_000  # of SQLite's machine between two looks at whether to stop: some milliseconds
AT_ONCE = 16  # connections


class ReadOnlyStore(Store):
    """Open with `ReadOnlyStore.open`; safe for several threads at a time."""

    def __init__(self, engine: Engine, shown_url: str, stopped: threading.Event) -> None:
        super().__init__(engine, shown_url)
        self._stopped = stopped

    @classmethod
    def open(cls, url: str | None) -> ReadOnlyStore:
        """As Store.open, but the store must exist and have the version of this gpuprep.

        Raises UsageError for an invalid URL or a missing file, StoreError if there is no store that can be read.
        """
        stopped = threading.Event()
        engine, shown = database.make(url) if url else (None, str(state_dir() / "history.db"))
        if engine is not None:
            database.check_there(engine, shown)
        if engine is not None and engine.dialect.name != "sqlite":
            sa.event.listen(engine, "connect", _no_writes)
        else:
            path = Path(engine.url.database or "") if engine is not None else state_dir() / "history.db"
            if not path.is_file():
                raise StoreError(f"there is no store of runs {shown}", "a first run makes it; see --store")
            engine = _reader(path, stopped.is_set)
        store = cls(engine, shown, stopped)
        try:
            with store._transaction(write=False) as connection:
                version = migrations.version(connection)
            if version != migrations.HEAD:
                raise StoreError(
                    f"the store of runs {shown} " + ("has an older form" if version else "is empty"),
                    "`gpuprep history` with the same --store brings it to the form of this gpuprep",
                )
        except BaseException:
            store.close()
            raise
        return store

    def stop(self) -> None:
        """End running queries; later queries fail."""
        self._stopped.set()

    def check_readable(self) -> None:
        """Raises StoreError if the store cannot be read."""
        with self._transaction(write=False) as connection:
            migrations.version(connection)

    def newest_of_hosts(self, commands: Collection[str]) -> list[Run]:
        """The newest run of each name with one of these commands that says how the host is; else its newest run."""
        with self._transaction(write=False) as connection:
            return overview.newest_of_hosts(connection, commands)

    def newest_figures(self) -> dict[str, str]:
        """Host name ► when it was measured last."""
        with self._transaction(write=False) as connection:
            return overview.newest_figures(connection)

    def canonical_names(self) -> dict[str, str]:
        """Each name whose host is known ► the first name of that host."""
        with self._transaction(write=False) as connection:
            return overview.canonical_names(connection)

    def texts(self, run_ids: Sequence[str]) -> Iterator[tuple[str, str]]:
        """Run ids and records as JSON, a few at a time."""
        with self._transaction(write=False) as connection:
            yield from overview.texts(connection, run_ids)

    def since(self, commands: Collection[str], moment: str) -> list[tuple[str, str, str | None]]:
        """(host, moment, verdict) of all runs of these commands since `moment` that say how their host is, in no order.

        Runs dated into the future by a wrong clock are left out.
        """
        with self._transaction(write=False) as connection:
            return overview.since(connection, commands, moment)

    def between(self, first: str, after: str) -> list[Run]:
        """Runs that began at `first` or later and before `after`, oldest first, without their summaries."""
        with self._transaction(write=False) as connection:
            return overview.between(connection, first, after)

    def whole(self, run_ids: Sequence[str]) -> list[Run]:
        """These runs in this order; missing runs are left out."""
        with self._transaction(write=False) as connection:
            return overview.whole(connection, run_ids)

    def of_names(self, names: Collection[str], before: str, limit: int) -> list[Run]:
        """The newest runs of these names that began before `before` ("": of all), newest first."""
        with self._transaction(write=False) as connection:
            return overview.of_names(connection, names, before, limit)

    def problems(self, run_ids: Sequence[str]) -> list[Finding]:
        """The findings of these runs that did not pass, including WAIVED ones."""
        with self._transaction(write=False) as connection:
            return overview.problems(connection, run_ids)

    def with_problem(self, subject: str, name: str, since: str) -> list[tuple[str, str, str]]:
        """(host, moment, status) of each run since `since` in which this check did not pass."""
        with self._transaction(write=False) as connection:
            return overview.with_problem(connection, subject, name, since)

    def beginning_with(self, prefix: str, limit: int) -> list[Run]:
        """Runs whose id begins with `prefix`, sorted by id."""
        with self._transaction(write=False) as connection:
            return overview.beginning_with(connection, prefix, limit)


def _no_writes(connection: Any, _record: Any) -> None:
    connection.autocommit = True  # or the settings would go with the first transaction that is rolled back
    connection.execute("SET default_transaction_read_only = on")
    connection.execute(f"SET statement_timeout = '{STATEMENT_SECONDS}s'")
    connection.autocommit = False


def _reader(path: Path, stopped: Callable[[], bool]) -> Engine:
    reader = soundrows.connection_class(path)

    def connect() -> sqlite3.Connection:
        soundrows.check_owner(path)
        connection = sqlite3.connect(
            f"file:{quote(str(path))}?mode=ro",
            uri=True,
            timeout=database.BUSY_SECONDS,
            isolation_level=None,  # transactions are begun below, as in engine.py
            check_same_thread=False,
            factory=reader,
        )
        connection.text_factory = soundrows.text
        connection.execute("PRAGMA query_only = ON")
        soundrows.check_programs(connection, path)
        connection.set_progress_handler(stopped, STEPS)
        return connection

    engine = sa.create_engine("sqlite://", creator=connect, poolclass=sa.pool.QueuePool, pool_size=AT_ONCE)
    sa.event.listen(engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN"))
    return engine
