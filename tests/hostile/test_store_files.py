"""A store file that somebody else wrote to: damaged rows, SQL that runs when it is read, and whose file it is."""

from __future__ import annotations

import logging
import os
import pwd
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import dashboardserver
import postgres
import psycopg
import pytest
from commandline import Shell, own_folders
from records_for_tests import measured, record

from gpuprep import errors
from gpuprep.store import Store
from gpuprep.store.readonly import ReadOnlyStore

NOBODY = pwd.getpwnam("nobody").pw_uid
root_only = pytest.mark.skipif(os.geteuid() != 0, reason="gives files to another user")
ENDLESS = "WITH RECURSIVE x(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM x) SELECT n FROM x"
RUNS = [f"20260101-00000{number}-aaaaa" for number in range(3)]


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("good") / "runs.db"
    with Store.open(f"sqlite:///{path}") as store:
        for number, run_id in enumerate(RUNS):
            store.append(record(run_id, host=f"gpu-{number}", command="validate"))
        store.append(measured("figures", 200.0, day=1))
    return path


@pytest.fixture
def file(good: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    own_folders(monkeypatch, tmp_path)
    made = tmp_path / "place" / "runs.db"
    made.parent.mkdir()
    shutil.copy(good, made)
    return made


def execute(path: Path, *statements: str) -> None:
    with sqlite3.connect(path) as connection:
        for statement in statements:
            connection.execute(statement)
    connection.close()


def url(path: Path) -> str:
    return f"sqlite:///{path}"


# ---------------------------------------------------------------- one bad row hides no other

DAMAGED = {
    "bytes in a list's column": ("summary = x'ff00'", "summary holds bytes that are no text"),
    "bytes where a word is": ("source = x'ff'", "source holds"),
    "bytes for a host": ("host = x'41'", "host holds bytes"),
    "bytes for a moment": ("started_at = x'32'", "started_at holds bytes"),
    "text that is none": ("profile = CAST(x'ff41' AS TEXT)", "profile holds bytes that are no text"),
    "a word for a number": ("exit_code = 'abc'", "exit_code holds"),
    "a verdict that is none": ("verdict = 'HELLO'", "verdict holds a word that gpuprep does not know"),
    "bytes for the record": ("record = x'7b7d'", "record holds bytes"),
    "a huge text": ("summary = hex(zeroblob(600000))", "summary holds a text of 1200000 letters"),
    "a number out of range": ("exit_code = 1 << 40", "exit_code holds a number that is out of range"),
}
# The same of PostgreSQL, whose columns hold one type: that type can be changed, and what is NOT NULL.
DAMAGED_POSTGRES = {
    "a word that is none": (["UPDATE runs SET source = 'HELLO' WHERE {run}"], "source holds a word that gpuprep does"),
    "a huge text": (["UPDATE runs SET summary = repeat('x', 1200000) WHERE {run}"], "summary holds a text of 1200000"),
    "a number out of range": (
        ["ALTER TABLE runs ALTER exit_code TYPE bigint", "UPDATE runs SET exit_code = 1099511627776 WHERE {run}"],
        "exit_code holds a number that is out of range",
    ),
    "nothing": (
        ["ALTER TABLE runs ALTER summary DROP NOT NULL", "UPDATE runs SET summary = NULL WHERE {run}"],
        "summary holds nothing",
    ),
    "a record that is none": (["UPDATE runs SET record = '[' WHERE {run}"], ""),
}
BYTES = "ALTER TABLE runs ALTER summary TYPE bytea USING convert_to(summary, 'UTF8')"


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_row_is_named_and_hides_no_other(
    file: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture, name: str
) -> None:
    change, said = DAMAGED[name]
    execute(file, f"UPDATE runs SET {change} WHERE run_id = '{RUNS[1]}'")
    gpuprep, store = Shell(capsys), ("--store", url(file))
    with caplog.at_level(logging.WARNING):
        for words in (("history", "list"), ("status",), ("history", "export"), ("report", RUNS[2], "--json")):
            code, out, _ = gpuprep(*words, *store)
            assert code in (0, 1, 3), words
            assert "gpu-2" in out, words
    notes = [note for note in caplog.messages if said in note]
    assert notes
    assert len(set(notes)) <= 3, "each is said once for a command"
    if "run_id" in notes[0]:
        assert f"run {RUNS[1]}" in notes[0]
        assert f"\"DELETE FROM runs WHERE run_id = '{RUNS[1]}'\"" in notes[0]
    with dashboardserver.pages(url(file)) as pages:
        assert "gpu-2" in pages.get("/fleet").text


@pytest.fixture
def server(postgres_server: postgres.Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    own_folders(monkeypatch, tmp_path)
    address = postgres_server.new_database()
    with Store.open(address) as store:
        for number, run_id in enumerate(RUNS):
            store.append(record(run_id, host=f"gpu-{number}", command="validate"))
        store.append(measured("figures", 200.0, day=1))

    def changed(*statements: str) -> str:
        with psycopg.connect(address) as connection:
            for statement in statements:
                connection.execute(statement.format(run=f"run_id = '{RUNS[1]}'").encode())
        return address

    return changed


@pytest.mark.parametrize("name", DAMAGED_POSTGRES)
def test_a_damaged_row_of_postgresql_is_named_and_hides_no_other(
    server: Callable[..., str], capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture, name: str
) -> None:
    changes, said = DAMAGED_POSTGRES[name]
    address = server(*changes)
    with caplog.at_level(logging.WARNING):
        for words in (("history", "list"), ("status",), ("history", "export"), ("report", RUNS[2], "--json")):
            code, out, err = Shell(capsys)(*words, "--store", address)
            assert code in (0, 1, 3), (words, err)
            assert "gpu-2" in out, words
        code, _, err = Shell(capsys)("report", RUNS[1], "--store", address)
        assert (code == 3 and f"the record of run {RUNS[1]} cannot be read" in err) is ("record" in name), err
    notes = [note for note in caplog.messages if said in note]
    assert notes or not said, caplog.messages
    assert all("psql 'postgresql://gpuprep@/test" in note for note in notes), notes
    with dashboardserver.pages(address) as pages:
        assert "gpu-2" in pages.get("/fleet").text


def test_bytes_and_numbers_that_are_none_in_postgresql(
    server: Callable[..., str], capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    address = server(BYTES, "UPDATE measurements SET value = 'NaN'")
    with caplog.at_level(logging.WARNING):
        code, _, err = Shell(capsys)("history", "list", "--store", address)
        assert code in (0, 3), err
        with Store.open(address) as store:
            assert store.figures("gpu-1", "") == []
            store.headlines(["figures"])
    text = "\n".join(caplog.messages)
    assert f"run {RUNS[1]} of gpu-1: summary holds bytes that are no text" in text
    assert "value holds a number that is out of range" in text
    with caplog.at_level(logging.WARNING):
        code, out, err = Shell(capsys)("history", "export", "--format", "csv", "--what", "runs", "--store", address)
    assert (code, RUNS[0] in out) == (0, False), err


def test_rows_of_the_other_tables_are_left_out_as_well(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    execute(file, "UPDATE measurements SET value = 'abc'", "UPDATE findings SET subject = x'ff' WHERE position = 0")
    with caplog.at_level(logging.WARNING), Store.open(url(file)) as store:
        assert store.figures("gpu-1", "") == []
        store.headlines(["figures"])
    assert any("value holds str" in note for note in caplog.messages), caplog.messages


def test_the_record_of_a_damaged_row_says_so(file: Path) -> None:
    execute(file, f"UPDATE runs SET record = x'7b' WHERE run_id = '{RUNS[1]}'")
    with Store.open(url(file)) as store, pytest.raises(errors.StoreError, match=f"record of run {RUNS[1]} cannot be"):
        store.get(RUNS[1])


# ---------------------------------------------------------------- nothing of the file runs

PROGRAMS = {
    "a view that never ends in place of a table": (
        ["ALTER TABLE runs RENAME TO was", f"CREATE VIEW runs AS SELECT was.* FROM was, ({ENDLESS})"],
        "it has the view runs", "mv ",
    ),
    "a view of its own": ([f"CREATE VIEW other AS {ENDLESS}"], "it has the view other", "DROP VIEW other"),
    "a trigger": (
        ["CREATE TRIGGER t AFTER INSERT ON runs BEGIN DELETE FROM findings; END"],
        "it has the trigger t", "DROP TRIGGER t",
    ),
    "a trigger with a strange name": (
        ['CREATE TRIGGER "a\'b\x1b[2J" AFTER INSERT ON runs BEGIN DELETE FROM findings; END'],
        "it has the trigger a'b", "mv ",
    ),
    "a column that is computed": (
        ["ALTER TABLE runs ADD COLUMN evil TEXT AS (hex(zeroblob(1000)))"],
        "it has the computed column runs.evil", "mv ",
    ),
    "a virtual table": (["CREATE VIRTUAL TABLE v USING fts5(a)"], "it has the virtual table v", "DROP TABLE v"),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_store_that_runs_something_is_refused(file: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    statements, said, repair = PROGRAMS[name]
    execute(file, *statements)
    before = file.read_bytes()
    for words in (["history", "list"], ["status"], ["report", "last"]):
        code, out, err = Shell(capsys)(*words, "--store", url(file))
        assert (code, out) == (2, ""), err
        assert said in err
        assert repair in err
        assert err.replace("\n", "").isprintable()
    with pytest.raises(errors.UsageError, match="is not used"):
        ReadOnlyStore.open(url(file))
    with pytest.raises(errors.UsageError, match="is not used"):
        Store.open(url(file)).append(record("new"))
    assert file.read_bytes() == before
    if "DROP" in repair:
        execute(file, repair)
        assert Shell(capsys)("history", "list", "--store", url(file))[0] == 0


# ---------------------------------------------------------------- whose file it is


def open_file(file: Path) -> Path:
    file.chmod(0o666)
    return file


def in_an_open_folder(file: Path) -> Path:
    file.parent.chmod(0o777)
    return file.parent


def another_users(file: Path) -> Path:
    os.chown(file, NOBODY, -1)
    return file


def in_a_folder_of_another_user(file: Path) -> Path:
    os.chown(file.parent, NOBODY, -1)
    return file.parent


def with_changes_of_another_user(file: Path) -> Path:
    beside = Path(f"{file}-wal")
    beside.touch()
    os.chown(beside, NOBODY, -1)
    return beside


def behind_another_users_link(file: Path) -> Path:
    shutil.move(file, file.with_name("real"))
    file.symlink_to("real")
    os.lchown(file, NOBODY, -1)
    return file


ATTACKS: list[Callable[[Path], Path]] = [open_file, in_an_open_folder]
AS_ROOT = [another_users, in_a_folder_of_another_user, with_changes_of_another_user, behind_another_users_link]
by_attack = pytest.mark.parametrize("attack", [*ATTACKS, *(pytest.param(each, marks=root_only) for each in AS_ROOT)])


@by_attack
def test_a_store_that_another_user_can_change_is_refused(
    file: Path, attack: Callable[[Path], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    weak = attack(file)
    code, out, err = Shell(capsys)("history", "list", "--store", url(file))
    assert (code, out) == (2, "")
    first, hint = err.splitlines()
    assert str(weak) in first
    assert hint.split(": ", 1)[1].split()[0] in ("chmod", "chown", "rm")
    assert hint.endswith(str(weak))
    with pytest.raises(errors.UsageError, match="is not used"):
        ReadOnlyStore.open(url(file))


@by_attack
def test_nor_the_default_one(
    good: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, attack: Callable[[Path], Path],
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    own_folders(monkeypatch, tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    store = tmp_path / "state/gpuprep/history.db"
    store.parent.mkdir(parents=True)
    shutil.copy(good, store)
    weak = attack(store)
    code, out, err = Shell(capsys)("history", "list")
    assert (code, out) == (2, "")
    assert str(weak) in err


def test_a_new_store_in_a_folder_for_everybody_is_not_made(file: Path) -> None:
    file.unlink()
    file.parent.chmod(0o777)
    with pytest.raises(errors.UsageError, match="everybody may write"):
        Store.open(url(file))
    assert list(file.parent.iterdir()) == []


def test_a_file_that_a_group_shares_is_used(file: Path) -> None:
    file.parent.chmod(0o775)
    file.chmod(0o660)
    with Store.open(url(file)) as store:
        assert len(store.runs()) == 4
