"""What a host tells of its nights: forged sections, verdicts that do not fit, ids of others, moments to come, bulk."""

from __future__ import annotations

import dataclasses
import json
import threading
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from nightlymachine import NOW
from records_for_tests import FINDINGS, PASSED, record

from gpuprep import errors, records, remote
from gpuprep.agent import host_paths
from gpuprep.checks import judgement
from gpuprep.records import ids
from gpuprep.store import Store
from gpuprep.workflows import runs, schedule, schedule_state

FAILED = records.Finding("driver", "held", records.Status.FAIL, "held", "not held")
FINE = PASSED.findings


def night(run_id: str = "20261121-023107-0a1b2", **changes: object) -> records.RunRecord:
    made = record(run_id, command="drift", host="x", verdict=PASSED, findings=FINE)
    return dataclasses.replace(made, **{"ended_at": "2026-11-21T02:31:08+00:00", "exit_code": 0, **changes})  # type: ignore[arg-type]


class Answering:
    """A host that answers with sections; those under `raw` come as they are, after the first."""

    name = "gpu-1"

    def __init__(self, sections: dict[str, str] | None = None, raw: str = "") -> None:
        usual = {
            "hostname": "t4",
            "boot": "b",
            "now": NOW,
            "timer": "",
            host_paths.DRIFT_LAST: records.to_json(night()),
        }
        self.sections = {**usual, **(sections or {})}
        self.raw = raw

    def __enter__(self) -> Answering:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def run(self, command: str, **_: object) -> remote.CommandResult:
        mark = command.partition("'")[2].partition("'")[0]
        told = "".join(f"\n{mark} {name}\n{text}\n" for name, text in self.sections.items())
        return remote.CommandResult(0, told + self.raw.replace("MARK", mark), "")


@pytest.fixture
def ask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., records.RunRecord]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    store = Store.open(f"sqlite:///{tmp_path}/history.db")
    told: list[str] = []

    def last(host: Answering, name: str = "gpu-1") -> records.RunRecord:
        monkeypatch.setattr(runs, "Host", lambda *_, **__: host)
        line = runs.RunContext(lambda _, progress: told.append(progress.detail), store, threading.Event().is_set)
        return schedule.last(remote.Target(name), runs.Options(), line)

    last.store, last.told = store, told  # type: ignore[attr-defined]
    return last


# ---------------------------------------------------------------- the answer

FORGED = {
    "a section of before": "\n== now\n2999-01-01T00:00:00+00:00\n",
    "a section in a result": f"\n== {host_paths.DRIFT_LAST}\n{{}}\n",
    "a mark of another call": f"\n== {'0' * 32} now\n2999-01-01T00:00:00+00:00\n",
}


@pytest.mark.parametrize("attack", FORGED)
def test_a_file_on_the_host_makes_no_section(attack: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the host's real shell."""
    path = tmp_path / "last.json"
    path.write_text("{}" + FORGED[attack])
    monkeypatch.setattr(schedule_state, "READ", schedule_state.READ.replace(host_paths.DRIFT_LAST, str(path)))
    with remote.Host(remote.Target("here", local=True)) as host:
        found = schedule_state.read(host)
    assert found.now.year < 2900
    assert found.text(str(path)) == "{}" + FORGED[attack]


def test_each_call_has_a_mark_of_its_own() -> None:
    commands: list[str] = []

    class Noting(Answering):
        def run(self, command: str, **options: object) -> remote.CommandResult:
            commands.append(command.partition("\n")[0])
            return super().run(command, **options)

    for _ in range(2):
        schedule_state.read(Noting())  # type: ignore[arg-type]
    assert len(set(commands)) == 2


ANSWERS: dict[str, tuple[dict[str, str], str, str]] = {
    "a section twice": ({}, "\nMARK now\n2026-11-21T11:00:00+00:00\n", "answers twice"),
    "no time": ({"now": ""}, "", "is no time of day"),
    "a time that is none": ({"now": "yesterday"}, "", "'yesterday' is no time of day"),
    "a time without a zone": ({"now": "2026-11-21T11:00:00"}, "", "is no time of day"),
    "a year that is none": ({"now": "0001-01-01T00:00:00+00:00"}, "", "is no time of day"),
    "a time with an escape": ({"now": "\x1b[2J"}, "", "is no time of day"),
    "a section of 17 MB": ({host_paths.DRIFT_LAST: "x" * 17_000_000}, "", "is larger than 16 MiB"),
}


@pytest.mark.parametrize("attack", ANSWERS)
def test_an_answer_that_is_none_is_that_hosts_error(attack: str, ask: Callable[..., records.RunRecord]) -> None:
    sections, raw, why = ANSWERS[attack]
    with pytest.raises(errors.HostError, match=why) as caught:
        schedule_state.read(Answering(sections, raw))  # type: ignore[arg-type]
    assert caught.value.what.isprintable()
    found = ask(Answering(sections, raw))
    assert found.exit_code == 3
    assert found.error is not None


def test_more_nights_than_the_cap_are_not_kept() -> None:
    nights = {
        f"{host_paths.DRIFT_RESULTS}/results/20261120-02{n // 60:02d}{n % 60:02d}-0a1b2.json": "{}" for n in range(500)
    }
    found = schedule_state.read(Answering(nights))  # type: ignore[arg-type]
    assert len(found.kept) == schedule_state.MOST_KEPT
    large = dict.fromkeys(list(nights)[:4], "x" * 10_000_000)
    assert len(schedule_state.read(Answering(large)).kept) == 2  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "path",
    [f"{host_paths.DRIFT_RESULTS}/results/../../x.json", f"{host_paths.DRIFT_RESULTS}/results/a/b.json", "/etc/passwd"],
)
def test_a_section_that_nobody_asked_for_is_no_night(path: str) -> None:
    assert schedule_state.read(Answering({path: "{}"})).kept == {}  # type: ignore[arg-type]


