"""history, compare and baseline as a user types them, on both databases."""

from __future__ import annotations

import csv
import dataclasses
import hashlib
import io
import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path

import amount
import pytest
from commandline import Shell
from gemmrecords import gemm, gpu, values
from pages import too_wide
from records_for_tests import PASSED, SNAPSHOT, measured, record

from gpuprep import records
from gpuprep.records import ended
from gpuprep.store import Store

pytestmark = pytest.mark.xdist_group("store")


@pytest.fixture
def store(store_url: str) -> Iterator[Store]:
    opened = Store.open(store_url)
    yield opened
    opened.close()


@pytest.fixture
def gpuprep(
    store_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Shell:
    monkeypatch.setenv("GPUPREP_STORE", store_url)
    for name in ("STATE", "CONFIG"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name.lower()))

    return Shell(capsys)


def fill(store: Store, *tflops: float) -> None:
    for day, value in enumerate(tflops, 1):
        store.append(measured(f"run-{day:02d}", value, day=day))


def test_the_list_and_its_subcommands_share_a_name(store: Store, gpuprep: Shell) -> None:
    fill(store, 280.0, 281.0)
    assert gpuprep("history", "list") == gpuprep("history")
    code, out, _ = gpuprep("history", "gpu-1", "--limit", "1")
    assert (code, [line.split()[0] for line in out.splitlines()]) == (0, ["RUN", "run-02"])
    code, _, err = gpuprep("history", "exprot")
    assert (code, "Did you mean 'export'?" in err) == (2, True)
    assert gpuprep("history", "list", "trend")[1:] == ("", "no runs of trend are recorded\n")
    code, out, _ = gpuprep("history", "--help")
    assert (code, all(word in out for word in ("list", "trend", "prune", "forget", "export"))) == (0, True)


def test_a_slide_is_found_and_named(store: Store, gpuprep: Shell) -> None:
    fill(store, *(280.0 * 0.99**night for night in range(20)))
    code, out, err = gpuprep("history", "trend", "gpu-1")
    assert (code, err) == (1, "")
    assert "1 DOWN" in out
    assert "fp16 8192x8192x8192 TN" in out
    code, out, _ = gpuprep("history", "trend", "gpu-1", "--json")
    told = json.loads(out)
    assert (code, told["direction"], told["exit_code"]) == (1, "DOWN", 1)
    assert told["verdict"] == {"status": "FAIL", "summary": "1 DOWN of 1 figures"}
    (one,) = told["trends"]
    assert one["loss_percent"] == pytest.approx(17.0, abs=1.0)
    assert one["nights"] == 20
    assert gpuprep("history", "trend", "gpu-1", "--percent", "30")[0] == 0
    assert gpuprep("history", "trend", "gpu-1", "--nights", "8")[0] == 1


def test_too_few_nights_and_no_figures_are_unknown(store: Store, gpuprep: Shell) -> None:
    fill(store, 280.0, 100.0, 50.0)
    code, out, _ = gpuprep("history", "trend", "gpu-1")
    assert (code, "1 UNKNOWN" in out) == (3, True)
    code, out, err = gpuprep("history", "trend", "nowhere")
    assert (code, out) == (3, "")
    assert "no figures of nowhere" in err
    assert gpuprep("history", "trend", "gpu-1", "--nights", "7")[0] == 2


def test_figures_of_replaced_versions_are_shown_and_do_not_count(store: Store, gpuprep: Shell) -> None:
    fill(store, *(280.0 * 0.97**night for night in range(12)))
    assert gpuprep("history", "trend", "gpu-1")[0] == 1
    newer = dataclasses.replace(SNAPSHOT, source=records.Source.MEASURED, agent_version="99.0.0")
    for day in range(13, 16):
        store.append(measured(f"new-{day}", 280.0, day=day, after=newer))
    code, out, _ = gpuprep("history", "trend", "gpu-1")
    assert (code, "1 UNKNOWN, 1 superseded" in out, "superseded (DOWN)" in out) == (3, True, True)
    assert "does not count" in out
    told = json.loads(gpuprep("history", "trend", "gpu-1", "--json")[1])
    assert [(one["direction"], one["superseded"]) for one in told["trends"]] == [("UNKNOWN", False), ("DOWN", True)]


