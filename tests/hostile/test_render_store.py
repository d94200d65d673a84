"""The store and the controller's secrets: what a record, a clock or another user of the controller can do to them."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import sqlite3
import stat
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import click
import hostilerecords
import psycopg
import pytest
from records_for_tests import measured, record

from gpuprep import errors, paths, records
from gpuprep.checks import drift
from gpuprep.cli import cli, run_command
from gpuprep.performance import trend
from gpuprep.reports import comparison
from gpuprep.store import Store
from gpuprep.untrusted import masking

FUTURE = "2999-01-01T00:00:00+00:00"


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("GPUPREP_STORE", raising=False)
    monkeypatch.setattr(masking, "_known", set())
    return tmp_path / "state" / "gpuprep"


@pytest.fixture
def store(state: Path) -> Iterator[Store]:  # noqa: ARG001  its folder is needed
    opened = Store.open(None)
    yield opened
    opened.close()


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


# ---------------------------------------------------------------- who may read it


@pytest.fixture
def lax() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.usefixtures("lax")
def test_a_new_store_is_its_owners_alone(state: Path) -> None:
    opened = Store.open(None)
    opened.append(record())
    found = {path.name: mode(path) for path in state.iterdir()}
    opened.close()
    assert found.pop("history.db") == 0o600
    assert set(found.values()) <= {0o600}, found
    assert mode(state) == 0o700


@pytest.mark.usefixtures("lax")
def test_an_old_one_is_closed_to_others(state: Path) -> None:
    state.parent.mkdir(0o755)
    state.mkdir(0o755)
    sqlite3.connect(state / "history.db").close()
    (state / "history.db-wal").touch(0o644)
    (state / "history.db").chmod(0o644)
    Store.open(None).close()
    assert (mode(state / "history.db"), mode(state)) == (0o600, 0o700)


@pytest.mark.usefixtures("lax")
def test_a_new_store_of_another_place_too(tmp_path: Path) -> None:
    Store.open(f"sqlite:///{tmp_path}/x.db").close()
    assert mode(tmp_path / "x.db") == 0o600


@pytest.mark.usefixtures("lax")
def test_a_shared_store_stays_as_its_team_made_it(tmp_path: Path) -> None:
    sqlite3.connect(tmp_path / "x.db").close()
    (tmp_path / "x.db").chmod(0o660)
    Store.open(f"sqlite:///{tmp_path}/x.db").close()
    assert mode(tmp_path / "x.db") == 0o660


@pytest.mark.usefixtures("lax")
def test_a_link_in_the_place_of_the_store_opens_no_other_file(state: Path, tmp_path: Path) -> None:
    state.parent.mkdir(0o755)
    state.mkdir(0o700)
    target = tmp_path / "other"
    target.write_text("not mine")
    target.chmod(0o644)
    (state / "history.db").symlink_to(target)
    with pytest.raises(errors.StoreError):
        Store.open(None)
    assert mode(target) == 0o644


@pytest.mark.usefixtures("lax")
def test_records_and_error_logs_are_their_owners_alone(state: Path) -> None:
    paths.private_folder(state / "runs" / "r1")
    paths.private_text(state / "runs" / "r1" / "record.json", "\ud83d")
    assert [mode(path) for path in (state, state / "runs", state / "runs/r1")] == [0o700] * 3
    assert mode(state / "runs/r1/record.json") == 0o600
    run_command._unexpected(run_command.Session(), ValueError("x"), ["drift"])
    [log] = (state / "errors").iterdir()
    assert (mode(log), mode(log.parent)) == (0o600, 0o700)


# ---------------------------------------------------------------- moments


def test_a_run_of_the_future_is_not_the_newest(store: Store) -> None:
    store.append(record("now"))
    store.append(record("future", started_at=FUTURE))
    assert [run.run_id for run in store.runs()] == ["now", "future"]
    assert [run.run_id for run in store.runs(limit=1)] == ["now"]
    assert store.get("last").run_id == "now"


def test_where_there_is_no_other_it_is_shown(store: Store) -> None:
    store.append(record("future", started_at=FUTURE))
    assert [run.run_id for run in store.runs("sim:t4")] == ["future"]
    assert store.get("last").run_id == "future"


def test_runs_of_the_future_take_no_place_of_those_that_are_kept(store: Store) -> None:
    for number in range(3):
        store.append(record(f"future{number}", started_at=FUTURE))
        store.append(record(f"r{number}", started_at=f"2026-01-0{number + 1}T10:00:00+00:00"))
    assert store.prunable("2026-06-01T00:00:00+00:00", keep_last=3) == []


def test_a_figure_of_the_future_moves_no_window(store: Store) -> None:
    for day in range(1, 12):
        store.append(measured(f"r{day}", 200.0 - 5 * day, day=day))
    store.append(measured("future", 200.0, started_at=FUTURE))
    newest = store.newest_figure("gpu-1")
    assert newest is not None
    found = trend.trends(store.figures("gpu-1", trend.begin(newest, 30)))
    assert trend.verdict(found) is trend.Direction.DOWN


@pytest.mark.parametrize(
    "moment", ["yesterday", "", "12026-11-19T02:30:00+00:00", "0001-01-01T00:00:00+00:00", "\ud83d"]
)
def test_a_trend_passes_over_what_was_never(moment: str) -> None:
    def one(at: str, value: float) -> trend.Measurement:
        return trend.Measurement(at, "r", "u", "gemm", "v", "fp16", value, records.Source.MEASURED)

    nights = [one(f"2026-11-{day:02d}T02:30:00+00:00", 200.0 - 5 * day) for day in range(1, 12)]
    found = trend.trends([*nights, one(moment, 1.0)])
    assert [each.direction for each in found] == [trend.Direction.DOWN]
    trend.begin(moment, 30)


@pytest.mark.parametrize("value", [1e308, -1e308, float("nan"), float("inf"), 0.0, 5e-324])
def test_a_trend_of_figures_that_no_machine_measures(value: float) -> None:
    for values in ([value] * 10, [value, 1e308] * 5, [value, -1e308] * 5, [1.0, value] * 5):
        days = [f"2026-11-{day:02d}T02:30:00+00:00" for day in range(1, 11)]
        made = [
            trend.Measurement(at, "r", "u", "g", "v", "f", v, records.Source.MEASURED)
            for at, v in zip(days, values, strict=True)
        ]
        assert trend.verdict(trend.trends(made)) in trend.Direction


def test_a_comparison_with_nothing() -> None:
    assert (
        comparison._of_probe("gpu 0", "gemm", {"v": {"x": 0.0, "y": 1.0}}, {"v": {"x": 1.0, "y": 2.0}})[0][0].figure
        == "y"
    )


@pytest.mark.parametrize("since", [FUTURE, "never", "\x1b[2J", ""])
def test_no_date_of_a_wrong_clock_is_carried_on(since: str) -> None:
    bad = dataclasses.replace(hostilerecords.BAD, since=since)
    [found] = drift.dated([hostilerecords.BAD], hostilerecords.found(bad), "2026-11-22T02:30:00+00:00")
    assert found.since == "2026-11-22T02:30:00+00:00"


# ---------------------------------------------------------------- what is put in

STORED = {
    "a run id of half a character": lambda: record("a\ud83d"),
    "a run id with a NUL": lambda: record("a\0b"),
    "a host of half a character": lambda: record(host="\ud83d"),
    "a moment of half a character": lambda: record(started_at="\ud83d"),
    "an exit code of 5000 digits": lambda: record(exit_code=10**400),
    "a command of half a character": lambda: record(command="\ud83d"),
    "a summary of half a character": lambda: record(verdict=records.Verdict(records.Status.FAIL, "\ud83d\0", ())),
}


@pytest.mark.parametrize("name", STORED)
def test_what_is_stored_comes_back_in_the_list(store: Store, name: str) -> None:
    made: records.RunRecord = STORED[name]()
    store.append(made)
    [run] = store.runs()
    run.run_id.encode()
    assert store.host_of(run.run_id)


@pytest.mark.parametrize("run_id", ["\ud83d", "a\0b", "%", "_", "'; DROP TABLE runs; --", "\x1b[2J"])
def test_an_id_that_is_none_is_not_found(store: Store, run_id: str) -> None:
    store.append(record())
    with pytest.raises(errors.UsageError, match="no run") as caught:
        store.get(run_id)
    assert caught.value.explain().replace("\n", "").isprintable()
    assert len(store.runs()) == 1


# ---------------------------------------------------------------- secrets

URLS = {
    "plain": "postgresql://me:hunter2@db.example/gpuprep",
    "an @ in it": "postgresql://me:hun@hunter2@db.example/gpuprep",
    "a slash and a colon": "postgresql://me:a/b:hunter2@db.example/gpuprep",
    "encoded": "postgresql://me:%68unter2@db.example/gpuprep",
    "in the query": "postgresql://db.example/gpuprep?user=me&password=hunter2",
    "another driver": "postgresql+psycopg://me:hunter2@db.example/gpuprep",
    "a blank": "postgresql://me:hunter2 hunter2@db.example/gpuprep",
    "no user": "postgresql://:hunter2@db.example/gpuprep",
}
SECRETS = ("hunter2", "%68unter2")
PASSWORD = re.compile("://[^:/]*:(.*)@|password=([^&]*)")


def _clean(text: str) -> None:
    assert not any(secret in text for secret in SECRETS), text


@pytest.mark.parametrize("name", URLS)
def test_interrupted_says_no_password(state: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:  # noqa: ARG001
    run_command.say_interrupted(["history", "--store", URLS[name]])
    run_command.say_interrupted(["history", f"--store={URLS[name]}"])
    said = capsys.readouterr().err
    _clean(said)
    assert "db.example" in said, "the rest of the URL stays"


@pytest.mark.parametrize("how", ["argument", "one word", "environment"])
@pytest.mark.parametrize("name", URLS)
def test_an_error_log_holds_no_password(
    state: Path, monkeypatch: pytest.MonkeyPatch, name: str, how: str, capsys: pytest.CaptureFixture[str]
) -> None:
    url = URLS[name]
    whole = PASSWORD.search(url)
    assert whole is not None
    secret = unquote(whole[1] or whole[2])
    assert "hunter2" in secret

    def broken(*_: object, **__: object) -> None:
        raise ValueError(f"could not use {url}: conninfo password='{secret}' and {secret}")

    monkeypatch.setattr(psycopg, "connect", broken)
    words = {"argument": ["--store", url], "one word": [f"--store={url}"], "environment": []}[how]
    if how == "environment":
        monkeypatch.setenv("GPUPREP_STORE", url)
    assert run_command.run(cli, ["history", "list", "--json", *words]) == 3
    [log] = (state / "errors").iterdir()
    said = capsys.readouterr()
    _clean(said.out + said.err)
    _clean(log.read_text())


# What people type in a hurry: no URL, so nobody knows where the password ends.
NO_URLS = {
    "no host": "postgresql://me:hunter2", "one slash": "postgresql:/me:hunter2@h/db",
    "no slash": "postgresql:me:hunter2@h/db", "three slashes": "postgresql:///me:hunter2@h/db",
    "no scheme": "me:hunter2@h/db", "no colon": "postgresql//me:hunter2@h", "no user": "hunter2@h",
    "the port is one": "postgresql://h:hunter2/db", "a port with letters": "postgresql://me:%68unter2@h:5x/db",
    "a colon as %3A": "postgresql://me%3Ahunter2@h:x/db", "a blank": "postgresql: //me:hunter2@h/db",
    "no colon in front of it": "postgresql://me hunter2@h", "an address that does not end": "postgresql://me:hunter2@[::1/db",
    "another database": "mysql://me:hunter2", "backslashes": r"postgresql:\\me:hunter2@h/db",
    "libpq's words": "host=h user=me password=hunter2", "in the query": "postgresql:/h/db?password=hunter2",
    "Java's": "jdbc:postgresql://h/db?user=me&password=hunter2",
    "a file's": "sqlite:///me:hunter2@h/none.db", "an @ in it": "postgresql://me:a@b:hunter2@h:99x/db",
}  # fmt: skip


@pytest.mark.parametrize("name", NO_URLS)
def test_what_is_no_url_shows_no_password(
    state: Path, monkeypatch: pytest.MonkeyPatch, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    url, settings = NO_URLS[name], state.parent.parent / "config/gpuprep/config.yml"

    def told(*words: str) -> None:
        masking._known.clear()
        assert run_command.run(cli, [*words]) in (0, 2, 3)

    run_command.say_interrupted(["history", "--store", url])
    run_command.say_interrupted(["history", f"--store={url}"])
    told("history", "list", "--json", "--store", url)
    told("version", f"--store={url}")
    monkeypatch.setenv("GPUPREP_STORE", url)
    told("status")
    told("no-such-command", url.replace(" ", ""))
    run_command._unexpected(run_command.Session(), ValueError(f"could not use {url}"), ["status"])
    monkeypatch.delenv("GPUPREP_STORE")
    settings.parent.mkdir(parents=True)
    settings.write_text(f"store: {json.dumps(url)}\nmirrors: {{ffmpeg: 'https:/me:hunter2@h'}}\n")
    told("status")
    settings.write_text(f"store: {json.dumps(url)}\n")
    told("history", "list")
    said = capsys.readouterr()
    _clean(said.out + said.err)
    for log in (state / "errors").iterdir():
        _clean(log.read_text())


def test_a_short_password_is_hidden_in_its_place(state: Path, capsys: pytest.CaptureFixture[str]) -> None:  # noqa: ARG001
    for url in ("postgresql://u:Pw", "postgresql:/u:Pw@h/db"):
        run_command.say_interrupted(["history", "--store", url])
        assert run_command.run(cli, ["history", "list", "--store", url]) == 2
    said = capsys.readouterr().err
    assert "Pw" not in said
    assert "--store postgresql:***: this is no URL of a database" in said


# What a user typed where another word belongs; {} is the URL.
ASTRAY = (
    "{}", "status {}", "validate h {}", "report {} --json", "compare x {}", "history trend --nights {}",
    "status --stroe={}", "plan h --profile {}", "history list --host {}", "history forget {}", "drift last {} -v",
    "init h -- {}", "baseline show {}", "profiles check {}", "explain 4x4x4 --gpu {}",
    "trace record --wait {}", "codec check {}",
)  # fmt: skip


@pytest.mark.parametrize("words", ASTRAY)
def test_a_password_typed_as_a_word_of_another_command_is_not_printed(
    state: Path, capsys: pytest.CaptureFixture[str], words: str
) -> None:
    for url in [*URLS.values(), *(url for name, url in NO_URLS.items() if name != "no user")]:
        masking._known.clear()
        typed = [word.format(url) for word in words.split()]
        assert run_command.run(cli, typed) in (2, 3), typed
        said = capsys.readouterr()
        assert not any(secret in said.out + said.err for secret in SECRETS), (typed, said)
    assert not (state / "errors").exists(), "no internal error"


@pytest.mark.parametrize("word", [
    "me@h:22", "me@h1:22,me@h2:22", "h1:22,me@h2", "[::1]:22", "ssh://me@h:22", "web:&gpu", "me@[::1]:22", "https://me@h/x",
    "fan replaced: ask bob@example.com", "moved to postgres: see ticket 5", "4096x4096x4096", "/mnt/a@b:c/t.json",
])  # fmt: skip
def test_what_is_no_password_is_not_refused(state: Path, capsys: pytest.CaptureFixture[str], word: str) -> None:  # noqa: ARG001
    assert run_command.run(cli, ["status", word, "--no-such-option"]) == 2
    assert "no-such-option" in capsys.readouterr().err
    assert masking.misplaced_password(["status", word]) is None


@pytest.mark.parametrize("text", [
    "connection to postgresql://me:hunter2@db/x failed", "FATAL: password='hunter2' host=db", "PGPASSWORD=hunter2 psql",
    "sslpassword=hunter2", "postgresql://db/x?sslpassword=hunter2&x=1", "a https://me:hunter2@mirror/x b",
])  # fmt: skip
def test_masked(text: str) -> None:
    _clean(masking.masked(text))
    assert "***" in masking.masked(text)


@pytest.mark.parametrize(
    "text",
    [
        "gpu passed = 5",
        "http://h:8080/a",
        "x: y@z",
        "a:b@c",
        "passes 3 of 4",
        "run postgres:16 and mysql:8.0 (postgres: x)",
        "the store of runs postgresql://me@h:5432/gpuprep: gone, postgresql://h/x.",
        "/var/run/postgresql/.s.PGSQL.5432",
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    assert masking.masked(text) == text


def test_a_driver_that_quotes_the_password_is_masked(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: ARG001
    def refuse(*_: object, **__: object) -> None:
        raise psycopg.OperationalError("no such user: me with hunter2\nmore")

    monkeypatch.setattr(psycopg, "connect", refuse)
    with pytest.raises(errors.StoreError) as caught:
        Store.open(URLS["plain"])
    _clean(caught.value.explain())


@pytest.mark.usefixtures("state")
def test_a_word_of_the_command_line_that_is_wrong_is_quoted_without_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command.run(cli, ["report", "last", URLS["plain"], "\x1b[2J"]) == 2
    said = capsys.readouterr()
    _clean(said.out + said.err)
    assert "\x1b" not in said.err
    assert isinstance(cli, click.Group)
