"""Stores of earlier versions: tests/cases/history/0.1.0.sql is one as an early gpuprep 0.1.0 wrote it."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from pathlib import Path

import oldstores
import pytest
from places import TESTS
from records_for_tests import FINDINGS, PASSED, measured, record

from gpuprep import errors
from gpuprep.records import baseline
from gpuprep.store import Store

CASES = TESTS / "cases/history"
KEY = baseline.BaselineKey("GPU-0", "gemm", "gpuprep 0.1.0, cublasLt 12.4.5, quick")
RUNS = ["20261121-023000-000002", "20261121-100000-abc123", "20261120-023000-000001"]  # newest first

pytestmark = pytest.mark.xdist_group("store")


def write_old(path: Path, *, damaged: bool = False) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript((CASES / "0.1.0.sql").read_text(encoding="utf-8"))
        if damaged:
            connection.execute("UPDATE runs SET record = 'torn {' WHERE run_id = ?", (RUNS[0],))
        connection.commit()


def test_a_store_of_the_first_version_upgrades_with_its_data(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    write_old(path)
    opened = Store.open(f"sqlite:///{path}")
    assert [run.run_id for run in opened.runs()] == RUNS
    assert [opened.get(run_id).run_id for run_id in RUNS] == RUNS
    assert [(one.run_id, one.figure, one.value) for one in opened.figures("gpu-1", "")] == [
        (RUNS[2], "fp16 8192x8192x8192 TN", 281.0),
        (RUNS[2], "bf16 8192x8192x8192 TN", 267.0),
        (RUNS[0], "fp16 8192x8192x8192 TN", 279.5),
        (RUNS[0], "bf16 8192x8192x8192 TN", 265.5),
    ]
    assert opened.baseline_of("gpu-1")[KEY]["fp16 8192x8192x8192 TN"].run_id == RUNS[2]
    assert opened.host_baseline("gpu-1").run_id == RUNS[0]
    assert len(list(opened.export_rows("findings"))) == 1 + 1 + 1 + len(FINDINGS)
    opened.close()
    Store.open(f"sqlite:///{tmp_path}/new.db").close()
    assert oldstores.version(f"sqlite:///{path}") == oldstores.version(f"sqlite:///{tmp_path}/new.db")


def test_runs_of_before_have_no_batch(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    write_old(path)
    opened = Store.open(f"sqlite:///{path}")
    assert {run.batch_id for run in opened.runs()} == {""}
    with pytest.raises(errors.UsageError, match="no batch 'last'"):
        opened.batch("last")
    opened.append(record("r1", batch_id="b1"))
    assert [run.run_id for run in opened.batch("last")] == ["r1"]
    assert [run.run_id for run in opened.runs(batch="b1")] == ["r1"]
    opened.close()


def test_a_damaged_record_does_not_stop_an_upgrade(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    write_old(path, damaged=True)
    opened = Store.open(f"sqlite:///{path}")
    assert {one.run_id for one in opened.figures("gpu-1", "")} == {RUNS[2]}
    assert len(opened.runs()) == 3
    opened.close()


def test_what_lists_are_made_of_is_found_by_an_index(tmp_path: Path) -> None:
    """No list reads the whole table: that is what makes 100 000 runs as quick as ten."""
    path = tmp_path / "history.db"
    opened = Store.open(f"sqlite:///{path}")
    opened.append(measured("r1", 280.0, verdict=PASSED, batch_id="b1"), {KEY: {"fp16": 280.0}})
    with oldstores.statements() as asked:
        opened.runs()
        opened.runs("gpu-1", limit=1)
        opened.runs(batch="b1")
        opened.batch("b1")
        opened.get("r")
        opened.get("last")
        opened.newest("gpu-1", "drift")
        opened.certified("gpu-1")
        opened.figures("gpu-1", "2026")
        opened.newest_figure("gpu-1")
        opened.headlines(["r1", "r2"])
    opened.close()
    large = r"^SELECT .*\sFROM (runs|findings|measurements)\b"
    queries = [(text, given) for text, given in asked if re.search(large, text, re.DOTALL)]
    assert len(queries) > 10
    with closing(sqlite3.connect(path)) as plain:
        for text, given in queries:
            plan = " ".join(str(row[3]) for row in plain.execute(f"EXPLAIN QUERY PLAN {text}", given))
            for table in ("runs", "measurements", "findings"):
                assert not re.search(rf"SCAN {table}\b(?! USING)", plan), f"{text}: {plan}"
            assert "TEMP B-TREE FOR ORDER BY" not in plan, f"{text}: {plan}"