def test_simulated_figures_say_so(store: Store, gpuprep: Shell) -> None:
    for day in range(1, 11):
        store.append(measured(f"s{day}", 280.0, day=day, source=records.Source.SIMULATED))
    code, out, _ = gpuprep("history", "trend", "gpu-1")
    assert (code, "SIMULATED" in out) == (0, True)


def test_compare_is_0_whatever_differs(store: Store, gpuprep: Shell) -> None:
    fill(store, 280.0, 252.0)
    store.append(record("other", started_at="2026-11-20T00:00:00+00:00"))
    code, out, err = gpuprep("compare", "run-01", "run-02")
    assert (code, err) == (0, "")
    assert "-10.0 %" in out
    code, out, _ = gpuprep("compare", "run-01", "last")
    assert (code, "different hosts: gpu-1 and sim:t4" in out, "FAIL" in out) == (0, True, True)
    assert "packages.held" not in out  # checked by one run alone, and passed there
    assert "packages.held" in gpuprep("compare", "run-01", "last", "-v")[1]
    code, out, _ = gpuprep("compare", "run-01", "run-02", "--json")
    told = json.loads(out)
    assert (code, told["one"]["run_id"], told["two"]["run_id"]) == (0, "run-01", "run-02")
    assert told["comparison"]["figures"][0]["percent"] == pytest.approx(-10.0)
    code, _, err = gpuprep("compare", "run-0", "run-02")
    assert (code, "fits several runs: run-01, run-02" in err) == (2, True)


def test_a_host_is_held_to_the_run_that_was_set(store: Store, gpuprep: Shell) -> None:
    code, out, _ = gpuprep("baseline", "show", "gpu-1")
    assert (code, "no run that passed" in out) == (3, True)
    fill(store, 280.0, 270.0)
    assert "run-02" in gpuprep("baseline", "show", "gpu-1")[1]
    code, out, _ = gpuprep("baseline", "set", "gpu-1", "run-01")
    assert (code, "is compared with run run-01" in out, "1 figures" in out) == (0, True, True)
    certified = store.certified("gpu-1")
    assert certified is not None
    assert certified.run_id == "run-01"
    code, out, _ = gpuprep("baseline", "show", "gpu-1", "--json")
    told = json.loads(out)
    assert (code, told["certified"]["run_id"], told["figures"][0]["value"]) == (0, "run-01", 280.0)
    assert gpuprep("baseline", "set", "gpu-1")[0] == 0
    assert "270" in gpuprep("baseline", "show", "gpu-1")[1]
    assert gpuprep("baseline", "clear", "gpu-1", "--probe", "gemm")[1] == "gpu-1: 1 figures forgotten\n"
    assert gpuprep("baseline", "clear", "gpu-1")[1] == "gpu-1: 0 figures and the run that was set forgotten\n"
    assert gpuprep("baseline", "clear", "gpu-1", "--probe", "warp")[0] == 2


def test_what_no_host_can_be_held_to_is_refused(store: Store, gpuprep: Shell) -> None:
    fill(store, 280.0)
    store.append(measured("failed", 280.0, day=2, verdict=record().verdict, exit_code=1))
    store.append(measured("stopped", 280.0, day=2, verdict=None, exit_code=130))
    store.append(measured("simulated", 280.0, day=3, source=records.Source.SIMULATED))
    store.append(measured("elsewhere", 280.0, day=4, host="gpu-2"))
    store.append(measured("blind", 280.0, day=5, before=None, after=None))
    for run, said in {
        "failed": "ended FAIL",
        "stopped": "ended without a verdict",
        "simulated": "a simulated GPU, and gpu-1 has a real one",
        "elsewhere": "is a run of gpu-2, not of gpu-1",
        "blind": "no facts",
        "nosuch": "no run 'nosuch'",
    }.items():
        code, out, err = gpuprep("baseline", "set", "gpu-1", run)
        assert (code, out) == (2, "")
        assert said in err
        assert len([line for line in err.splitlines() if line.startswith("Error:")]) == 1
    assert gpuprep("baseline", "set", "nowhere")[0] == 2
    assert store.host_baseline("gpu-1").set_at == ""


