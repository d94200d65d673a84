"""Stores of earlier versions: tests/cases/history/0.1.0.sql is one as an early gpuprep 0.1.0 wrote it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
import sqlalchemy as sa
from places import TESTS
from records_for_tests import FINDINGS, record

from gpuprep import errors
from gpuprep.records import baseline
from gpuprep.store import Store, migrations

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
    with closing(sqlite3.connect(path)) as plain:
        assert plain.execute("SELECT version_num FROM alembic_version").fetchall() == [(migrations.HEAD,)]


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
    opened = Store.open(f"sqlite:///{tmp_path}/history.db")
    asked = {
        "SELECT run_id FROM runs WHERE host = 'h' ORDER BY started_at DESC, run_id DESC LIMIT 20": "newest_of_host",
        "SELECT run_id FROM runs ORDER BY started_at DESC, run_id DESC LIMIT 20": "runs_newest",
        "SELECT run_id FROM runs WHERE host = 'h' AND command = 'drift' AND verdict IS NOT NULL "
        "ORDER BY started_at DESC, run_id DESC LIMIT 1": "newest_of_command",
        "SELECT run_id FROM runs WHERE run_id >= 'a' AND run_id < 'b' ORDER BY run_id LIMIT 6": "autoindex_runs",
        "SELECT run_id FROM runs WHERE batch_id = 'b' ORDER BY started_at DESC, run_id DESC": "runs_by_batch",
        "SELECT * FROM measurements WHERE run_id IN ('a', 'b')": "autoindex_measurements",
        "SELECT value FROM measurements WHERE host = 'h' AND started_at >= '2026'": "measurements_by_host",
    }
    with opened._engine.connect() as connection:
        for query, index in asked.items():
            plan = " ".join(str(row[3]) for row in connection.execute(sa.text(f"EXPLAIN QUERY PLAN {query}")))
            assert index in plan, f"{query}: {plan}"
            assert "SCAN" not in plan or "USING COVERING INDEX" in plan, f"{query}: {plan}"
            assert "TEMP B-TREE" not in plan, f"{query}: {plan}"
    opened.close()
