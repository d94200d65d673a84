"""Opens the database of the store: URL, engine, and errors in plain words. Never shows a password."""

from __future__ import annotations

import contextlib
import os
import shlex
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.exc import ArgumentError, NoSuchModuleError, SQLAlchemyError

from gpuprep.errors import StoreError, UsageError
from gpuprep.store import soundrows
from gpuprep.untrusted.databasefile import is_database
from gpuprep.untrusted.masking import is_url, masked, masked_url, remember_store

# How long one writer waits for another. A write takes milliseconds.
BUSY_SECONDS = 30
# How long a server may take to answer at all.
CONNECT_SECONDS = 10
# Scheme in a URL ► the driver that gpuprep uses.
DRIVERS = {"postgres": "postgresql+psycopg", "postgresql": "postgresql+psycopg"}
BACKENDS = ("sqlite", "postgresql")
EXAMPLES = "for example sqlite:////home/you/gpuprep.db or postgresql://you@host/gpuprep"
NOT_SQLITE = "file is not a database"  # SQLite's message (SQLITE_NOTADB)
CHECK = "check the name; a first run makes a store"
NO_DRIVER = "pip install 'gpuprep[postgresql]'   (in gpuprep's own environment), or pip install 'psycopg[binary]'"


def make(url: str) -> tuple[Engine, str]:
    """(engine for an SQLAlchemy URL, the URL without its password). Does not connect yet.

    Raises UsageError for an invalid URL, or if the URL needs a driver that is not installed.
    """
    remember_store(url)
    shown = masked_url(url)
    try:
        if not is_url(url):
            raise ArgumentError("no URL")
        parsed = sa.make_url(url)
        parsed = parsed.set(drivername=DRIVERS.get(parsed.drivername, parsed.drivername))
        backend = parsed.get_backend_name()
        if backend not in BACKENDS:
            raise UsageError(f"--store {shown}: gpuprep has no store in {backend}", f"give a URL, {EXAMPLES}")
        if backend == "sqlite":
            _check_file(parsed, shown)
        return (_sqlite(parsed) if backend == "sqlite" else _postgresql(parsed)), shown
    except ImportError as error:
        driver = masked(str(error).partition("\n")[0])
        raise UsageError(f"--store {shown}: PostgreSQL's driver is not installed ({driver})", NO_DRIVER) from error
    except (ArgumentError, NoSuchModuleError, ValueError) as error:
        typed = f"sqlite:///{Path(url).absolute()}" if shown == url and "://" not in url and "\0" not in url else ""
        hint = f"if {shown} is a file, give {typed}" if typed and url not in BACKENDS else f"give one, {EXAMPLES}"
        if shown != url:
            hint = f"{hint}; in a password write : / @ ? # as %3A %2F %40 %3F %23"
        raise UsageError(f"--store {shown}: this is no URL of a database", hint) from error


def _check_file(url: sa.URL, shown: str) -> None:
    """Raises UsageError for an SQLite URL without a usable file."""
    wrong, path = "", Path(url.database or "")
    if not url.database or url.database == ":memory:":
        wrong = "runs in memory are lost when the command ends"
    elif "\0" in url.database:
        wrong = "a file name cannot hold a NUL character"
    elif url.query:
        wrong = "SQLite takes no options after ?"
    elif path.is_file() and not _is_database(path):
        wrong = "the file is not a database"
    if wrong:
        raise UsageError(f"--store {shown}: {wrong}", f"give the URL of a file, {EXAMPLES}")


def _is_database(path: Path) -> bool:
    """Whether a file may be an SQLite database: an empty file may. An unreadable file too: opening it will fail."""
    try:
        return not path.stat().st_size or is_database(path)
    except OSError:
        return True


def check_there(engine: Engine, shown: str) -> None:
    """Raises UsageError if the file of an SQLite database does not exist. A server is not contacted."""
    if engine.dialect.name != "sqlite":
        return
    path = Path(engine.url.database or "")
    if not path.is_file() or not path.stat().st_size:
        raise UsageError(f"there is no store of runs {shown}", CHECK)


def sqlite(path: Path) -> Engine:
    """An engine for gpuprep's own file, whatever characters its path has; only its owner may read it."""
    soundrows.check_owner(path)
    _tighten(path)
    return _sqlite(sa.URL.create("sqlite", database=str(path)))


