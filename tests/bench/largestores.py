"""Stores of many runs, written straight into the tables (tests/support/storerows.py)."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "support"))
import postgres
import storerows
from storerows import Row

TABLES = {
    "runs": "run_id, command, host, profile, started_at, ended_at, source, verdict, exit_code, summary, record",
    "findings": "run_id, position, subject, property, status, expected, actual",
    "measurements": "run_id, position, host, started_at, source, gpu_uuid, probe, versions, figure, value",
}
Fill = Callable[[str, Iterator[Row]], None]


@contextmanager
def sqlite() -> Iterator[tuple[str, Fill]]:
    """The URL of a store that is not there yet, and what fills its tables."""
    folder = Path(tempfile.mkdtemp(prefix="gpuprep-bench-"))
    try:
        yield _with_fill(f"sqlite:///{folder}/history.db")
    finally:
        shutil.rmtree(folder)


@contextmanager
def postgresql() -> Iterator[tuple[str, Fill]]:
    with postgres.server() as server:
        yield _with_fill(server.new_database())


def _with_fill(url: str) -> tuple[str, Fill]:
    return url, lambda table, rows: storerows.fill(url, table, TABLES[table], rows)


STORES = {"SQLite": sqlite, "PostgreSQL": postgresql}
