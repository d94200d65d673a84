"""An SQLite file that somebody else may have written: who can change it, what it runs, and rows that are none.

SQLite runs the views and triggers of a file for whoever reads it, and keeps any value in any column.
"""

from __future__ import annotations

import logging
import re
import shlex
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from gpuprep.errors import UsageError
from gpuprep.records import Source, Status
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
PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
log = logging.getLogger(__name__)


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
    """Connections to this file that leave out damaged rows, and say each of them once in the log of gpuprep.store."""
    said: set[str] = set()

    class Cursor(sqlite3.Cursor):
        _columns: Any = None
        _checks: tuple[tuple[str, Callable[[Any], bool]], ...] = ()
        _words: tuple[tuple[int, frozenset[str | None]], ...] = ()
        _right: set[tuple[type, ...]]  # types of rows that were looked at: nearly all rows have the same

        def _sound(self, row: Any) -> bool:
            if self.description is not self._columns:
                self._columns, self._right = self.description, set()
                names = [name for name, *_ in self.description]
                self._checks = tuple((name, CHECKS.get(name, _no_bytes)) for name in names)
                self._words = tuple((place, WORDS[name]) for place, name in enumerate(names) if name in WORDS)
            types = tuple(map(type, row))
            if types in self._right and all(row[place] in words for place, words in self._words):
                return True
            if all(check(value) for (_, check), value in zip(self._checks, row, strict=True)):
                self._right.add(types)
                return True
            _say(path, {name: value for (name, _), value in zip(self._checks, row, strict=True)}, said)
            return False

        def __next__(self) -> Any:
            while not self._sound(row := super().__next__()):
                pass
            return row

        def fetchone(self) -> Any:
            while (row := super().fetchone()) is not None and not self._sound(row):
                pass
            return row

        def fetchmany(self, size: int | None = 1) -> list[Any]:
            while rows := super().fetchmany(self.arraysize if size is None else size):
                if sound := [row for row in rows if self._sound(row)]:
                    return sound
            return []

        def fetchall(self) -> list[Any]:
            return [row for row in super().fetchall() if self._sound(row)]

    class Reader(sqlite3.Connection):
        def cursor(self, *_: Any) -> Any:
            return super().cursor(Cursor)

    return Reader


def _say(path: Path, row: dict[str, Any], said: set[str]) -> None:
    wrong = next(name for name, value in row.items() if not CHECKS.get(name, _no_bytes)(value))
    run_id, host = (value if isinstance(value := row.get(name), str) else "" for name in ("run_id", "host"))
    whose = " of ".join(filter(None, (f"run {one_line(run_id, 64)}" if run_id else "", one_line(host, 255))))
    kind = type(row[wrong]).__name__ if wrong not in WORDS else "a word that gpuprep does not know"
    kind = {"bytes": "bytes that are no text", "NoneType": "nothing"}.get(kind, kind)
    line = f"note: a damaged row of {path} is left out: {whose or 'of no run that can be read'}: {wrong} holds {kind}"
    if run_id and PLAIN.fullmatch("_" + run_id.replace("-", "_")):
        delete = f"DELETE FROM {_table(row)} WHERE run_id = '{run_id}'"
        line += f'; to delete it: sqlite3 {shlex.quote(str(path))} "{delete}"'
    if line not in said:
        said.add(line)
        log.warning("%s", line)


def _table(row: dict[str, Any]) -> str:
    """The table that has all of these columns."""
    return next((name for name, table in metadata.tables.items() if set(row) <= set(table.c.keys())), "runs")


def _no_bytes(value: Any) -> bool:
    return not isinstance(value, bytes)


WORDS = {
    "source": frozenset(source.value for source in Source),
    "verdict": frozenset((*(status.value for status in Status), None)),
    "status": frozenset(status.value for status in Status),
}


KINDS: dict[type[Any], tuple[type, ...]] = {sa.Float: (float, int), sa.Integer: (int,), sa.Boolean: (int,)}


def _check_of(column: sa.Column[Any]) -> Callable[[Any], bool]:
    if column.name in WORDS:
        return WORDS[column.name].__contains__
    types = next((types for kind, types in KINDS.items() if isinstance(column.type, kind)), (str,))
    if column.nullable or column.name == "name":  # the list of names ends with nothing (overview._names)
        types = (*types, type(None))
    return lambda value: isinstance(value, types)


# Whether a value may be in a column. Columns of one name are alike in all tables.
CHECKS = {column.name: _check_of(column) for table in metadata.tables.values() for column in table.columns}