def test_a_run_that_something_spoke_against_needs_a_reason(store: Store, gpuprep: Shell) -> None:
    fill(store, 280.0)
    note = "gpu-1 is still compared with run run-01 of 2026-11-01: this run did not measure gemm"
    held_back = records.HistoryFacts(certifies=False, held_to="run-01", notes=(note,))
    store.append(measured("run-02", 280.0, day=2, history=held_back))
    assert "run-01" in gpuprep("baseline", "show", "gpu-1")[1]
    for words in (("run-02",), ("last",)):
        code, _, err = gpuprep("baseline", "set", "gpu-1", *words)
        assert code == 2
        assert "did not become the certified run by itself" in err
        assert "gpuprep baseline set gpu-1 run-02 --reason 'WHY'" in err
    code, out, _ = gpuprep("baseline", "set", "gpu-1", "last", "--reason", "it is so")
    assert (code, "compared with run run-02" in out, "before, to run run-01; why: it is so" in out) == (0, True, True)
    assert "set by hand at" in gpuprep("baseline", "show", "gpu-1")[1]
    told = json.loads(gpuprep("baseline", "show", "gpu-1", "--json")[1])
    assert (told["certified"]["run_id"], told["certified"]["reason"]) == ("run-02", "it is so")
    assert gpuprep("baseline", "set", "gpu-1", "last", "--reason", "x" * 1001)[0] == 2
    gpuprep("baseline", "clear", "gpu-1")
    assert "run-01" in gpuprep("baseline", "show", "gpu-1")[1]


def test_names_are_joined_and_parted(store: Store, gpuprep: Shell) -> None:
    assert gpuprep("history", "names")[0] == 0
    fill(store, 280.0)
    code, _, err = gpuprep("history", "join", "gpu-1", "10.0.0.7")
    assert (code, "no run of 10.0.0.7 is recorded" in err) == (2, True)
    assert gpuprep("history", "join", "gpu-1", "gpu-1")[0] == 2
    store.append(measured("other", 270.0, day=2, host="10.0.0.7"))
    assert gpuprep("history", "join", "gpu-1", "10.0.0.7")[1] == "one host from now on: gpu-1, 10.0.0.7\n"
    assert "joined by you" in gpuprep("history", "names")[1]
    assert "also called gpu-1" in gpuprep("baseline", "show", "10.0.0.7")[1]
    assert len(json.loads(gpuprep("history", "gpu-1", "--json")[1])["runs"]) == 2
    assert gpuprep("baseline", "set", "gpu-1", "other")[0] == 0
    told = json.loads(gpuprep("history", "names", "--json")[1])["names"]
    assert [(one["name"], one["host"], one["by_hand"]) for one in told] == [
        ("10.0.0.7", "10.0.0.7", "joined"), ("gpu-1", "10.0.0.7", "joined"),
    ]  # fmt: skip
    code, out, _ = gpuprep("history", "part", "gpu-1")
    assert (code, out) == (0, "gpu-1 is a host of its own; it was joined with 10.0.0.7\n")
    assert len(json.loads(gpuprep("history", "gpu-1", "--json")[1])["runs"]) == 1
    assert gpuprep("history", "part", "nobody")[0] == 2


def test_a_simulated_host_can_be_held_to_a_simulated_run(store: Store, gpuprep: Shell) -> None:
    store.append(record("s1", command="validate", verdict=PASSED, exit_code=0))
    code, out, _ = gpuprep("baseline", "set", "sim:t4", "s1")
    assert (code, "simulated: its figures are not used for comparison" in out) == (0, True)
    assert store.host_baseline("sim:t4").set_at


