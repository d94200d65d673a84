"""The store of runs, on real SQLite files and a real PostgreSQL."""

from __future__ import annotations

import dataclasses
import json
import sys
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import oldstores
import postgres
import pytest
from commandline import Shell
from records_for_tests import PASSED, measured, record

from gpuprep import errors, records
from gpuprep.records import baseline
from gpuprep.store import Store

KEY = baseline.BaselineKey("GPU-0", "gemm", "gpuprep 0.1.0, cublasLt 12.4.5, quick")

pytestmark = pytest.mark.xdist_group("store")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "history.db"


@pytest.fixture
def store(store_url: str) -> Iterator[Store]:
    opened = Store.open(store_url)
    yield opened
    opened.close()


def sql(url: str, statement: str) -> None:
    """Behind the store's back."""
    with oldstores.database(url) as made, made.begin() as connection:
        connection.exec_driver_sql(statement)


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
    assert (store.runs("web1")[0].verdict, store.runs("web1")[0].failed) == (records.Status.FAIL, 1)


def test_a_run_is_found_by_the_beginning_of_its_id(store: Store) -> None:
    store.append(record("20261120-100000-aaaaaa"))
    store.append(record("20261120-110000-bbbbbb", started_at="2026-11-20T11:00:00+00:00"))
    assert store.get("20261120-10").run_id == "20261120-100000-aaaaaa"
    assert store.get("last").run_id == "20261120-110000-bbbbbb"
    with pytest.raises(errors.UsageError, match="fits several runs"):
        store.get("20261120")
    with pytest.raises(errors.UsageError, match="no run '2027'"):
        store.get("2027")
    with pytest.raises(errors.UsageError, match="no run '%'"):  # a wildcard of SQL is none here
        store.get("%")


def test_a_run_is_stored_once(store: Store) -> None:
    store.append(record())
    with pytest.raises(errors.StoreError, match="already in the store"):
        store.append(record())
    assert len(store.runs()) == 1


def test_a_run_is_taken_once_from_a_host(store: Store) -> None:
    assert not store.host_of("20261120-100000-abc123")
    assert store.append_new(record())
    assert store.host_of("20261120-100000-abc123")
    assert not store.host_of("20261120-100000")
    assert not store.append_new(record(host="another"), {KEY: {"fp16": 1.0}})
    assert [run.host for run in store.runs()] == ["sim:t4"]
    assert store.baseline_of("another") == {}


def test_a_run_is_written_whole_or_not_at_all(store: Store, store_url: str) -> None:
    """Baselines are the last that is written."""
    sql(store_url, "ALTER TABLE baselines RENAME TO lost")
    with pytest.raises(errors.StoreError, match="baselines"):
        store.append(measured("r1", 100.0), {KEY: {"fp16": 1.0}})
    assert store.runs() == []
    assert store.figures("gpu-1", "") == []


def test_a_finding_may_hold_what_a_database_refuses(store: Store) -> None:
    odd = records.Finding("gpu 0", "x" * 300, records.Status.FAIL, "a\0b", "half \udcff")
    whole = record(findings=(odd,), verdict=None)
    store.append(whole)
    shown = dataclasses.replace(odd, expected="a\\x00b", actual="half \\udcff")
    assert store.get("last") == dataclasses.replace(whole, findings=(shown,))
    (row,) = list(store.export_rows("findings"))[1:]
    assert (row[1], len(row[3]), row[4:]) == (0, 255, ("FAIL", "a\\x00b", "half \\udcff"))


@pytest.mark.parametrize(
    "url",
    [
        "nonsense", "nosuchdatabase://x/y", "postgresql://host:port/db", "postgresql+nosuchdriver://host/db",
        "mysql+pymysql://host/db", "sqlite://", "sqlite:///", "sqlite:///:memory:", "sqlite:////tmp/a%00.db",
        "sqlite:////tmp/a.db?mode=ro", "/tmp/a.db",
    ],
)  # fmt: skip
def test_a_url_that_is_none_is_wrong_usage(url: str) -> None:
    with pytest.raises(errors.UsageError, match="--store"):
        Store.open(url)


