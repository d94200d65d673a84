"""drift schedule, unschedule and last as a user meets them: pages, documents, exit codes, refusals."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from commandline import Shell, own_folders
from nightlymachine import T4, Machine
from records_for_tests import record

from gpuprep import records
from gpuprep.agent import host_paths
from gpuprep.nightly import nightlyplan
from gpuprep.workflows import runs


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    own_folders(monkeypatch, tmp_path)
    played = Machine()
    monkeypatch.setattr(runs, "Host", played.host())
    return played


@pytest.fixture
def run(machine: Machine, capsys: pytest.CaptureFixture[str]) -> Shell:  # noqa: ARG001  its folders are needed
    return Shell(capsys)


def result(**changed: Any) -> str:
    made = record("20261121-023107-0a1b2", command="drift", host="web1")
    return records.to_json(dataclasses.replace(made, ended_at="2026-11-21T02:31:08+00:00", **changed))


def test_schedule_says_when_and_what_was_written(run: Shell) -> None:
    wish = ["drift", "schedule", "web1", "--profile", "t4", "-q"]
    code, out, err = run(*wish)
    assert (code, err) == (0, "")
    first, *rest = out.splitlines()
    assert first == (
        "web1: checks itself every night at 02:30 and up to 30 minutes later, by its own clock;"
        " next at 2026-11-22T02:41:07+00:00"
    )
    assert rest[:3] == [
        f"  written: {path}"
        for path in (host_paths.DRIFT_PLAN, host_paths.DRIFT_SERVICE_FILE, host_paths.DRIFT_TIMER_FILE)
    ]
    assert rest[3].startswith("  note: no run in this store has certified web1; it passes now")
    assert "  nothing to change\n" in run(*wish)[1]
    history = run("history")[1]
    assert history.count("schedule") == 2
    assert "checks itself every night at 02:30" in " ".join(run("report", "last")[1].split())


def test_options_go_before_the_profile(run: Shell, machine: Machine) -> None:
    options = ["--at", "04:05", "--random-delay", "0", "--probe", "quick"]
    code, out, _ = run("drift", "schedule", "web1", "--profile", "t4", "-q", "--json", *options)
    document = json.loads(out)
    assert (code, document["exit_code"]) == (0, 0)
    left = records.from_json_value(records.RunRecord, document["runs"][0]).nightly
    assert left is not None
    assert (left.at, left.random_delay_minutes, left.probe) == ("04:05", 0, "quick")
    plan = nightlyplan.from_text(machine.files[host_paths.DRIFT_PLAN])
    assert (plan.drift.at, plan.drift.probe, plan.drift.keep) == ("04:05", "quick", T4.drift.keep)
    assert plan.profile.sha256 == T4.sha256


def test_unschedule_needs_no_profile_and_says_what_stays(run: Shell) -> None:
    run("drift", "schedule", "web1", "--profile", "t4")
    code, out, err = run("drift", "unschedule", "web1", "-q")
    assert (code, err) == (0, "")
    assert out.startswith(f"web1: does not check itself any more\n  removed: {host_paths.DRIFT_TIMER_FILE}\n")
    assert "  note: the results stay in /var/lib/gpuprep/drift\n" in out


@pytest.mark.parametrize("words", [["drift", "last"], ["drift", "check", "--last"]])
def test_last_ends_with_what_the_host_found(run: Shell, machine: Machine, words: list[str]) -> None:
    for code, status in {0: records.Status.PASS, 1: records.Status.FAIL, 3: records.Status.UNKNOWN}.items():
        findings = (records.Finding("driver", "held", status, "", ""),)
        verdict = records.Verdict(status, f"{status.value}: profile t4, 1 checks", findings)
        run_id = f"20261121-02310{code}-0a1b2"
        machine.files[host_paths.DRIFT_LAST] = result(run_id=run_id, exit_code=code, verdict=verdict, findings=findings)
        ended, out, err = run(*words, "web1", "-q")
        assert (ended, err) == (code, "")
        assert "web1" in out
    assert run("history", "web1")[1].count("drift") == 3


def test_last_of_several_hosts_names_no_report_that_is_not_stored(run: Shell) -> None:
    code, out, _ = run("drift", "last", "web1", "web2", "-q")
    assert code == 3
    assert "gpuprep report" not in out
    assert "After that, check again: gpuprep drift last web1 web2" in out


def test_last_without_a_result_is_told_on_stderr_and_names_no_report(run: Shell) -> None:
    code, out, err = run("drift", "last", "web1", "-q")
    assert (code, out) == (3, "UNKNOWN  web1: it has not checked itself yet\n")
    assert err.startswith("Error: web1: it has not checked itself yet\n  what to do: ")
    assert "report:" not in err


def test_a_host_called_like_a_subcommand_can_be_checked(run: Shell, machine: Machine) -> None:
    machine.files[host_paths.DRIFT_LAST] = result()
    assert run("drift", "last", "last", "-q")[0] == 1
    code, out, _ = run("drift", "check", "last", "--profile", "t4", "-q")
    assert code == 0
    assert out.splitlines()[-1].startswith("PASS  last (simulated), t4: ")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["schedule", "web1", "--profile", "t4", "--at", "24:00"],
            "'24:00' is no time of day; allowed: 00:00",
        ),
        (["schedule", "web1", "--profile", "t4", "--at", "2:30"], "'2:30' is no time of day"),
        (["schedule", "web1", "--profile", "t4", "--at", "02:30\n"], "is no time of day"),
        (["schedule", "web1", "--profile", "t4", "--random-delay", "-1"], "0<=x<=720"),
        (["schedule", "web1", "--profile", "t4", "--probe", "deep"], "'none', 'quick'"),
        (["schedule", "web1"], "`gpuprep drift schedule` needs --profile"),
        (["schedule", "--profile", "t4"], "`gpuprep drift schedule` needs a HOST"),
        (["schedule", "web1", "--profile", "t5"], "t5"),
        (["unschedule"], "`gpuprep drift unschedule` needs a HOST"),
        (["unschedule", "web1", "--profile", "t4"], "No such option"),
        (["last"], "`gpuprep drift last` needs a HOST"),
        (["last", "web1", "--limit", "w*"], "--limit needs an inventory"),
        (["shedule", "web1"], "Did you mean 'schedule'? A host of that name: gpuprep drift check shedule."),
        (["unshedule", "web1"], "Did you mean 'unschedule'?"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_is_wrong_is_said_and_nothing_is_touched(
    run: Shell, machine: Machine, words: Sequence[str], said: str
) -> None:
    code, out, err = run("drift", *words)
    assert (code, out) == (2, "")
    assert said in err
    assert machine.files == {}
    assert machine.script.options == [], "no host was reached"
