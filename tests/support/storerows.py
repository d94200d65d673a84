"""Rows written straight into the tables of a store: through gpuprep, those of many runs would take hours."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator

Row = tuple[object, ...]


def fill(url: str, table: str, columns: str, rows: Iterator[Row]) -> None:
    """`columns`: "run_id, position", in the order of each row. The table is there already."""
    if url.startswith("sqlite:///"):
        marks = ", ".join("?" * len(columns.split(",")))
        with sqlite3.connect(url.removeprefix("sqlite:///")) as connection:
            connection.execute("PRAGMA synchronous = OFF")
            connection.executemany(f"INSERT INTO {table} ({columns}) VALUES ({marks})", rows)
        connection.close()
        return
    import psycopg

    with psycopg.connect(url) as server:
        with server.cursor().copy(f"COPY {table} ({columns}) FROM STDIN".encode()) as copy:
            for row in rows:
                copy.write_row(row)
        server.commit()
        server.execute(f"ANALYZE {table}".encode())
