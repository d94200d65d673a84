"""How the store is reached: its URL, its engine, and its failures in plain words. Passwords are shown nowhere."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.exc import ArgumentError, NoSuchModuleError, SQLAlchemyError

from gpuprep.errors import StoreError, UsageError

# How long a writer waits for another one. A write takes milliseconds.
BUSY_SECONDS = 30
# How long a server may take to answer at all.
CONNECT_SECONDS = 10
# What people write ► the driver that gpuprep uses.
DRIVERS = {"postgres": "postgresql+psycopg", "postgresql": "postgresql+psycopg"}
BACKENDS = ("sqlite", "postgresql")
EXAMPLES = "for example sqlite:////home/you/gpuprep.db or postgresql://you@host/gpuprep"
NO_DRIVER = "pip install 'gpuprep[postgresql]'   (in gpuprep's own environment), or pip install 'psycopg[binary]'"
SECRET = re.compile("pass", re.IGNORECASE)


def make(url: str) -> tuple[Engine, str]:
    """An engine for an SQLAlchemy URL, and the URL as it may be shown. Connects to nothing yet.

    Raises UsageError for a URL that is none, or that needs a driver which is not installed.
    """
    shown = _masked(url)
    try:
        parsed = sa.make_url(url)
        parsed = parsed.set(drivername=DRIVERS.get(parsed.drivername, parsed.drivername))
        backend = parsed.get_backend_name()
        if backend not in BACKENDS:
            raise UsageError(f"--store {shown}: gpuprep has no store in {backend}", f"give a URL {EXAMPLES}")
        return (_sqlite(parsed) if backend == "sqlite" else _postgresql(parsed)), shown
    except ImportError as error:
        driver = str(error).splitlines()[0]
        raise UsageError(f"--store {shown}: PostgreSQL's driver is not installed ({driver})", NO_DRIVER) from error
    except (ArgumentError, NoSuchModuleError, ValueError) as error:
        raise UsageError(f"--store {shown}: this is no URL of a database", f"give one, {EXAMPLES}") from error


def sqlite(path: Path) -> Engine:
    """An engine for a file, whatever characters its path has."""
    return _sqlite(sa.URL.create("sqlite", database=str(path)))


@contextmanager
def transaction(engine: Engine, shown: str, *, write: bool = True) -> Iterator[Connection]:
    """One transaction: all of it or nothing. Raises StoreError where the database cannot be used."""
    try:
        with engine.connect() as plain:
            connection = plain.execution_options(gpuprep_write=write)
            with connection.begin():
                yield connection
    except SQLAlchemyError as error:
        cause = str(getattr(error, "orig", None) or error).strip().splitlines()[0]
        hint = (
            "see that its folder can be written and has space, or give another store with --store"
            if engine.dialect.name == "sqlite"
            else "see that the server runs, that the database exists, and that this user may use it (docs/history.md)"
        )
        raise StoreError(f"the store of runs {shown} cannot be used: {cause}", hint) from error


def _postgresql(url: sa.URL) -> Engine:
    arguments = {"application_name": "gpuprep", "connect_timeout": CONNECT_SECONDS}
    wanted = {name: value for name, value in arguments.items() if name not in url.query}
    # A run takes minutes to hours between two words with the store: a connection may be gone by then.
    return sa.create_engine(url, connect_args=wanted, pool_pre_ping=True)


def _sqlite(url: sa.URL) -> Engine:
    engine = sa.create_engine(url, connect_args={"timeout": BUSY_SECONDS})

    @sa.event.listens_for(engine, "connect")
    def configure(connection: Any, _record: Any) -> None:
        # Python's sqlite3 opens transactions by itself and not before DDL: take that away and begin them below.
        connection.isolation_level = None
        cursor = connection.cursor()
        cursor.execute("PRAGMA foreign_keys = ON")
        _write_ahead(cursor)
        cursor.close()

    @sa.event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        # A writer takes the lock at once: two that read first and write later would fail each other.
        write = connection.get_execution_options().get("gpuprep_write", True)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")

    return engine


def _write_ahead(cursor: sqlite3.Cursor) -> None:
    """Readers and a writer at the same time. The mode stays with the file, and the switch needs it alone."""
    if cursor.execute("PRAGMA journal_mode").fetchone()[0] == "wal":
        return
    try:
        cursor.execute("PRAGMA journal_mode = WAL")
    except sqlite3.OperationalError as error:
        # SQLite does not wait here. Whoever has the file is switching it, or the next one who opens it will.
        if "locked" not in str(error):
            raise


def _masked(url: str) -> str:
    """Without the password, wherever libpq would take one from; also for a URL that cannot be parsed."""
    masked = re.sub(r"(://[^:/@]*):.*@", r"\1:***@", url)
    head, mark, query = masked.partition("?")
    pairs = [pair.partition("=") for pair in query.split("&")]
    return (
        head
        + mark
        + "&".join(f"{name}=***" if SECRET.search(name) else "".join((name, eq, value)) for name, eq, value in pairs)
    )