# ---------------------------------------------------------------- the verdict

PASS, FAIL, UNKNOWN = records.Status.PASS, records.Status.FAIL, records.Status.UNKNOWN


def says(status: records.Status, summary: str, *findings: records.Finding) -> dict[str, object]:
    return {"verdict": records.Verdict(status, summary, findings), "findings": findings}


VERDICTS: dict[str, tuple[dict[str, object], records.Status, int]] = {
    "PASS with a FAIL among its findings": (says(PASS, "PASS: profile t4", FAILED), FAIL, 1),
    "PASS, and a FAIL beside the verdict": ({"findings": (*FINE, FAILED)}, FAIL, 1),
    "PASS with nothing checked": (says(PASS, "PASS: profile t4, 9 checks"), UNKNOWN, 3),
    "FAIL, and all passed": (says(FAIL, "FAIL: x", *FINE), UNKNOWN, 3),
    "a summary that says PASS of a FAIL": (says(FAIL, "PASS: profile t4", FAILED), FAIL, 1),
    "PASS, and its summary says FAIL as its findings do": (says(PASS, "FAIL: profile t4", FAILED), FAIL, 1),
    "a summary of something else": (says(PASS, "all is well", *FINE), UNKNOWN, 3),
    "an exit code of its own, 1": ({"exit_code": 1}, PASS, 0),
    "an exit code of its own, 130": ({"exit_code": 130}, PASS, 0),
    "exit code 0 of a FAIL": (says(FAIL, "FAIL: profile t4", FAILED), FAIL, 1),
    "exit code 0 with an error": ({"error": "no driver"}, PASS, 3),
}


@pytest.mark.parametrize("attack", VERDICTS)
def test_the_verdict_of_a_host_is_that_of_its_findings(attack: str, ask: Callable[..., records.RunRecord]) -> None:
    told, status, code = VERDICTS[attack]
    said = night(**told)  # type: ignore[arg-type]
    found = ask(Answering({host_paths.DRIFT_LAST: records.to_json(said)}))
    assert found.verdict is not None
    assert (found.verdict.status, found.exit_code) == (status, code)
    assert found.verdict.summary.startswith(status.value)
    if doubted := [one for one in found.findings if one.key == "result.verdict"]:
        assert f"does not follow from its {len(found.findings) - len(doubted)} findings" in found.verdict.summary


def test_no_verdict_and_no_error_is_unknown(ask: Callable[..., records.RunRecord]) -> None:
    found = ask(Answering({host_paths.DRIFT_LAST: records.to_json(night(verdict=None, findings=FINDINGS))}))
    assert (found.exit_code, found.error) == (3, "it ended without a verdict")
    found = ask(Answering({host_paths.DRIFT_LAST: records.to_json(night(verdict=None, error="no driver"))}))
    assert (found.exit_code, found.error) == (3, "no driver")


