"""An SQLite file that somebody else may have written: who can change it, and what it runs.

SQLite runs the views and triggers of a file for whoever reads it.
"""

from __future__ import annotations

import shlex
import sqlite3
from pathlib import Path
from typing import Any

from gpuprep.errors import UsageError
from gpuprep.store import soundrows
from gpuprep.store.soundrows import PLAIN
from gpuprep.store.tables import metadata
from gpuprep.untrusted.owners import of_others
from gpuprep.untrusted.plaintext import one_line

BESIDE = ("", "-wal", "-shm", "-journal")  # SQLite takes changes of the file from these
# Views, triggers and virtual tables have no page of their own; columns can be computed.
PROGRAMS = """
SELECT iif(type = 'table', 'virtual table', type), name FROM sqlite_master WHERE ifnull(rootpage, 0) = 0
UNION ALL SELECT 'computed column', m.name || '.' || x.name
FROM sqlite_master m, pragma_table_xinfo(m.name) x WHERE m.type = 'table' AND x.hidden > 1
LIMIT 1
"""
DROPPED = {"view": "VIEW", "trigger": "TRIGGER", "virtual table": "TABLE"}


def check_owner(path: Path) -> None:
    """Raises UsageError if a user who is neither root nor this one can change the store, or a folder above it."""
    for end in BESIDE:
        if weak := of_others(Path(f"{path}{end}"), team=True):
            raise UsageError(f"the store of runs {path} is not used: {weak.why}", weak.mend)


def check_programs(connection: sqlite3.Connection, path: Path) -> None:
    """Raises UsageError for a file that has anything but tables: gpuprep makes no view and no trigger."""
    for kind, name in connection.execute(PROGRAMS):
        drop = f"mv {shlex.quote(str(path))} {shlex.quote(f'{path}.refused')}"
        if kind in DROPPED and PLAIN.fullmatch(str(name)) and name not in metadata.tables:
            drop = f"sqlite3 {shlex.quote(str(path))} {shlex.quote(f'DROP {DROPPED[kind]} {name}')}"
        what = f"it has the {one_line(str(kind), 40)} {one_line(str(name), 100)}, which gpuprep did not make"
        raise UsageError(f"the store of runs {path} is not used: {what}", drop)


def text(value: bytes) -> Any:
    """For text_factory: bytes that are no text stay bytes, and their row is left out."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value


def connection_class(path: Path) -> type[sqlite3.Connection]:
    """Connections to this file that leave out damaged rows."""
    cursor = soundrows.cursor_class(sqlite3.Cursor, str(path), f"sqlite3 {shlex.quote(str(path))}")

    class Reader(sqlite3.Connection):
        def cursor(self, *_: Any) -> Any:
            return super().cursor(cursor)

    return Reader