def test_what_cannot_be_a_database_says_so(tmp_path: Path) -> None:
    text = tmp_path / "text.db"
    text.write_text("this is no database, " * 100)
    with pytest.raises(errors.UsageError, match="not a database"):
        Store.open(f"sqlite:///{text}")
    assert text.read_text().startswith("this is no database")
    with pytest.raises(errors.StoreError, match="cannot be used") as caught:
        Store.open(f"sqlite:///{tmp_path}/no/such/folder/x.db")
    assert "--store" in caught.value.hint


def test_a_path_is_answered_with_its_url(tmp_path: Path) -> None:
    with pytest.raises(errors.UsageError) as caught:
        Store.open(f"{tmp_path}/runs.db")
    assert caught.value.hint.endswith(f"sqlite:///{tmp_path}/runs.db")
    Store.open(f"sqlite:///{tmp_path}/runs.db").close()


def test_a_store_that_must_be_there_is_not_made(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/runs.db"
    with pytest.raises(errors.UsageError, match="there is no store of runs"):
        Store.open_existing(url)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "runs.db").touch()
    with pytest.raises(errors.UsageError, match="there is no store of runs"):
        Store.open_existing(url)
    assert (tmp_path / "runs.db").read_bytes() == b""
    Store.open(url).close()
    Store.open_existing(url).close()


def test_a_damaged_store_of_ones_own_is_no_wrong_usage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    Store.open(None).close()
    (path,) = tmp_path.glob("*/history.db")
    path.write_bytes(b"x" * 8192)
    with pytest.raises(errors.StoreError, match="not a database") as caught:
        Store.open(None)
    assert "damaged" in caught.value.hint


def test_a_damaged_record_is_named(store: Store, store_url: str) -> None:
    store.append(record())
    sql(store_url, "UPDATE runs SET record = '{\"run_id\": 1}'")
    with pytest.raises(errors.StoreError, match=r"RunRecord\.run_id"):
        store.get("last")


@pytest.mark.parametrize(
    "url",
    [
        "postgresql+nosuchdriver://me:hunter2@127.0.0.1:1/db",
        "postgresql://me:hunter2@127.0.0.1:1/db",
        "postgresql://me:hun@ter/hunter2@127.0.0.1:port/db",
        "postgresql://127.0.0.1:1/db?user=me&password=hunter2",
        "nosuch://me:hunter2@127.0.0.1:1/db",
    ],
)
def test_a_password_in_the_url_is_not_shown(url: str) -> None:
    with pytest.raises((errors.StoreError, errors.UsageError)) as caught:
        Store.open(url)
    assert "hunter2" not in caught.value.explain()
    assert "***" in caught.value.explain()


def test_a_server_that_does_not_answer_says_so() -> None:
    with pytest.raises(
        errors.StoreError, match=r"postgresql://me@127\.0\.0\.1:1/db cannot be used: .*refused"
    ) as caught:
        Store.open("postgresql://me@127.0.0.1:1/db")
    assert caught.value.exit_code == 3
    assert "the server runs" in caught.value.hint


def test_without_its_driver_postgresql_is_wrong_usage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(errors.UsageError, match="driver is not installed") as caught:
        Store.open("postgresql://me@127.0.0.1:1/db")
    assert "pip install 'gpuprep[postgresql]'" in caught.value.hint
    assert len(caught.value.what.splitlines()) == 1


