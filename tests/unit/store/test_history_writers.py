"""Several processes at one store, and processes that are killed: nothing is lost and nothing is torn."""

from __future__ import annotations

import os
import signal

import amount
import oldstores
import pytest
from records_for_tests import FINDINGS
from storewriters import (
    MANY,
    SPAWN,
    append_many,
    append_one,
    append_same,
    append_until_killed,
    die_while_writing,
    processes,
)

from gpuprep.records import baseline
from gpuprep.store import Store

pytestmark = pytest.mark.xdist_group("store")


def torn(store: Store) -> list[str]:
    """Runs that are there without all of their findings, figures and baseline."""
    rows = {what: list(store.export_rows(what))[1:] for what in ("runs", "findings", "measurements")}
    baselines = store.baseline_of("gpu-1")
    found = []
    for run_id in (row[0] for row in rows["runs"]):
        findings = [row for row in rows["findings"] if row[0] == run_id]
        figures = [row for row in rows["measurements"] if row[0] == run_id]
        own = baseline.BaselineKey("GPU-0", "gemm", f"of {run_id}")
        if (len(findings), len(figures), own in baselines) != (len(FINDINGS), 1, True):
            found.append(run_id)
    orphans = {row[0] for what in ("findings", "measurements") for row in rows[what]} - {row[0] for row in rows["runs"]}
    owners = {figure.run_id for named in baselines.values() for figure in named.values()}
    return [*found, *orphans, *(owners - {row[0] for row in rows["runs"]})]


def test_writers_that_open_the_store_at_once_lose_nothing(store_url: str) -> None:
    together = SPAWN.Barrier(3)
    with processes(append_many, *((store_url, name, MANY, together) for name in "abc")) as writers:
        pass
    assert [writer.exitcode for writer in writers] == [0, 0, 0]
    opened = Store.open(store_url)
    assert {run.run_id for run in opened.runs(limit=100)} == {f"{name}-{n}" for name in "abc" for n in range(MANY)}
    assert torn(opened) == []
    assert len(opened.baseline_of("gpu-1")[baseline.BaselineKey("GPU-0", "gemm", "of all")]) == MANY
    assert len(oldstores.version(store_url)) == 1
    opened.close()


def test_a_writer_killed_while_it_writes_leaves_whole_runs(store_url: str) -> None:
    Store.open(store_url).close()
    for attempt in amount.few(range(3), 1):
        reader, writer = SPAWN.Pipe(duplex=False)
        with processes(append_until_killed, (store_url, f"k{attempt}", writer)) as (process,):
            writer.close()
            said = [reader.recv() for _ in range(3 + attempt)]
            assert process.pid is not None
            os.kill(process.pid, signal.SIGKILL)
        assert process.exitcode == -signal.SIGKILL
        while reader.poll():
            try:
                said.append(reader.recv())
            except EOFError:
                break
        opened = Store.open(store_url)
        there = {row[0] for row in list(opened.export_rows("runs"))[1:]}
        assert {f"k{attempt}-{number}" for number in said} <= there
        assert torn(opened) == []
        append_one(opened, f"after{attempt}", 0)  # and it holds up nobody
        opened.close()


def test_a_writer_killed_within_a_transaction_leaves_nothing(store_url: str) -> None:
    with processes(die_while_writing, (store_url,)) as (writer,):
        pass
    assert writer.exitcode == -signal.SIGKILL
    opened = Store.open(store_url)
    append_one(opened, "after", 0)
    assert [run.run_id for run in opened.runs()] == ["after-0"]
    opened.close()


def test_one_run_from_two_writers_is_there_once(store_url: str) -> None:
    together = SPAWN.Barrier(2)
    pipes = [SPAWN.Pipe(duplex=False) for _ in range(2)]
    with processes(append_same, *((store_url, together, sender) for _, sender in pipes)):
        for _, sender in pipes:
            sender.close()  # a writer that fails is an end of file here
        told = [receiver.recv() for receiver, _ in pipes]
    assert [one + other for one, other in zip(*told, strict=True)] == [1] * MANY
    opened = Store.open(store_url)
    assert len(opened.runs()) == MANY
    opened.close()