def _tighten(path: Path) -> None:
    """Let only its owner read the file and SQLite's files beside it; later files get the mode of the database."""
    for name in (path, Path(f"{path}-wal"), Path(f"{path}-shm")):
        with contextlib.suppress(OSError):  # the file does not exist or has another owner: opening it reports that
            there = name.lstat()
            if stat.S_ISREG(there.st_mode) and there.st_uid == os.geteuid() and there.st_mode & 0o077:
                name.chmod(0o600)


@contextmanager
def transaction(engine: Engine, shown: str, *, write: bool = True, durable: bool = True) -> Iterator[Connection]:
    """One transaction, completely or not at all. Raises StoreError if the database cannot be used.

    What is not `durable` may be gone after a loss of power, but the file is never damaged. A commit that waits for the
    disk takes 20 to 40 ms, and threads that write wait for each other.
    """
    try:
        with engine.connect() as plain:
            connection = plain.execution_options(gpuprep_write=write, gpuprep_durable=durable)
            with connection.begin():
                yield connection
    except (SQLAlchemyError, OverflowError, UnicodeError) as error:  # the last two: a value that no driver takes
        cause = masked(str(getattr(error, "orig", None) or error).strip().partition("\n")[0])
        hint = "see that its folder can be written and has space, or give another store with --store"
        if cause == NOT_SQLITE:
            hint = "the file is damaged: move it away, and a first run makes a new store"
        elif engine.dialect.name != "sqlite":
            hint = "see that the server runs, that the database exists, and that this user may use it (docs/history.md)"
        raise StoreError(f"the store of runs {shown} cannot be used: {cause}", hint) from error


def _make(path: Path) -> None:
    """Make a new file with mode 0600. An existing file keeps its mode, because a team may share it."""
    with contextlib.suppress(OSError):  # the file exists, or SQLite will report why it cannot be made
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))


def _postgresql(url: sa.URL) -> Engine:
    import psycopg

    arguments = {"application_name": "gpuprep", "connect_timeout": CONNECT_SECONDS}
    wanted: dict[str, Any] = {name: value for name, value in arguments.items() if name not in url.query}
    plain = url.set(drivername="postgresql", password=None).render_as_string(hide_password=False)
    shell = f"psql {shlex.quote(masked_url(plain))} -c"
    wanted["cursor_factory"] = soundrows.cursor_class(psycopg.Cursor, masked_url(plain), shell)
    streaming = soundrows.cursor_class(psycopg.ServerCursor, masked_url(plain), shell)
    # Minutes to hours may pass between two queries of a run: the connection may be closed by then.
    engine = sa.create_engine(url, connect_args=wanted, pool_pre_ping=True)
    sa.event.listen(engine, "connect", lambda connection, _: setattr(connection, "server_cursor_factory", streaming))
    return engine


def _sqlite(url: sa.URL) -> Engine:
    path = Path(url.database or "")
    arguments = {"timeout": BUSY_SECONDS, "factory": soundrows.connection_class(path)}
    engine = sa.create_engine(url, connect_args=arguments)

    @sa.event.listens_for(engine, "do_connect")
    def private(*_: Any) -> None:
        soundrows.check_owner(path)
        _make(path)
        soundrows.check_owner(path)  # of a file that somebody made just before

    @sa.event.listens_for(engine, "connect")
    def configure(connection: Any, _record: Any) -> None:
        # Python's sqlite3 opens transactions by itself and not before DDL: take that away and begin them below.
        connection.isolation_level = None
        connection.text_factory = soundrows.text
        soundrows.check_programs(connection, path)
        cursor = connection.cursor()
        cursor.execute("PRAGMA foreign_keys = ON")
        _write_ahead(cursor)
        cursor.close()

    @sa.event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        # A writer takes the lock at once: two transactions that read first and write later would make each other fail.
        options = connection.get_execution_options()
        if options.get("gpuprep_write", True):
            durable = options.get("gpuprep_durable", True)
            connection.exec_driver_sql(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
            connection.exec_driver_sql("BEGIN IMMEDIATE")
        else:
            connection.exec_driver_sql("BEGIN")

    return engine


def _write_ahead(cursor: sqlite3.Cursor) -> None:
    """Turn on WAL, which allows readers beside a writer. The file keeps the mode; the change needs exclusive access."""
    if cursor.execute("PRAGMA journal_mode").fetchone()[0] == "wal":
        return
    try:
        cursor.execute("PRAGMA journal_mode = WAL")
    except sqlite3.OperationalError as error:
        # SQLite does not wait here. The process that has the file open switches it, or the next one that opens it.
        if "locked" not in str(error):
            raise