def test_prune_says_first_and_deletes_then(store: Store, gpuprep: Shell, tmp_path: Path) -> None:
    now = datetime.now(timezone.utc)
    for days in (400, 300, 1):
        store.append(record(f"d{days}", started_at=(now - timedelta(days=days)).isoformat(timespec="seconds")))
    outside = tmp_path / "state/kept"
    store.append(record("../../kept", started_at="2020-01-01T00:00:00+00:00"))
    logs = tmp_path / "state/gpuprep/runs"
    for folder in (logs / "d400", logs / "d300", outside):
        folder.mkdir(parents=True)
        (folder / "ansible.log").write_text("said")
    prune = ("history", "prune", "--keep-days", "365", "--keep-last", "1")
    code, _, err = gpuprep("history", "prune")
    assert (code, "--keep-days" in err, "history keep 365" in err) == (2, True, True)
    code, out, _ = gpuprep(*prune, "--dry-run")
    assert (code, "2 runs" in out, "would be deleted, and 1 log folders" in out) == (0, True, True)
    assert len(store.runs()) == 4
    code, out, _ = gpuprep(*prune, "--json")
    assert (code, json.loads(out)["runs"], json.loads(out)["log_folders"]) == (0, ["../../kept", "d400"], 1)
    assert [run.run_id for run in store.runs()] == ["d1", "d300"]
    assert sorted(path.name for path in logs.iterdir()) == ["d300"]
    assert (outside / "ansible.log").read_text() == "said"  # an id is no path
    (tmp_path / "config/gpuprep").mkdir(parents=True)
    (tmp_path / "config/gpuprep/config.yml").write_text("keep_days: 200\n")
    assert gpuprep("history", "prune", "--keep-last", "1")[0] == 0
    assert [run.run_id for run in store.runs()] == ["d1"]


def test_what_is_kept_is_shown_and_set(store: Store, gpuprep: Shell, tmp_path: Path) -> None:
    now = datetime.now(timezone.utc)
    for days in range(1, 60):
        store.append(
            record(f"d{days}", started_at=(now - timedelta(days=10 * days, hours=12)).isoformat(timespec="seconds"))
        )
    file = tmp_path / "config/gpuprep/config.yml"
    code, out, _ = gpuprep("history", "keep")
    assert (code, f"keep_days is not in {file}: no run is deleted by itself" in out) == (0, True), out
    assert "23 of 59 runs are older than 365 days" in out
    assert "23 of them can be deleted" in out
    for wrong in ("0", "36501", "ten", "-1"):
        assert gpuprep("history", "keep", wrong)[0] == 2
    assert not file.exists()
    code, out, _ = gpuprep("history", "keep", "200")
    assert (code, f"keep_days: 200, in {file}\n40 of 59 runs" in out, "29 of them can be deleted" in out) == (
        0,
        True,
        True,
    ), out
    assert file.read_text() == "keep_days: 200\n"
    told = json.loads(gpuprep("history", "keep", "--json")[1])
    assert {key: told[key] for key in ("keep_days", "file", "runs", "older", "deletable")} == {
        "keep_days": 200, "file": str(file), "runs": 59, "older": 40, "deletable": 29,
    }  # fmt: skip
    assert gpuprep("history", "prune")[0] == 0
    assert len(store.runs(limit=100)) == 30
    file.write_text("forks: 9\nforkz: 1\n")
    code, _, err = gpuprep("history", "keep", "30")
    assert (code, f"{file}:2: forkz: unknown key" in err, file.read_text()) == (2, True, "forks: 9\nforkz: 1\n")


def test_a_host_is_forgotten_with_all_of_its_own_and_nothing_of_others(
    store: Store, gpuprep: Shell, tmp_path: Path
) -> None:
    fill(store, 280.0, 281.0)
    store.append(dataclasses.replace(record("typo", host="gpu-l"), verdict=None, error="no route", exit_code=3))
    logs = tmp_path / "state/gpuprep/runs"
    for name in ("typo", "run-01"):
        (logs / name).mkdir(parents=True)
    assert gpuprep("history", "join", "gpu-l", "gpu-1")[0] == 0
    assert gpuprep("history", "forget", "gpu-7")[0] == 2
    code, out, _ = gpuprep("history", "forget", "gpu-l")
    assert (code, "1 runs deleted, and 1 log folders" in out) == (0, True), out
    assert [run.run_id for run in store.runs()] == ["run-02", "run-01"]
    assert [path.name for path in logs.iterdir()] == ["run-01"]
    code, _, err = gpuprep("history", "forget", "gpu-1")
    assert (code, "has a certified run" in err, "`gpuprep history forget gpu-1 --yes`" in err) == (2, True, True)
    assert gpuprep("history", "forget", "gpu-1", "--yes")[0] == 0
    assert (store.runs(), store.has_host("gpu-1"), store.names()) == ([], False, [])