def test_the_certified_run_is_the_newest_that_passed(store: Store) -> None:
    assert store.certified("sim:t4") is None
    for run_id, day, command, verdict in (
        ("r1", 1, "provision", PASSED), ("r2", 2, "validate", PASSED), ("r3", 3, "validate", record().verdict),
        ("r4", 4, "drift", PASSED), ("r5", 5, "validate", None),
    ):  # fmt: skip
        store.append(record(run_id, command=command, verdict=verdict, started_at=f"2026-11-0{day}T02:30:00+00:00"))
    store.append(record("r6", command="validate", verdict=PASSED, host="another"))
    lost = record("r7", command="validate", verdict=PASSED, started_at="2026-11-02T03:00:00+00:00")
    store.append(dataclasses.replace(lost, exit_code=3, error="the connection was lost"))
    certified, checked = store.certified("sim:t4"), store.newest("sim:t4", "drift")
    assert (certified and certified.run_id, checked and checked.run_id) == ("r2", "r4")
    newest = store.newest("sim:t4", "validate")
    assert newest is not None
    assert newest.run_id == "r3"  # r5 came to no verdict


def test_what_was_before_an_unprovision_certifies_nothing(store: Store) -> None:
    def ended(run_id: str, command: str, day: int, *only: str) -> None:
        made = record(run_id, command=command, verdict=PASSED, started_at=f"2026-11-0{day}T02:30:00+00:00")
        store.append(dataclasses.replace(made, exit_code=0, options={"only": list(only)}))

    ended("r1", "provision", 1)
    ended("r2", "unprovision", 2, "cuda")
    assert store.taken_back("sim:t4") is None
    store.certify("sim:t4", "r1", "2026-11-02T03:00:00+00:00", {})
    assert store.certified("sim:t4") is not None
    ended("r3", "unprovision", 3)
    assert store.taken_back("sim:t4") == ("r3", "2026-11-03T02:30:00+00:00")
    assert store.certified("sim:t4") is None
    ended("r4", "provision", 4)
    assert store.taken_back("sim:t4") is None
    certified = store.certified("sim:t4")
    assert certified is not None
    assert certified.run_id == "r4"


