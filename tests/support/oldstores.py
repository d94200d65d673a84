"""Stores as earlier versions of gpuprep left them, on both databases, and what is in a store.

tests/cases/history/by-hand-*.sql are captured: the statements of the gpuprep that noted its migrations by hand.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import sqlalchemy as sa
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from places import TESTS
from records_for_tests import PASSED, measured

from gpuprep.records.baseline import BaselineKey
from gpuprep.store import Store, engine, migrations, tables

CASES = TESTS / "cases/history"
BY_HAND = migrations.REVISIONS[:6]
# (who noted it, up to which revision); None: nothing is there yet.
BEFORE_ALEMBIC = [("by hand", name) for name in BY_HAND]
VERSIONS = [*BEFORE_ALEMBIC, *(("alembic", name) for name in migrations.REVISIONS)]
OLDER = (migrations.REVISIONS[0], migrations.REVISIONS[-2])  # revisions: the first, and the one before now's
KEY = BaselineKey("GPU-0", "gemm", "gpuprep 0.1.0, cublasLt 12.4.5, quick")


@contextmanager
def database(url: str) -> Iterator[sa.Engine]:
    made, _ = engine.make(url)
    yield made
    made.dispose()


def make(url: str, noted: str, revision: str) -> None:
    """An empty store as it was at a revision."""
    with database(url) as made, made.begin() as connection:
        if noted == "alembic":
            command.upgrade(migrations.configuration(connection), revision)
            return
        text = (CASES / f"by-hand-{made.dialect.name}.sql").read_text(encoding="utf-8")
        for section in text.split("-- ")[1 : BY_HAND.index(revision) + 2]:
            for statement in section.partition("\n")[2].split(";"):
                if statement.strip():
                    connection.exec_driver_sql(statement)


def fill_new(url: str) -> None:
    """A store of now with something in each of its tables."""
    store = Store.open(url)
    store.append(measured("r1", 280.0, day=1), {KEY: {"fp16": 280.0}})
    store.append(measured("r2", 270.0, day=2, verdict=PASSED))
    store.certify("gpu-1", "r2", "2026-11-09", {})
    store.join("gpu-1", "node7", "2026-11-09")
    store.close()


def fill(url: str, filled: dict[str, list[dict[str, Any]]]) -> None:
    """Put those of the rows into an old store whose tables it has, without columns that came later."""
    with database(url) as made, made.begin() as connection:
        there = sa.inspect(connection).get_table_names()
        for name in ("runs", "findings", "baselines", "measurements", "certified", "host_names"):
            if name in there:
                table = sa.Table(name, sa.MetaData(), autoload_with=connection)
                rows = [{key: value for key, value in row.items() if key in table.c} for row in filled[name]]
                connection.execute(table.insert(), rows)


def rows(url: str) -> dict[str, list[dict[str, Any]]]:
    """All rows of all tables."""
    with database(url) as made, made.connect() as connection:
        tables = sa.MetaData()
        tables.reflect(connection)
        return {
            name: sorted((dict(row) for row in connection.execute(sa.select(table)).mappings()), key=repr)
            for name, table in tables.tables.items()
        }


def schema(url: str) -> dict[str, Any]:
    """All tables with their columns, keys and indexes, and PostgreSQL's collations."""
    with database(url) as made, made.connect() as connection:
        inspector = sa.inspect(connection)
        found: dict[str, Any] = {
            name: {
                "columns": [{**column, "type": repr(column["type"])} for column in inspector.get_columns(name)],
                "key": inspector.get_pk_constraint(name),
                "foreign": inspector.get_foreign_keys(name),
                "indexes": sorted(inspector.get_indexes(name), key=lambda index: str(index["name"])),
            }
            for name in inspector.get_table_names()
        }
        if made.dialect.name == "postgresql":
            query = "SELECT table_name, column_name, data_type, collation_name FROM information_schema.columns"
            ordered = f"{query} WHERE table_schema = 'public' ORDER BY 1, ordinal_position"
            found["collations"] = [tuple(row) for row in connection.execute(sa.text(ordered))]
        return found


def differences(url: str) -> list[Any]:
    """How the tables of a store differ from those that the program uses, as Alembic tells it."""
    with database(url) as made, made.connect() as connection:
        return list(compare_metadata(MigrationContext.configure(connection), tables.metadata))


def version(url: str) -> list[str]:
    """What a store's tables say of their version."""
    return [row["version_num"] for row in rows(url)["alembic_version"]]


@contextmanager
def statements() -> Iterator[list[tuple[str, Any]]]:
    """(SQL, parameters) of all that this process asks its databases meanwhile."""
    asked: list[tuple[str, Any]] = []

    def note(_connection: object, _cursor: object, statement: str, parameters: Any, *_: object) -> None:
        asked.append((statement, parameters))

    sa.event.listen(sa.Engine, "before_cursor_execute", note)
    try:
        yield asked
    finally:
        sa.event.remove(sa.Engine, "before_cursor_execute", note)


def die_after(changes: int) -> None:
    """From now on: this process is killed behind so many statements that change a database."""
    left = iter(range(changes))

    @sa.event.listens_for(sa.Engine, "after_cursor_execute")
    def count(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        if not statement.startswith(("SELECT", "PRAGMA", "BEGIN")) and next(left, None) is None:
            os.kill(os.getpid(), signal.SIGKILL)