def test_exports_are_whole_records_or_a_table(store: Store, gpuprep: Shell, tmp_path: Path) -> None:
    fill(store, 280.0, 281.0)
    store.append(record("other"))
    code, out, err = gpuprep("history", "export")
    assert (code, err, len(out.splitlines())) == (0, "", 3)
    assert json.loads(gpuprep("report", "run-01", "--json")[1]) == json.loads(out.splitlines()[0])
    rows = list(csv.DictReader(io.StringIO(gpuprep("history", "export", "gpu-1", "--format", "csv")[1])))
    assert [row["run_id"] for row in rows] == ["run-01", "run-02"]
    to = tmp_path / "figures.csv"
    words = ("history", "export", "--format", "csv", "--what", "measurements", "--output", str(to))
    assert gpuprep(*words) == (0, "", "")
    assert [row["value"] for row in csv.DictReader(io.StringIO(to.read_text()))] == ["280.0", "281.0"]
    assert [path.name for path in tmp_path.glob("*.part")] == []
    assert gpuprep("history", "export", "--what", "runs")[0] == 2
    code, out, err = gpuprep("history", "export", "nowhere")  # a mistyped backup
    assert (code, out) == (2, "")
    assert "no run of nowhere is recorded" in err


def test_pages_are_not_too_wide(store: Store, gpuprep: Shell) -> None:
    fill(store, 280.0)
    assert too_wide(gpuprep("history", "prune", "--keep-days", "1", "--dry-run")[1]) == []


# ---------------------------------------------------------------- the list


def ids(out: str) -> list[str]:
    return [line.split()[0] for line in out.splitlines()[1:]]


def test_the_list_is_narrowed_by_host_time_and_outcome(store: Store, gpuprep: Shell) -> None:
    now = datetime.now(timezone.utc)
    for name, days, code in (("old", 40, 0), ("week", 6, 0), ("new", 0, 1)):
        began = (now - timedelta(days=days)).isoformat(timespec="seconds")
        store.append(record(name, host=f"host-{name}", started_at=began, exit_code=code))
    assert ids(gpuprep("history")[1]) == ["new", "week", "old"]
    assert ids(gpuprep("history", "--since", "7d")[1]) == ["new", "week"]
    assert ids(gpuprep("history", "--since", "6w")[1]) == ["new", "week", "old"]
    assert ids(gpuprep("history", "--since", "1h")[1]) == ["new"]
    assert ids(gpuprep("history", "--since", f"{now - timedelta(days=7):%Y-%m-%d}")[1]) == ["new", "week"]
    assert ids(gpuprep("history", "--since", f"{now - timedelta(hours=1):%Y-%m-%dT%H:%M}")[1]) == ["new"]
    assert ids(gpuprep("history", "--failed")[1]) == ["new"]
    assert ids(gpuprep("history", "--host", "host-old")[1]) == ["old"]
    assert ids(gpuprep("history", "--host", "host-old", "--host", "host-new")[1]) == ["new", "old"]
    assert ids(gpuprep("history", "host-old", "--host", "host-new", "--failed")[1]) == ["new"]
    assert gpuprep("history", "--host", "host-old", "--failed") == (
        0, "", "no runs like that of host-old are recorded\n",
    )  # fmt: skip
    assert gpuprep("history", "--failed", "--since", "2099-01-01")[2] == "no runs like that are recorded\n"


@pytest.mark.parametrize("when", ["yesterday", "7", "d", "0d", "7y", "2026-13-01", "2026-11-1", "99999999d", "", "-1d"])
def test_a_time_that_is_none_is_refused(gpuprep: Shell, when: str) -> None:
    code, out, err = gpuprep("history", "--since", when)
    assert (code, out) == (2, "")
    assert "allowed: 12h, 7d, 2w (so long ago), 2026-11-01" in err


