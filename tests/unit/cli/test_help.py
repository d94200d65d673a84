"""help, version and status: what a user types to find out."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path

import click
import pytest
from commandline import own_folders
from records_for_tests import record
from shellsfortests import offered

from gpuprep import __version__, records
from gpuprep.cli import cli, run_command
from gpuprep.store import Store

Answer = tuple[int, str, str]


@pytest.fixture
def gpuprep(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Answer]:
    own_folders(monkeypatch, tmp_path)

    def run(*words: str) -> Answer:
        code = run_command.run(cli, list(words))
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


# ---------------------------------------------------------------- help


@pytest.mark.parametrize(("group", "default"), [("drift", "check"), ("history", "list")])
def test_the_help_of_a_group_shows_what_its_default_takes(
    gpuprep: Callable[..., Answer], group: str, default: str
) -> None:
    page = gpuprep(group, "--help")[1]
    inner = gpuprep(group, default, "--help")[1]
    options = [line for line in inner.partition("Options:\n")[2].splitlines() if line.startswith("  -")]
    assert len(options) > 4
    assert all(line in page for line in options)
    for name in (cli.get_command(click.Context(cli), group)).commands:  # type: ignore[union-attr]
        assert f"\n  {name} " in page
    assert page.startswith(f"Usage: gpuprep {group} [OPTIONS]")


@pytest.mark.parametrize(
    "words", [(), ("drift",), ("drift", "schedule"), ("explain",), ("history", "trend"), ("help",)]
)
def test_help_is_the_same_as_the_option(gpuprep: Callable[..., Answer], words: tuple[str, ...]) -> None:
    assert gpuprep("help", *words) == gpuprep(*words, "--help")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("drft",), "Did you mean 'drift'?"),
        (("history", "foo"), "No such command 'foo'"),
        (("explain", "x"), "'gpuprep explain' has no subcommands"),
    ],
)
def test_help_of_what_is_not_there(gpuprep: Callable[..., Answer], words: tuple[str, ...], said: str) -> None:
    code, out, err = gpuprep("help", *words)
    assert (code, out) == (2, "")
    assert said in err


def test_help_is_completed_by_commands() -> None:
    assert offered("help dr") == ["drift"]
    assert offered("help drift sch") == ["schedule"]
    assert offered("help explain ") == []


# ---------------------------------------------------------------- version


def test_version(gpuprep: Callable[..., Answer], tmp_path: Path) -> None:
    assert gpuprep("--version") == (0, f"gpuprep {__version__}\n", "")
    code, out, err = gpuprep("version")
    assert (code, err) == (0, "")
    assert out.startswith(f"gpuprep {__version__}  ")
    assert f"{tmp_path}/state/gpuprep/history.db (not made yet)" in out
    told = json.loads(gpuprep("version", "--json", "--store", "postgresql://me:secret@db/x")[1])
    assert (told["gpuprep"], told["store"]) == (__version__, "postgresql://me:***@db/x")
    assert told["libraries"]["ansible-core"]
    assert told["extras"] == dict.fromkeys(("postgresql", "serve", "trace", "tensorboard"), True)
    assert not (tmp_path / "state").exists(), "nothing is made"


def test_version_where_the_settings_are_wrong(gpuprep: Callable[..., Answer], tmp_path: Path) -> None:
    (tmp_path / "config" / "gpuprep").mkdir(parents=True)
    (tmp_path / "config" / "gpuprep" / "config.yml").write_text("nonsense: 1\n")
    code, out, err = gpuprep("version")
    assert code == 0
    assert "nonsense" in err
    assert "ansible-core" in out


# ---------------------------------------------------------------- status


def a_run(
    host: str, number: int, status: records.Status | None, days: float = 0.1, **changes: object
) -> records.RunRecord:
    when = (datetime.now(timezone.utc) - timedelta(days=days)).isoformat(timespec="seconds")
    made = record()
    assert made.verdict is not None
    verdict = dataclasses.replace(made.verdict, status=status, summary=f"{host} {number}") if status else None
    fields: dict[str, object] = {
        "run_id": f"20261120-{number:06d}-abcdef", "host": host, "command": "drift", "started_at": when,
        "ended_at": when, "verdict": verdict, "exit_code": 0, "error": None, **changes,
    }  # fmt: skip
    return dataclasses.replace(made, **fields)  # type: ignore[arg-type]


def test_status_is_the_newest_run_of_each_host_the_worst_first(gpuprep: Callable[..., Answer], store_url: str) -> None:
    store = Store.open(store_url)
    for made in (
        a_run("good", 1, records.Status.FAIL, days=3),
        a_run("good", 2, records.Status.PASS, days=1),
        a_run("bad", 3, records.Status.PASS, days=3),
        a_run("bad", 4, records.Status.FAIL, days=2.5),
        a_run("gone", 5, None, exit_code=3, error="gone: no answer"),
        a_run("broke", 6, None, exit_code=4, error="a step failed"),
        a_run("good", 7, None, days=0.5, command="schedule"),
        a_run("other-name", 8, records.Status.WARN, days=4),
        a_run("clock", 9, records.Status.PASS, days=1),
        a_run("clock", 10, records.Status.FAIL, days=-900),
        a_run("ahead", 11, records.Status.WARN, days=-900),
    ):
        store.append(made)
    store.join("other-name", "good", "2026-11-20T10:00:00+00:00")
    store.close()
    code, out, err = gpuprep("status", "--store", store_url)
    assert (code, err) == (0, "")
    head, *rows, total = out.splitlines()
    assert head.split() == ["HOST", "RESULT", "COMMAND", "WHEN", "PROFILE", "SUMMARY"]
    assert [row.split()[:2] for row in rows] == [
        ["broke", "FAILED"], ["bad", "FAIL"], ["gone", "UNKNOWN"],
        ["ahead", "WARN"], ["clock", "PASS"], ["good", "PASS"],
    ]  # fmt: skip
    assert "2 d ago" in rows[1]
    assert " ? " in rows[3], "a moment in the future has no age"
    counted = "1 FAILED, 1 FAIL, 1 UNKNOWN, 1 WARN, 2 PASS; 1 not checked for more than two days"
    assert total == f"6 hosts under 7 names: {counted}"
    document = json.loads(gpuprep("status", "--json", "--store", store_url)[1])
    assert [one["host"] for one in document["hosts"]] == ["broke", "bad", "gone", "ahead", "clock", "good"]
    assert document["hosts"][1]["run"]["run_id"] == "20261120-000004-abcdef"
    one = gpuprep("status", "other-name", "--store", store_url)[1].splitlines()
    assert one[1].split()[:2] == ["other-name", "PASS"], "the newest run of the host, under the name that was asked for"
    assert one[-1] == "Report: gpuprep report 20261120-000002-abcdef"


def test_status_of_nothing(gpuprep: Callable[..., Answer]) -> None:
    code, out, err = gpuprep("status")
    assert (code, out) == (0, "")
    assert "no host was checked yet" in err
    code, out, err = gpuprep("status", "nobody")
    assert (code, out) == (2, "")
    assert "no run of nobody is recorded" in err
    assert json.loads(gpuprep("status", "--json")[1])["hosts"] == []


def test_simulated_hosts_say_so_and_hostile_words_stay_in_their_row(
    gpuprep: Callable[..., Answer], tmp_path: Path
) -> None:
    url = f"sqlite:///{tmp_path}/one.db"
    store = Store.open(url)
    made = a_run("a\x1b[2J\nb", 1, records.Status.PASS)
    store.append(made)
    store.close()
    out = gpuprep("status", "--store", url)[1]
    assert "\x1b" not in out
    assert len(out.splitlines()) == 3
    assert ("simulated: " in out) == (made.source.value == "simulated")
