"""Stores of many runs, written straight into the tables: through gpuprep it would take hours."""

from __future__ import annotations

import shutil
import sqlite3
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

sys.path.append(str(Path(__file__).parent.parent))
import postgres

TABLES = {
    "runs": "run_id, command, host, profile, started_at, ended_at, source, verdict, exit_code, summary, record",
    "findings": "run_id, position, subject, property, status, expected, actual",
    "measurements": "run_id, position, host, started_at, source, gpu_uuid, probe, versions, figure, value",
}
Row = tuple[object, ...]
Fill = Callable[[str, Iterator[Row]], None]


@contextmanager
def sqlite() -> Iterator[tuple[str, Fill]]:
    """The URL of a store that is not there yet, and what fills its tables."""
    folder = Path(tempfile.mkdtemp(prefix="gpuprep-bench-"))

    def fill(table: str, rows: Iterator[Row]) -> None:
        marks = ", ".join("?" * len(TABLES[table].split(",")))
        with sqlite3.connect(folder / "history.db") as connection:
            connection.execute("PRAGMA synchronous = OFF")
            connection.executemany(f"INSERT INTO {table} ({TABLES[table]}) VALUES ({marks})", rows)
        connection.close()

    try:
        yield f"sqlite:///{folder}/history.db", fill
    finally:
        shutil.rmtree(folder)


@contextmanager
def postgresql() -> Iterator[tuple[str, Fill]]:
    with postgres.server() as server:
        url = server.new_database()

        def fill(table: str, rows: Iterator[Row]) -> None:
            with psycopg.connect(url) as connection:
                with connection.cursor().copy(f"COPY {table} ({TABLES[table]}) FROM STDIN".encode()) as copy:
                    for row in rows:
                        copy.write_row(row)
                connection.commit()
                connection.execute(f"ANALYZE {table}".encode())

        yield url, fill


STORES = {"SQLite": sqlite, "PostgreSQL": postgresql}