def test_the_list_shows_headline_figures_and_the_hosts_course(store: Store, gpuprep: Shell) -> None:
    for day in range(1, 6):
        store.append(
            measured(f"run-{day:02d}", 280.0 - 10 * day, day=day, ended_at=f"2026-11-{day:02d}T02:42:05+00:00")
        )
    store.append(record("other"))
    head, *lines = gpuprep("history")[1].splitlines()
    assert head.split() == ["RUN", "TIME", "(UTC)", "HOST", "COMMAND", "TOOK", "RESULT", "FP16", "TREND"]
    assert lines[0].split() == ["other", "2026-11-20", "10:00", "sim:t4", "provision", "9:30", "FAIL", "simulated"]
    newest = ["run-05", "2026-11-05", "02:30", "gpu-1", "validate", "12:05", "PASS", "230", "█▇▅▄▃"]
    assert lines[1].split() == newest
    assert lines[2].split()[-2:] == ["PASS", "240"]  # the course is told once a host
    told = json.loads(gpuprep("history", "--json")[1])
    assert [run["figures"] and run["figures"]["fp16_tflops"] for run in told["runs"]] == [
        None, 230.0, 240.0, 250.0, 260.0, 270.0,
    ]  # fmt: skip
    (series,) = told["series"]
    assert (series["host"], series["figure"]) == ("gpu-1", "fp16 8192x8192x8192 TN")
    assert [point["value"] for point in series["points"]] == [270.0, 260.0, 250.0, 240.0, 230.0]


def test_a_course_is_of_figures_that_can_be_compared(store: Store, gpuprep: Shell) -> None:
    """Another version, a full run and a simulated run are other series."""
    fill(store, 280.0, 279.0)
    newer = dataclasses.replace(SNAPSHOT, source=records.Source.MEASURED, agent_version="99.0.0")
    store.append(measured("new", 100.0, day=3, after=newer))
    store.append(measured("simulated", 5.0, day=2, source=records.Source.SIMULATED))
    (series,) = json.loads(gpuprep("history", "--json")[1])["series"]
    assert [point["value"] for point in series["points"]] == [100.0]
    assert gpuprep("history")[1].splitlines()[1].split()[-1] == "100"  # one figure is no course


@pytest.mark.parametrize(
    ("values", "drawn"),
    [([5.0], "5"), ([5.0, 5.0], "██"), ([100.0, 99.9, 100.0], "███"), ([100.0, 80.0], "█▁"),
     ([100.0, 50.0, 75.0], "█▁▅"), ([90.0, 100.0], "▅█")],
)  # fmt: skip
def test_a_sparkline_shows_changes_and_no_noise(store: Store, gpuprep: Shell, values: list[float], drawn: str) -> None:
    fill(store, *values)
    assert gpuprep("history")[1].splitlines()[1].split()[-1] == drawn