def test_an_honest_night_stays_as_it_is(ask: Callable[..., records.RunRecord]) -> None:
    assert ask(Answering()) == dataclasses.replace(night(), host="gpu-1")
    assert judgement.believed(night()) == night()


# ---------------------------------------------------------------- whose run, and when


def test_a_host_takes_no_id_of_another_hosts_run(ask: Callable[..., records.RunRecord]) -> None:
    store: Store = ask.store  # type: ignore[attr-defined]
    mine = night()
    ask(Answering({host_paths.DRIFT_LAST: records.to_json(mine)}), "hostile")
    found = ask(Answering({host_paths.DRIFT_LAST: records.to_json(dataclasses.replace(mine, error="mine"))}), "honest")
    assert found.run_id == ids.of_host(mine.run_id, "honest")
    assert store.get(mine.run_id).host == "hostile"
    assert store.get(found.run_id).error == "mine"
    assert {run.host for run in store.runs()} == {"hostile", "honest"}
    assert any("its own is the id of a run of hostile" in told for told in ask.told)  # type: ignore[attr-defined]
    ask(Answering({host_paths.DRIFT_LAST: records.to_json(dataclasses.replace(mine, error="mine"))}), "honest")
    assert len(store.runs()) == 2, "once, however often it is asked"


def test_a_host_takes_no_id_of_a_controllers_run(ask: Callable[..., records.RunRecord]) -> None:
    store: Store = ask.store  # type: ignore[attr-defined]
    ours = record("20261121-023107-0a1b2", command="provision", host="other")
    store.append(ours)
    ask(Answering())
    assert store.get(ours.run_id) == ours


@pytest.mark.parametrize("run_id", ["29990101-000000-00000", "zzz", "last"])
def test_an_id_that_may_become_ours_is_marked_as_the_hosts(run_id: str, ask: Callable[..., records.RunRecord]) -> None:
    found = ask(Answering({host_paths.DRIFT_LAST: records.to_json(night(run_id))}))
    assert found.run_id == ids.of_host(run_id, "gpu-1")
    assert ids.at_host(found.run_id, "gpu-1") == run_id


@pytest.mark.parametrize("field", ["started_at", "ended_at"])
def test_a_host_whose_clock_is_ahead_stores_no_night_of_the_future(
    field: str, ask: Callable[..., records.RunRecord]
) -> None:
    """Its own clock says so, too: only ours tells."""
    later = (datetime.now(timezone.utc) + timedelta(minutes=6)).isoformat(timespec="seconds")
    far = "2999-01-01T00:00:00+00:00"
    for moment in (later, far):
        found = ask(Answering({host_paths.DRIFT_LAST: records.to_json(night(**{field: moment})), "now": moment}))
        assert found.exit_code == 3
        assert "so its present state is not known" in (found.error or "")
    store: Store = ask.store  # type: ignore[attr-defined]
    assert store.runs() == []


def test_a_night_under_the_name_of_another_is_not_stored(ask: Callable[..., records.RunRecord]) -> None:
    path = f"{host_paths.DRIFT_RESULTS}/results/20261119-023107-0a1b2.json"
    ask(Answering({path: records.to_json(night("20261118-023107-0a1b2"))}))
    store: Store = ask.store  # type: ignore[attr-defined]
    assert [run.run_id for run in store.runs()] == [night().run_id]


def test_a_host_does_not_put_its_result_into_a_batch_of_ours(ask: Callable[..., records.RunRecord]) -> None:
    shown = ask(Answering({host_paths.DRIFT_LAST: records.to_json(night(batch_id="20261120-100000-00000"))}))
    store: Store = ask.store  # type: ignore[attr-defined]
    assert (shown.batch_id, [run.batch_id for run in store.runs()]) == ("", [""])


def test_runs_of_the_future_in_an_old_store_come_last(tmp_path: Path) -> None:
    store = Store.open(f"sqlite:///{tmp_path}/history.db")
    far = "2999-01-01T00:00:00+00:00"
    store.append(record("29990101-000000-00000", started_at=far, ended_at=far))
    store.append(record("20261121-023107-0a1b2"))
    assert [run.run_id[:4] for run in store.runs()] == ["2026", "2999"]
    assert [run.run_id[:4] for run in store.runs(limit=1)] == ["2026"]
    assert json.loads(records.to_json(store.get("last")))["run_id"][:4] == "2026"
    store.close()
