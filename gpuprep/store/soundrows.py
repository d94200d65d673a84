"""Rows of a database that somebody else may have written: a damaged row is reported and left out, and all others are
read.

SQLite keeps any value in any column; PostgreSQL what the columns are by now, which its owner can change.
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
from gpuprep.records.evidence import LARGEST
from gpuprep.store.tables import metadata
from gpuprep.untrusted.owners import of_others
from gpuprep.untrusted.plaintext import one_line

# ---------------------------------------------------------------- an SQLite file of somebody else


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
    cursor = cursor_class(sqlite3.Cursor, str(path), f"sqlite3 {shlex.quote(str(path))}")

    class Reader(sqlite3.Connection):
        def cursor(self, *_: Any) -> Any:
            return super().cursor(cursor)

    return Reader


# ---------------------------------------------------------------- its rows


PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
MOST_LETTERS, MOST_OF_RECORD = 1 << 20, 1 << 26  # of a text; of a whole record
log = logging.getLogger(__name__)


def cursor_class(base: Any, shown: str, shell: str) -> Any:
    """`base`, a cursor of a driver, which leaves out damaged rows, and says each once in the log of this module.

    `shell`: the command that takes SQL for this database.
    """
    said: set[str] = set()

    class Cursor(base):  # type: ignore[misc]  # sqlite3's or psycopg's
        _columns: Any = None
        _names: tuple[str, ...] = ()
        # Types of a row (nearly all rows have the same) ► positions and limits of its texts and numbers.
        _right: dict[tuple[type, ...], tuple[list[tuple[int, int]], list[tuple[int, float]]]]
        _words: tuple[tuple[int, frozenset[str | None]], ...] = ()

        def _look(self) -> None:
            if self.description is self._columns:
                return
            self._columns = self.description
            names = tuple(name for name, *_ in self.description or ())
            if names != self._names:
                self._names, self._right = names, {}
                self._words = tuple((place, WORDS[name]) for place, name in enumerate(names) if name in WORDS)

        def _sound(self, row: Any) -> bool:
            types = tuple(map(type, row))
            if types in self._right:
                texts, numbers = self._right[types]
                if (
                    all(len(row[place]) <= most for place, most in texts)
                    and all(-most <= row[place] <= most for place, most in numbers)
                    and all(row[place] in words for place, words in self._words)
                ):
                    return True
            cells = dict(zip(self._names, row, strict=True))
            if any(_wrong(name, value) for name, value in cells.items()):
                _say(shown, shell, cells, said)
                return False
            placed = list(enumerate(zip(self._names, row, strict=True)))
            self._right[types] = (
                [(place, _letters(name)) for place, (name, value) in placed if isinstance(value, str)],
                [
                    (place, GREATEST.get(name, LARGEST))
                    for place, (name, value) in placed
                    if isinstance(value, (int, float))
                ],
            )
            return True

        def _kept(self, rows: list[Any]) -> list[Any]:
            self._look()
            return [row for row in rows if self._sound(row)]

        def __next__(self) -> Any:
            while not (kept := self._kept([super().__next__()])):
                pass
            return kept[0]

        def fetchone(self) -> Any:
            while (row := super().fetchone()) is not None:
                if self._kept([row]):
                    return row
            return None

        def fetchmany(self, size: int | None = None) -> list[Any]:
            while rows := super().fetchmany(self.arraysize if size is None else size):
                if kept := self._kept(rows):
                    return kept
            return []

        def fetchall(self) -> list[Any]:
            return self._kept(super().fetchall())

    return Cursor


def _say(shown: str, shell: str, row: dict[str, Any], said: set[str]) -> None:
    wrong = next(name for name, value in row.items() if _wrong(name, value))
    run_id, host = (value if isinstance(value := row.get(name), str) else "" for name in ("run_id", "host"))
    whose = " of ".join(filter(None, (f"run {one_line(run_id, 64)}" if run_id else "", one_line(host, 255))))
    why = f"{wrong} holds {_wrong(wrong, row[wrong])}"
    line = f"note: a damaged row of {shown} is left out: {whose or 'of no run that can be read'}: {why}"
    if run_id and PLAIN.fullmatch("_" + run_id.replace("-", "_")):
        line += f"; to delete it: {shell} \"DELETE FROM {_table(row)} WHERE run_id = '{run_id}'\""
    if line not in said:
        said.add(line)
        log.warning("%s", line)


def _table(row: dict[str, Any]) -> str:
    """The table that has all of these columns."""
    return next((name for name, table in metadata.tables.items() if set(row) <= set(table.c.keys())), "runs")


def _wrong(name: str, value: Any) -> str:
    """What is wrong with a value of this column; "" if it may be there."""
    if not CHECKS.get(name, _no_bytes)(value):
        kind = type(value).__name__ if name not in WORDS else "a word that gpuprep does not know"
        return {"bytes": "bytes that are no text", "NoneType": "nothing"}.get(kind, kind)
    if isinstance(value, str) and len(value) > _letters(name):
        return f"a text of {len(value)} letters"
    if isinstance(value, (int, float)) and not -(most := GREATEST.get(name, LARGEST)) <= value <= most:
        return "a number that is out of range"
    return ""


def _letters(name: str) -> int:
    return MOST_OF_RECORD if name == "record" else MOST_LETTERS


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
COLUMNS = [column for table in metadata.tables.values() for column in table.columns]
CHECKS = {column.name: _check_of(column) for column in COLUMNS}
GREATEST = {column.name: float(2**31 - 1) for column in COLUMNS if isinstance(column.type, sa.Integer)}