@pytest.mark.parametrize("columns", [60, 80, 100, 120, 160])
def test_the_list_fits_a_terminal(store: Store, gpuprep: Shell, monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    for day in range(1, 6):
        store.append(measured(f"20261101-0230{day:02d}-0f4edd", 280.0, day=day))
    page = gpuprep.on_terminal(monkeypatch, "history", "--no-color", columns=columns)[1]
    assert max(map(len, page.splitlines())) <= columns
    assert all(word in page for word in ("RUN", "HOST", "COMMAND", "RESULT"))
    wanted = {60: ["FP16"], 80: ["TOOK", "FP16", "TREND"]}.get(columns, ["TIME", "TOOK", "FP16", "TREND"])
    assert [head for head in ("TIME", "TOOK", "FP16", "TREND") if head in page] == wanted
    assert len(page.splitlines()) == 6  # none goes on in a second line


def test_figures_with_too_few_nights_are_a_row_a_probe(store: Store, gpuprep: Shell) -> None:
    products = [gemm(dtype, 280.0) for dtype in ("fp16", "bf16", "tf32", "fp64")]
    for day in (1, 2):
        probed = records.ProbeResult("gemm", records.Source.MEASURED, values(gpu("20b0", products)), 10.0)
        store.append(measured(f"run-{day}", 0.0, day=day, measurements=(probed,)))
    code, out, _ = gpuprep("history", "trend", "gpu-1")
    head, _, row, note = out.splitlines()
    assert (code, head.endswith("4 UNKNOWN; 2 of 8 nights that a trend needs")) == (3, True)
    assert row.split() == ["UNKNOWN", "GPU-0", "gemm", "4", "figures", "2", "of", "8"]
    assert note.startswith("UNKNOWN: measured in fewer than 8 nights")
    assert len(gpuprep("history", "trend", "gpu-1", "-v")[1].splitlines()) == 3 + 4


def test_gpus_that_are_not_compared_for_one_reason_are_told_together(store: Store, gpuprep: Shell) -> None:
    for run, quick in (("quick", True), ("full", False)):
        gpus = [gpu("20b0", [gemm("fp16", 280.0)], index) for index in range(3)]
        probed = records.ProbeResult("gemm", records.Source.MEASURED, values(*gpus, quick=quick), 10.0)
        store.append(measured(run, 0.0, day=1, measurements=(probed,)))
    page = gpuprep("compare", "quick", "full")[1]
    assert "  not compared: GPU-0, GPU-1, GPU-2 gemm: quick in one, full in two\n" in page


# ---------------------------------------------------------------- runs that were killed


@pytest.mark.parametrize("command", amount.few(["drift", "provision", "validate"], 1))
def test_a_killed_run_is_in_the_list(
    gpuprep: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    with socket.create_server(("127.0.0.1", 0)) as silent:  # takes connections, and says nothing
        host = f"somebody@127.0.0.1:{silent.getsockname()[1]}"
        started = subprocess.Popen(
            [sys.executable, "-m", "gpuprep.cli", command, host, "--profile", "t4"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        connection, _ = silent.accept()
        assert gpuprep("history")[1] == "", "it is at work"
        started.kill()
        started.wait()
        connection.close()
    code, out, _ = gpuprep("history")
    [row] = out.splitlines()[1:]
    assert (code, row.split()[-1], command in row) == (0, "STOPPED", True)
    assert gpuprep("history")[1] == out, "once"
    code, out, _ = gpuprep("report", "last")
    assert (code, "gpuprep was killed" in out, "run the same command again" in out) == (0, True, True)


def test_what_a_power_cut_left_half_written_hides_no_run(gpuprep: Shell, store: Store, tmp_path: Path) -> None:
    fill(store, 280.0)
    folder = tmp_path / "state/gpuprep/running"
    folder.mkdir(parents=True)
    of_this_store = hashlib.sha256(store.shown_url.encode()).hexdigest()[:12]
    for name, text in {"a": "", "b": "[" * 100_000, "c": '{"run_id": 1}'}.items():
        (folder / f"{of_this_store}-{name}.json").write_text(text)
    (folder / f"{of_this_store}-d.new").write_text('{"run')  # killed before it had its name
    (folder / "another-store.json").write_text("{}")
    assert [line.split()[0] for line in gpuprep("history")[1].splitlines()] == ["RUN", "run-01"]
    assert [path.name for path in folder.iterdir()] == ["another-store.json"]


# ---------------------------------------------------------------- status


def run(run_id: str, verdict: str | None, exit_code: int, **more: object) -> records.RunRecord:
    judged = None if verdict is None else records.Verdict(records.Status(verdict), verdict, ())
    moment = f"2026-11-{run_id[-2:]}T00:00:00+00:00"
    values = {"host": "gpu-1", "command": "drift", "started_at": moment, "ended_at": moment, "playbook": None, **more}
    return record(run_id, verdict=judged, exit_code=exit_code, **values)


PLAYED = records.PlaybookResult("canceled", 3, 9, 0, (), "", 1.0)


@pytest.mark.parametrize(
    ("later", "result"),
    [
        (run("r-02", None, 0, command="provision", options={"check": True}), "FAIL"),  # a plan
        (run("r-02", None, 2, error="the profile of another card"), "FAIL"),
        (run("r-02", None, 130, error="interrupted"), "FAIL"),
        (run("r-02", None, 130, error="interrupted", command="provision"), "FAIL"),  # it had not begun
        (run("r-02", None, 130, error="interrupted", command="provision", playbook=PLAYED), "STOPPED"),
        (run("r-02", None, 130, error=f"{ended.KILLED}\nrun it again", command="tune"), "STOPPED"),
        (run("r-02", None, 4, error="a step failed", command="provision"), "FAILED"),
        (run("r-02", None, 3, error="no answer"), "UNKNOWN"),
        (run("r-02", "PASS", 0), "PASS"),
    ],
)
def test_status_shows_the_last_verdict_and_the_last_activity(
    store: Store, gpuprep: Shell, later: records.RunRecord, result: str
) -> None:
    store.append(run("r-01", "FAIL", 1))
    store.append(later)
    code, out, _ = gpuprep("status", "--json")
    (host,) = json.loads(out)["hosts"]
    assert (code, host["result"], host["last"]["run_id"]) == (0, result, "r-02")
    assert host["run"]["run_id"] == ("r-01" if result == "FAIL" else "r-02")
    head, line, *_ = gpuprep("status")[1].splitlines()
    assert line.split()[1] == result
    assert ("LAST ACTIVITY" in head) is (result == "FAIL")
    assert ("provision --check DONE" in line) is bool(later.options.get("check"))


def test_status_has_a_row_for_a_host_and_for_each_name_that_an_inventory_has(
    store: Store, gpuprep: Shell, tmp_path: Path
) -> None:
    for number, host in enumerate(("gpu-1", "gpu-2", "web")):
        store.append(run(f"r-{number}", "PASS", 0, host=host, started_at=f"2026-11-2{number}T10:00:00+00:00"))
    store.join("gpu-1", "gpu-2", "2026-11-23")
    (tmp_path / "hosts").write_text("[all]\ngpu-1\ngpu-2\nnew\n")

    def shown(*words: str) -> tuple[list[tuple[str, list[str]]], str]:
        told = json.loads(gpuprep("status", "--json", *words)[1])["hosts"]
        return [(one["host"], one["also_called"]) for one in told], gpuprep("status", *words)[1].splitlines()[-1]

    both = ("gpu-1", ["gpu-2"]), ("gpu-2", ["gpu-1"])
    assert shown() == ([both[1], ("web", [])], "2 hosts under 3 names: 2 PASS")
    assert shown("-i", str(tmp_path / "hosts")) == ([("new", []), *both], "3 names of 2 hosts: 2 PASS, 1 never checked")
    assert shown("gpu-1")[0] == [both[0]]
    assert "1 host under 2 names: 1 PASS" in gpuprep("status", "gpu-1")[1]


def test_status_takes_patterns_inventories_and_names_that_nobody_knows(
    store: Store, gpuprep: Shell, tmp_path: Path
) -> None:
    for host, verdict in (("gpu-1", "PASS"), ("gpu-2", "FAIL"), ("web", "PASS")):
        store.append(run(f"{host}-01", verdict, int(verdict == "FAIL"), host=host))

    def hosts(*words: str) -> tuple[int, list[tuple[str, str | None]]]:
        code, out, _ = gpuprep("status", "--json", *words)
        return code, [(host["host"], host["result"]) for host in json.loads(out)["hosts"]]

    assert hosts("gpu-*") == (0, [("gpu-2", "FAIL"), ("gpu-1", "PASS")])
    assert hosts("--failed") == (0, [("gpu-2", "FAIL")])
    assert hosts("nowhere", "gpu-1") == (2, [("gpu-1", "PASS")])
    code, out, err = gpuprep("status", "nowhere", "gpu-1")
    assert (code, "gpu-1" in out, err.count("\n")) == (2, True, 1)
    assert "no run of nowhere is recorded" in err
    (tmp_path / "hosts").write_text("[all]\ngpu-1\nnew\n")
    assert hosts("-i", str(tmp_path / "hosts")) == (0, [("new", None), ("gpu-1", "PASS")])
    assert "new" in gpuprep("status", "-i", str(tmp_path / "hosts"))[1]
    assert hosts("-i", str(tmp_path / "hosts"), "new") == (0, [("new", None)])
    assert gpuprep("status", "-i", str(tmp_path / "none"))[0] == 2
