"""Exports and reports of Nsight Systems."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import tracemalloc
from pathlib import Path
from typing import Any

import amount
import pytest
import tracesteps
from hostiletrace import read_or_refused
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from nsightexports import SECRET, TABLES, export, tid

from gpuprep import errors
from gpuprep.trace import columns


def test_all_of_an_export(tmp_path: Path) -> None:
    trace = tracesteps.read(export(tmp_path / "run.sqlite"))
    assert (trace.format, trace.generation) == (columns.Format.NSYS, "3.24.14")
    assert trace.zero_ns == 1_776_781_226_557_295_056 + 1000
    assert trace.gpu.start.tolist() == [1000, 3000, 1000, 8500, 8900]
    assert trace.gpu.end.tolist() == [4000, 8000, 1500, 8900, 8950]
    assert [trace.names[name] for name in trace.gpu.name] == [
        "void gemm<float>(float*)", "void gemm<float>(float*)", "void gemm<float>(float*)",
        "Memcpy HtoD (Pageable -> Device)", "Memset (Device)",
    ]  # fmt: skip
    assert trace.gpu.kind.tolist() == [columns.GpuKind.KERNEL] * 3 + [columns.GpuKind.MEMCPY, columns.GpuKind.MEMSET]
    assert trace.gpu.device.tolist() == [0, 0, 1, 0, 0]
    assert trace.gpu.grid[0].tolist() == [10, 2, 1]
    assert trace.gpu.shared.tolist() == [1536, 1536, 0, -1, -1]
    assert trace.gpu.graph_node.tolist() == [-1, 5, -1, -1, -1]
    assert trace.gpu.bytes.tolist() == [-1, -1, -1, 4096, 512]
    assert [trace.names[name] for name in trace.calls.name] == ["cudaLaunchKernel"] * 2 + ["cudaMemcpyAsync"]
    assert trace.machine == {"cpu": "Test CPU", "driver": "580.95.05", "nsys_version": "2026.1.1.204"}
    assert [(device.index, device.sms, device.compute_capability) for device in trace.devices] == [
        (1, 132, "9.0"), (0, 132, "9.0"),
    ]  # fmt: skip
    assert trace.processes == ["291", "292"]
    # The kernel of process 292 and the fill have no call; the same correlation in another process is not theirs.
    assert trace.notes == {"no_launches": 2, "nsys_open_ranges": 1}


def test_ranges_are_ops_and_annotations(tmp_path: Path) -> None:
    trace = tracesteps.read(export(tmp_path / "run.sqlite"))
    kinds = {trace.names[name]: columns.OpKind(kind) for name, kind in zip(trace.ops.name, trace.ops.kind, strict=True)}
    assert kinds == {
        "iteration 1": columns.OpKind.ANNOTATION,
        "aten::mm": columns.OpKind.OP,
        "autograd::engine::evaluate_function: MmBackward0": columns.OpKind.OP,
        "registered range": columns.OpKind.ANNOTATION,
        "ncclAllReduce": columns.OpKind.ANNOTATION,
    }
    product = [trace.names[name] for name in trace.ops.name].index("aten::mm")
    assert trace.arguments[int(trace.ops.arguments[product])].shapes == ((64, 128), (128, 32))
    assert trace.ops.sequence[product] == 5
    collective = [trace.names[name] for name in trace.ops.name].index("ncclAllReduce")
    assert trace.arguments[int(trace.ops.arguments[collective])].other == (("NVTX domain", "NCCL"),)
    assert trace.ops.thread[product] != trace.ops.thread[product + 1]
    assert trace.switches == {"record_shapes": True}


@pytest.mark.parametrize("time", [2**63 - 1, -(2**63), 2**62])
def test_times_at_the_ends_of_int64_are_left_out(time: int, tmp_path: Path) -> None:
    path = export(tmp_path / "run.sqlite")
    with contextlib.closing(sqlite3.connect(path)) as database, database:
        database.execute("UPDATE CUPTI_ACTIVITY_KIND_RUNTIME SET start = ?", (time,))
    trace = tracesteps.read(path)
    assert trace.notes["impossible_times"] == 3
    assert trace.gpu.start.tolist() == [1000, 3000, 1000, 8500, 8900]


@pytest.mark.parametrize("table", TABLES)
def test_every_table_may_be_missing(table: str, tmp_path: Path) -> None:
    trace = tracesteps.read(export(tmp_path / "run.sqlite", without=[table]))
    for key, count in trace.notes.items():
        assert tracesteps.sentence(key, count)
    if table.startswith(("CUPTI", "NVTX")):
        assert trace.notes["nsys_missing_tables"] == 1
    if table == "META_DATA_EXPORT":
        assert trace.notes["nsys_no_schema"] == 1


def test_kernels_without_a_process_are_of_the_only_one_that_calls(tmp_path: Path) -> None:
    changed: dict[str, Any] = {}
    for table in ("CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET"):
        names, rows = TABLES[table]
        place = list(names).index("globalPid")
        changed[table] = (
            [*names[:place], *names[place + 1 :]],
            [(*row[:place], *row[place + 1 :]) for row in rows],
        )
    made = tracesteps.linked(tracesteps.read(export(tmp_path / "a.sqlite", changed)))
    told = tracesteps.linked(tracesteps.read(export(tmp_path / "b.sqlite")))
    assert [made.ops[op].type for op in made.gpu.op[:2]] == [told.ops[op].type for op in told.gpu.op[:2]]
    assert made.links.to_call >= told.links.to_call > 0


def test_columns_may_be_missing(tmp_path: Path) -> None:
    few = (("start", "end", "deviceId", "streamId"), [(2000, 5000, 0, 7)])
    trace = tracesteps.read(export(tmp_path / "run.sqlite", {"CUPTI_ACTIVITY_KIND_KERNEL": few}))
    kernels = trace.gpu.kind == columns.GpuKind.KERNEL
    assert trace.gpu.correlation[kernels].tolist() == [-1]
    assert trace.gpu.shared[kernels].tolist() == [-1]
    none = (("begin", "finish"), [(2000, 5000)])
    trace = tracesteps.read(export(tmp_path / "run.sqlite", {"CUPTI_ACTIVITY_KIND_KERNEL": none}))
    assert not (trace.gpu.kind == columns.GpuKind.KERNEL).any()
    assert trace.notes["nsys_unreadable_tables"] == 1


@pytest.mark.parametrize(("schema", "newer"), [("3.28.1", False), ("3.29.0", True), ("4.0.0", True), ("2.9", False)])
def test_newer_schemas_are_read_and_said(schema: str, newer: bool, tmp_path: Path) -> None:
    changed = (("name", "value"), [("EXPORT_SCHEMA_VERSION", schema)])
    trace = tracesteps.read(export(tmp_path / "run.sqlite", {"META_DATA_EXPORT": changed}))
    assert ("nsys_newer_schema" in trace.notes) is newer
    assert trace.generation == schema
    assert len(trace.gpu.start) == 5


def test_graphs_recorded_as_a_whole_and_nsights_own_warnings(tmp_path: Path) -> None:
    trace = tracesteps.read(
        export(
            tmp_path / "run.sqlite",
            {
                "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": (("start", "end"), [(1, 2), (3, 4)]),
                "DIAGNOSTIC_EVENT": (("severity", "text"), [(1, "started"), (2, "lost events"), (3, "no access")]),
            },
        )
    )
    assert trace.notes["nsys_graphs_whole"] == 2
    assert trace.notes["nsys_diagnostics"] == 2


def test_no_ranges_of_operators(tmp_path: Path) -> None:
    trace = tracesteps.read(export(tmp_path / "run.sqlite", without=["NVTX_EVENTS"]))
    assert trace.notes["nsys_no_ops"] == 1
    assert len(trace.gpu.start) == 5


def test_nothing_of_the_environment_or_of_unused_texts_is_read(tmp_path: Path) -> None:
    shown = repr(tracesteps.read(export(tmp_path / "run.sqlite")))
    assert SECRET not in shown
    assert "secret-host" not in shown


def test_long_values_are_cut_before_they_are_fetched(tmp_path: Path) -> None:
    """Many rows are fetched at once: in any column, numbers too, a value may be of any length."""
    names, rows = TABLES["NVTX_EVENTS"]
    long = "x" * 500_000
    more: list[Any] = [(1400, 1500, 59, f"{number} {long}", None, tid(5), 0) for number in range(20)]
    more += [(long.encode(), 1500, 59, "a time that is none", None, tid(5), 0)]
    path = export(tmp_path / "run.sqlite", {"NVTX_EVENTS": (names, [*rows, *more])})
    tracemalloc.start()
    trace = tracesteps.read(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert sum(name.endswith("xxx") for name in trace.names) == 20
    assert peak < 5_000_000


def test_a_view_is_no_table(tmp_path: Path) -> None:
    """A view may compute for ever."""
    path = export(tmp_path / "run.sqlite", without=["CUPTI_ACTIVITY_KIND_KERNEL"])
    database = sqlite3.connect(path)
    database.execute(
        "CREATE VIEW CUPTI_ACTIVITY_KIND_KERNEL AS "
        "WITH RECURSIVE n(start) AS (SELECT 1 UNION ALL SELECT start + 1 FROM n)"
        " SELECT start, start + 1 AS end, 0 AS deviceId, 7 AS streamId FROM n"
    )
    database.commit()
    database.close()
    assert not (tracesteps.read(path).gpu.kind == columns.GpuKind.KERNEL).any()


def test_what_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "run.sqlite"
    with pytest.raises(errors.UsageError, match="no export of Nsight Systems"):
        tracesteps.read(export(path, {"other": (("a",), [(1,)])}, without=TABLES))
    with pytest.raises(errors.UsageError, match="holds no kernels"):
        tracesteps.read(export(path, without=[name for name in TABLES if name.startswith(("CUPTI", "NVTX"))]))
    data = export(path).read_bytes()
    path.write_bytes(data[: len(data) // 2])
    with pytest.raises(errors.UsageError, match=r"damaged|holds no|no export"):
        tracesteps.read(path)
    path.write_bytes(b"SQLite format 3\0" + b"x" * 5000)
    with pytest.raises(errors.UsageError, match="damaged"):
        tracesteps.read(path)


def test_an_export_is_only_read(tmp_path: Path) -> None:
    path = export(tmp_path / "run.sqlite")
    before = path.read_bytes()
    path.chmod(0o400)
    tracesteps.read(path)
    assert path.read_bytes() == before
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["run.sqlite"]


def test_names_of_calls(tmp_path: Path) -> None:
    """Without the version of CUDA, and without what tells of its stream."""
    names, rows = TABLES["StringIds"]
    changed = [*rows, (6, "cudaLaunchKernelExC_v11060_ptsz"), (7, "cuLaunchKernel")]
    calls, _ = TABLES["CUPTI_ACTIVITY_KIND_RUNTIME"]
    made = [(1500 + name, 1600 + name, tid(5), name, name) for name in (3, 6, 7)]
    path = export(tmp_path / "a.sqlite", {"StringIds": (names, changed), "CUPTI_ACTIVITY_KIND_RUNTIME": (calls, made)})
    trace = tracesteps.read(path)
    assert [trace.names[name] for name in trace.calls.name] == [
        "cudaLaunchKernel", "cudaLaunchKernelExC", "cuLaunchKernel",
    ]  # fmt: skip


def test_a_report_without_nsys_says_how(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tracesteps.no_nsys(monkeypatch, tmp_path)
    path = tmp_path / "run.nsys-rep"
    path.write_bytes(b"report")
    with pytest.raises(errors.UsageError, match="nsys") as error:
        tracesteps.read(path)
    assert "nsys export --type sqlite" in error.value.hint


FAKE = """#!/bin/sh
[ "$1 $2 $3 $4" = "export --type sqlite --output" ] || exit 9
case "$6" in */broken*) echo "cannot open report" >&2; exit 1;; esac
cp "$EXPORT" "$5"
"""


def test_a_report_goes_through_nsys_export(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "nsys").write_text(FAKE)
    (tools / "nsys").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    monkeypatch.setenv("EXPORT", str(export(tmp_path / "export.sqlite")))
    report = tmp_path / "-run one.nsys-rep"
    report.write_bytes(b"report")
    trace = tracesteps.read(report)
    assert (trace.file, trace.size, len(trace.gpu.start)) == ("-run one.nsys-rep", 6, 5)
    broken = tmp_path / "broken.nsys-rep"
    broken.write_bytes(b"report")
    with pytest.raises(errors.UsageError, match="cannot open report"):
        tracesteps.read(broken)


VALUES = st.none() | st.integers(-(2**63), 2**63 - 1) | st.floats() | st.text(max_size=8) | st.binary(max_size=8)


def test_a_kernel_that_outlasts_those_after_it_on_its_stream(tmp_path: Path) -> None:
    names, rows = TABLES["CUPTI_ACTIVITY_KIND_KERNEL"]
    changed = [list(each) for each in rows]
    changed[0][names.index("end")] = 1_009_501
    trace = tracesteps.read(export(tmp_path / "run.sqlite", {"CUPTI_ACTIVITY_KIND_KERNEL": (names, changed)}))
    assert (trace.gpu.end >= trace.gpu.start).all()


@settings(max_examples=amount.examples(150), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    table=st.sampled_from(sorted(TABLES)),
    row=st.integers(0, 7),
    column=st.integers(0, 20),
    value=VALUES,
)
def test_fuzz_values(table: str, row: int, column: int, value: object, tmp_path: Path) -> None:
    names, rows = TABLES[table]
    changed = [list(each) for each in rows]
    changed[row % len(changed)][column % len(names)] = value
    trace = tracesteps.read(export(tmp_path / "run.sqlite", {table: (names, changed)}))
    assert (trace.gpu.end >= trace.gpu.start).all()
    assert (trace.ops.end >= trace.ops.start).all()
    for key, count in trace.notes.items():
        assert tracesteps.sentence(key, count)


@settings(max_examples=amount.examples(150), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(changes=st.lists(st.tuples(st.floats(0, 1), st.binary(min_size=1, max_size=8)), min_size=1, max_size=6))
def test_fuzz_bytes(changes: list[tuple[float, bytes]], tmp_path: Path) -> None:
    path = export(tmp_path / "run.sqlite")
    data = bytearray(path.read_bytes())
    for place, new in changes:
        at = 16 + int(place * (len(data) - 32))
        data[at : at + len(new)] = new
    path.write_bytes(data)
    trace = read_or_refused(path)
    if trace is not None:
        assert (trace.gpu.end >= trace.gpu.start).all()