def test_a_run_of_a_part_of_the_machine_certifies_nothing(
    store: Store, store_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    store.append(record("r1", command="provision", verdict=PASSED, started_at="2026-11-01T02:30:00+00:00"))
    for number, left_out in enumerate(({"only": ["codec"]}, {"skip": ["driver"]}), 2):
        part = record(f"r{number}", command="provision", verdict=PASSED, started_at=f"2026-11-0{number}T02:30:00+00:00")
        store.append(dataclasses.replace(part, options=left_out))
    store.append(record("r4", command="drift", verdict=PASSED, started_at="2026-11-04T02:30:00+00:00"))
    for run, why in (("r2", "left a part"), ("r3", "left a part"), ("r4", "certifies nothing")):
        code, _, said = Shell(capsys)("baseline", "set", "sim:t4", run, "--store", store_url)
        assert (code, why in " ".join(said.split())) == (2, True), said
    assert store.newest_passed("sim:t4") == "r1"
    assert store.host_baseline("sim:t4").run_id == "r1"


def test_a_simulated_run_does_not_certify_a_host_that_has_a_real_gpu(store: Store) -> None:
    store.append(measured("r1", 280.0, verdict=PASSED))
    store.append(measured("r2", 1.0, day=2, verdict=PASSED, source=records.Source.SIMULATED))
    assert store.newest_passed("gpu-1") == "r1"


def test_a_run_that_never_reached_the_host_does_not_make_its_gpu_a_real_one(store: Store) -> None:
    store.append(record("r1", verdict=None, source=records.Source.MEASURED))
    store.append(record("r3", command="judge", verdict=PASSED, source=records.Source.MEASURED))  # a file names any host
    store.append(record("r2", command="validate", verdict=PASSED, source=records.Source.SIMULATED))
    assert store.newest_passed("sim:t4") == "r2"


def test_a_run_of_a_host_whose_clock_was_wrong_is_not_the_newest(store: Store) -> None:
    ahead = "2199-06-01T02:30:00+00:00"
    for command in ("validate", "drift"):
        store.append(record(f"{command}-1", command=command, verdict=PASSED, started_at="2026-11-01T02:30:00+00:00"))
        store.append(record(f"{command}-2", command=command, verdict=PASSED, started_at=ahead))
    checked = store.newest("sim:t4", "drift")
    assert (store.newest_passed("sim:t4"), checked and checked.run_id) == ("validate-1", "drift-1")
    store.append(measured("r1", 280.0, command="drift"))
    store.append(measured("r2", 280.0, command="drift", started_at=ahead))
    assert store.newest_figure("gpu-1") == "2026-11-01T02:30:00+00:00"


def test_figures_are_rows_and_simulated_ones_say_so(store: Store) -> None:
    store.append(measured("r1", 280.0))
    store.append(measured("r2", 270.0, day=2))
    store.append(measured("r3", 1.0, day=3, source=records.Source.SIMULATED))
    store.append(measured("r4", 280.0, day=4, command="judge"))
    store.append(measured("r5", 280.0, host="another"))
    found = store.figures("gpu-1", "2026-11-02")
    assert [(one.run_id, one.value, one.source.value) for one in found] == [
        ("r2", 270.0, "measured"),
        ("r3", 1.0, "simulated"),
    ]
    assert (found[0].probe, found[0].figure, found[0].versions) == (
        "gemm", "fp16 8192x8192x8192 TN", "gpuprep 0.1.0, cublasLt 12.4.5, quick",
    )  # fmt: skip
    assert store.newest_figure("gpu-1") == "2026-11-03T02:30:00+00:00"
    assert store.newest_figure("nowhere") is None


def test_two_runs_of_one_probe_in_a_record_are_one_figure(store: Store) -> None:
    once, twice = measured("r1", 280.0), measured("r1", 270.0)
    store.append(dataclasses.replace(once, measurements=once.measurements + twice.measurements))
    assert [one.value for one in store.figures("gpu-1", "")] == [270.0]


def test_a_set_run_stays_until_it_is_cleared(store: Store) -> None:
    for day in (1, 2, 3):
        store.append(measured(f"r{day}", 280.0 + day, day=day), {KEY: {"fp16": 280.0 + day, f"only {day}": 1.0}})
    assert store.host_baseline("gpu-1").run_id == "r3"
    assert store.baseline_of("gpu-1")[KEY]["fp16"].value == 281.0
    store.certify("gpu-1", "r2", "2026-11-09", {KEY: {"fp16": 282.0}})
    store.append(measured("r4", 290.0, day=4), {KEY: {"fp16": 290.0}})
    found = store.host_baseline("gpu-1")
    assert (found.run_id, found.run_at, found.set_at) == ("r2", "2026-11-02T02:30:00+00:00", "2026-11-09")
    assert {name: (one.value, one.run_id) for name, one in found.figures[KEY].items()} == {"fp16": (282.0, "r2")}
    certified = store.certified("gpu-1")
    assert certified is not None
    assert certified.run_id == "r2"
    other = dataclasses.replace(KEY, probe="bandwidth")
    store.certify("gpu-1", "r2", "2026-11-09", {other: {"device copy": 1.0}})
    assert store.clear_baseline("gpu-1", "gemm") == (1, False)
    assert list(store.baseline_of("gpu-1")) == [other]
    assert store.clear_baseline("gpu-1") == (1, True)
    assert store.host_baseline("gpu-1").run_id == "r4"
    assert store.clear_baseline("gpu-1") == (0, False)


def test_of_two_names_of_a_host_the_older_figure_counts(store: Store) -> None:
    store.append(measured("r2", 270.0, day=2, host="node7"), {KEY: {"fp16": 270.0, "bf16": 1.0}})
    store.append(measured("r1", 280.0, day=1), {KEY: {"fp16": 280.0}})
    store.join("gpu-1", "node7", "2026-11-09")
    for name in ("gpu-1", "node7"):
        found = store.baseline(name, [KEY])[KEY]
        assert {figure: one.value for figure, one in found.items()} == {"fp16": 280.0, "bf16": 1.0}
        assert store.baseline_of(name)[KEY] == found


def test_of_two_names_of_a_host_the_newer_choice_counts(store: Store) -> None:
    for name, day in (("gpu-1", 9), ("node7", 8)):
        store.append(measured(f"of-{name}", 280.0, host=name, verdict=PASSED))
        store.certify(name, f"of-{name}", f"2026-11-0{day}", {})
    store.join("gpu-1", "node7", "2026-11-10")
    assert [store.chosen(name) for name in ("gpu-1", "node7")] == ["of-gpu-1"] * 2


def test_exports_are_all_runs_oldest_first(store: Store) -> None:
    for day in (2, 1, 3):
        store.append(measured(f"r{day}", 280.0 + day, day=day, host="b" if day == 3 else "a"))
    assert [json.loads(line)["run_id"] for line in store.export_records()] == ["r1", "r2", "r3"]
    assert [records.from_json(records.RunRecord, line).run_id for line in store.export_records("a")] == ["r1", "r2"]
    head, *rows = store.export_rows("measurements", "a")
    assert head[0] == "run_id"
    assert [(row[0], row[-1]) for row in rows] == [("r1", 281.0), ("r2", 282.0)]
    head, *rows = store.export_rows("runs")
    assert "record" not in head
    assert [row[0] for row in rows] == ["r1", "r2", "r3"]
    assert len(list(store.export_rows("findings"))) == 1 + 3


def test_what_nothing_refers_to_can_be_pruned(store: Store) -> None:
    failed = record().verdict
    for day in range(1, 10):
        figures = {KEY: {"fp16": 280.0}} if day == 4 else None
        store.append(measured(f"r{day}", 280.0, day=day, verdict=failed if day != 2 else PASSED), figures)
    store.append(measured("d1", 280.0, day=1, command="drift"))
    store.append(measured("d0", 280.0, day=1, command="drift", verdict=failed, started_at="2026-10-01"))
    store.append(measured("lone", 280.0, day=1, host="another", verdict=failed))
    old = store.prunable("2026-11-07T00:00:00+00:00", keep_last=1)
    assert old == ["d0", "r1", "r3", "r5", "r6"]  # r2 passed, r4 is the baseline, d1 the last check, lone the last run
    assert "r6" not in store.prunable("2026-11-06T02:30:00+00:00", keep_last=1), "it began then, not before"
    assert "lone" in store.prunable("2026-11-07T00:00:00+00:00", keep_last=0)
    store.certify("gpu-1", "r5", "2026-11-09", {KEY: {"fp16": 280.0}})  # meanwhile
    assert store.prune(old) == ["d0", "r1", "r3", "r6"]
    left = {run.run_id for run in store.runs()}
    assert left == {"r2", "r4", "r5", "r7", "r8", "r9", "d1", "lone"}
    for what in ("findings", "measurements"):
        assert {row[0] for row in list(store.export_rows(what))[1:]} == left


def test_a_server_that_was_restarted_meanwhile_loses_no_run(postgres_server: postgres.Server) -> None:
    """A run takes hours: the connection of its beginning may be gone when it is to be stored."""
    url = postgres_server.new_database()
    opened, other = Store.open(url), Store.open(url)
    others = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
    sql(url, f"{others} AND datname = current_database()")
    opened.append(record())
    assert other.host_of(record().run_id)
    opened.close()
    other.close()


def test_an_export_is_not_held_in_memory(store: Store) -> None:
    large = measured("r", 280.0, options={"padding": ["x" * 60_000] * 2})
    for number in range(200):
        store.append(dataclasses.replace(large, run_id=f"r{number:03}"))
    tracemalloc.start()
    try:
        size = sum(len(line) for line in store.export_records())
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert size > 20_000_000
    assert peak < size / 2
