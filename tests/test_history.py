"""The store of runs, on real SQLite files."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from records_for_tests import FINDINGS, record

from gpuprep import history_migrations, history_schema
from gpuprep.errors import StoreError, UsageError
from gpuprep.history import Store
from gpuprep.records import Status, to_json


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "history.db"


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    opened = Store.open(f"sqlite:///{path}")
    yield opened
    opened.close()


def test_a_record_comes_back_as_it_went_in(store: Store) -> None:
    store.append(record())
    assert store.get("20261120-100000-abc123") == record()


def test_the_default_store_is_in_the_state_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    opened = Store.open(None)
    opened.append(record())
    opened.close()
    assert (tmp_path / "state/gpuprep/history.db").is_file()
    assert (tmp_path / "state/gpuprep").stat().st_mode & 0o077 == 0


def test_runs_are_listed_newest_first_and_by_host(store: Store) -> None:
    store.append(record("r1", started_at="2026-11-20T10:00:00+00:00"))
    store.append(record("r3", started_at="2026-11-20T12:00:00+00:00", host="web1"))
    store.append(record("r2", started_at="2026-11-20T11:00:00+00:00", verdict=None, error="sim:t4: broke\nmore"))
    assert [run.run_id for run in store.runs()] == ["r3", "r2", "r1"]
    assert [run.run_id for run in store.runs("sim:t4")] == ["r2", "r1"]
    assert [run.run_id for run in store.runs(limit=1)] == ["r3"]
    failed = store.runs("sim:t4")[0]
    assert (failed.verdict, failed.summary) == (None, "sim:t4: broke")
    assert (store.runs("web1")[0].verdict, store.runs("web1")[0].failed) == (Status.FAIL, 1)


def test_a_run_is_found_by_the_beginning_of_its_id(store: Store) -> None:
    store.append(record("20261120-100000-aaaaaa"))
    store.append(record("20261120-110000-bbbbbb", started_at="2026-11-20T11:00:00+00:00"))
    assert store.get("20261120-10").run_id == "20261120-100000-aaaaaa"
    assert store.get("last").run_id == "20261120-110000-bbbbbb"
    with pytest.raises(UsageError, match="fits several runs"):
        store.get("20261120")
    with pytest.raises(UsageError, match="no run '2027'"):
        store.get("2027")
    with pytest.raises(UsageError, match="no run '%'"):  # a wildcard of SQL is none here
        store.get("%")


def test_a_run_is_stored_once(store: Store) -> None:
    store.append(record())
    with pytest.raises(StoreError, match="already in the store"):
        store.append(record())
    assert len(store.runs()) == 1


def test_findings_and_run_are_written_together_or_not_at_all(store: Store, path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute(
            "CREATE TRIGGER full BEFORE INSERT ON findings WHEN new.position = 2 "
            "BEGIN SELECT RAISE(ABORT, 'disk full'); END"
        )
    connection.close()
    with pytest.raises(StoreError, match="disk full"):
        store.append(record())
    assert store.runs() == []


def _append_many(path: str, name: str, count: int) -> None:
    opened = Store.open(f"sqlite:///{path}")
    for number in range(count):
        opened.append(record(f"{name}-{number}"))
    opened.close()


def test_two_processes_append_at_the_same_time(path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=_append_many, args=(str(path), name, 20)) for name in ("a", "b")]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(60)
        assert writer.exitcode == 0
    opened = Store.open(f"sqlite:///{path}")
    assert len(opened.runs(limit=100)) == 40
    opened.close()


def _die_while_writing(path: str) -> None:
    opened = Store.open(f"sqlite:///{path}")
    with opened._transaction() as connection:
        connection.execute(sa.text("INSERT INTO runs VALUES ('half','c','h','p','s','e','measured',NULL,0,'','{}')"))
        os.kill(os.getpid(), signal.SIGKILL)


def test_a_killed_writer_leaves_nothing_behind_and_blocks_nobody(path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    writer = context.Process(target=_die_while_writing, args=(str(path),))
    writer.start()
    writer.join(60)
    assert writer.exitcode == -signal.SIGKILL
    opened = Store.open(f"sqlite:///{path}")
    opened.append(record())
    assert [run.run_id for run in opened.runs()] == [record().run_id]
    opened.close()


def test_the_first_schema_is_migrated_with_its_runs(path: Path) -> None:
    old = sa.create_engine(f"sqlite:///{path}")
    with old.begin() as connection:
        history_schema.migrations.create(connection)
        history_migrations.create_runs(connection)
        connection.execute(history_schema.migrations.insert().values(name="create_runs", applied_at="2026-01-01"))
        values = {
            "run_id": "old",
            "command": "provision",
            "host": "h",
            "profile": "t4",
            "started_at": "2026",
            "ended_at": "2026",
            "source": "measured",
            "verdict": "FAIL",
            "exit_code": 1,
            "summary": "s",
            "record": to_json(record("old")),
        }
        connection.execute(history_schema.runs.insert().values(values))
    old.dispose()
    opened = Store.open(f"sqlite:///{path}")
    assert opened.get("old") == record("old")
    assert opened.runs()[0].failed == 1
    opened.close()
    with sqlite3.connect(path) as plain:
        names = [row[0] for row in plain.execute("SELECT name FROM migrations ORDER BY rowid")]
        assert plain.execute("SELECT count(*) FROM findings").fetchone() == (len(FINDINGS),)
        assert plain.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    plain.close()
    assert names == [name for name, _ in history_migrations.MIGRATIONS]


def test_a_migration_that_fails_changes_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(connection: sa.Connection) -> None:
        connection.execute(sa.text("CREATE TABLE halfway (x INTEGER)"))
        connection.execute(sa.text("SELECT * FROM nowhere"))

    Store.open(f"sqlite:///{path}").close()
    monkeypatch.setattr(history_migrations, "MIGRATIONS", (*history_migrations.MIGRATIONS, ("broken", broken)))
    with pytest.raises(StoreError, match="nowhere"):
        Store.open(f"sqlite:///{path}")
    with sqlite3.connect(path) as connection:
        tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    connection.close()
    assert tables == {"migrations", "runs", "findings", "baselines", "measurements", "certified"}


def test_a_store_of_a_newer_gpuprep_is_left_alone(path: Path) -> None:
    Store.open(f"sqlite:///{path}").close()
    with sqlite3.connect(path) as connection:
        connection.execute("INSERT INTO migrations VALUES ('from_the_future', '2030')")
    connection.close()
    with pytest.raises(StoreError, match="newer gpuprep") as caught:
        Store.open(f"sqlite:///{path}")
    assert "--store" in caught.value.hint


@pytest.mark.parametrize("url", ["nonsense", "nosuchdatabase://x/y"])
def test_a_url_that_is_none_is_wrong_usage(url: str) -> None:
    with pytest.raises(UsageError, match="--store"):
        Store.open(url)


def test_what_cannot_be_a_database_says_so(tmp_path: Path) -> None:
    text = tmp_path / "text.db"
    text.write_text("this is no database, " * 100)
    with pytest.raises(StoreError, match="not a database"):
        Store.open(f"sqlite:///{text}")
    with pytest.raises(StoreError, match="cannot be used") as caught:
        Store.open(f"sqlite:///{tmp_path}/no/such/folder/x.db")
    assert "--store" in caught.value.hint


def test_a_damaged_record_is_named(store: Store, path: Path) -> None:
    store.append(record())
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE runs SET record = '{\"run_id\": 1}'")
    connection.close()
    with pytest.raises(StoreError, match=r"RunRecord\.run_id"):
        store.get("last")


def test_a_password_in_the_url_is_not_shown() -> None:
    with pytest.raises((StoreError, UsageError)) as caught:
        Store.open("postgresql+nosuchdriver://me:hunter2@127.0.0.1:1/db")
    assert "hunter2" not in caught.value.explain()
