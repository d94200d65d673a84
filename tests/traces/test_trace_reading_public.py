"""Every public trace against a plain computation: json.load with exact decimals, sqlite3 with joins, unions by hand."""

from __future__ import annotations

import gzip
import json
import sqlite3
from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import publictraces
import pytest
import tracesteps
from synthetic import union

from gpuprep.trace import columns

KINETO = publictraces.named(".json", ".json.gz")
NSYS = publictraces.named(".sqlite")
KERNEL, MEMCPY, MEMSET = columns.GpuKind.KERNEL, columns.GpuKind.MEMCPY, columns.GpuKind.MEMSET
GPU = {
    "kernel": KERNEL, "Kernel": KERNEL, "gpu_memcpy": MEMCPY, "Memcpy": MEMCPY, "gpu_memset": MEMSET, "Memset": MEMSET,
}  # fmt: skip
CALLS = ("cuda_runtime", "cuda_driver", "Runtime")
OPS = ("cpu_op", "user_annotation", "Operator", "python_function", "overhead")


def by_name(path: Path) -> str:
    return path.name


def nanoseconds(time: Any) -> int:
    return int((Decimal(time) * 1000).to_integral_value())


def plain(path: Path) -> list[dict[str, Any]]:
    opened: Callable[..., Any] = gzip.open if path.name.endswith(".gz") else open
    with opened(path, "rt", encoding="utf-8") as file:
        found = json.load(file, parse_float=Decimal, strict=False)
    events: list[dict[str, Any]] = found["traceEvents"]
    return events


def spans(trace: columns.Trace, rows: Any) -> list[tuple[int, int]]:
    return list(zip(trace.gpu.start[rows].tolist(), trace.gpu.end[rows].tolist(), strict=True))


@publictraces.needed
@pytest.mark.parametrize("path", KINETO, ids=by_name)
def test_gpu_events_sums_unions_and_spans_are_exact(path: Path) -> None:
    trace = tracesteps.read(path)
    events = [event for event in plain(path) if event["ph"] == "X" and event.get("cat") in GPU]
    devices = {event["args"]["device"] for event in events}
    assert set(trace.gpu.device.tolist()) == devices
    for device in devices:
        mine = [event for event in events if event["args"]["device"] == device]
        rows = trace.gpu.device == device
        for kind in columns.GpuKind:
            of_kind = rows & (trace.gpu.kind == kind)
            alike = [event for event in mine if GPU[event["cat"]] == kind]
            assert int(of_kind.sum()) == len(alike)
            assert int((trace.gpu.end - trace.gpu.start)[of_kind].sum()) == sum(
                nanoseconds(event["dur"]) for event in alike
            )
        intervals = [(nanoseconds(event["ts"]), nanoseconds(event["ts"]) + nanoseconds(event["dur"])) for event in mine]
        assert union(spans(trace, rows)) == union(intervals)
        begin, end = min(start for start, _ in intervals), max(end for _, end in intervals)
        assert int(trace.gpu.end[rows].max() - trace.gpu.start[rows].min()) == end - begin
    names = Counter(trace.names[name] for name in trace.gpu.name.tolist())
    assert names == Counter(event["name"] for event in events)
    assert Counter(trace.gpu.correlation.tolist()) == Counter(event["args"]["correlation"] for event in events)
    grids = Counter(tuple(event["args"]["grid"]) for event in events if "grid" in event["args"])
    assert Counter(tuple(row) for row in trace.gpu.grid.tolist() if row != [-1, -1, -1]) == grids


@publictraces.needed
@pytest.mark.parametrize("path", KINETO, ids=by_name)
def test_ops_and_calls_are_all_there_at_their_times(path: Path) -> None:
    trace = tracesteps.read(path)
    events = [event for event in plain(path) if event["ph"] == "X"]
    first = min(nanoseconds(event["ts"]) for event in events if event["cat"] in (*GPU, *CALLS, *OPS))
    for table, categories in ((trace.calls, CALLS), (trace.ops, OPS)):
        mine = [event for event in events if event["cat"] in categories]
        wanted = Counter(
            (event["name"], nanoseconds(event["ts"]) - first, nanoseconds(event["dur"]), str(event["pid"]))
            for event in mine
        )
        found = Counter(
            (trace.names[name], start, end - start, trace.processes[trace.threads[thread].process])
            for name, start, end, thread in zip(
                table.name.tolist(), table.start.tolist(), table.end.tolist(), table.thread.tolist(), strict=True
            )
        )
        assert found == wanted
        by_thread = Counter(table.thread.tolist())
        assert sorted(by_thread.values()) == sorted(Counter((str(e["pid"]), str(e["tid"])) for e in mine).values())
    memory = [event for event in plain(path) if event.get("name") == "[memory]"]
    assert int(trace.memory.bytes.sum()) == sum(event["args"]["Bytes"] for event in memory)


@publictraces.needed
@pytest.mark.parametrize("path", KINETO, ids=by_name)
def test_without_stacks_only_python_functions_are_missing(path: Path) -> None:
    whole, short = tracesteps.read(path), tracesteps.read(path, stacks=False)
    python = int((whole.ops.kind == columns.OpKind.PYTHON).sum())
    assert len(whole.ops.start) - len(short.ops.start) == python == short.notes.get("stacks_left_out", 0)
    assert short.gpu.start.tolist() == whole.gpu.start.tolist()


@publictraces.needed
@pytest.mark.parametrize("path", KINETO, ids=by_name)
def test_a_public_trace_needs_no_mending(path: Path) -> None:
    damage = {"mended_events", "unreadable_events", "torn", "impossible_times", "clipped_durations", "slow_pieces",
              "unknown_categories", "unreadable_end"}  # fmt: skip
    assert not damage & tracesteps.read(path).notes.keys()


@publictraces.needed
@pytest.mark.parametrize("path", NSYS, ids=by_name)
def test_exports_against_plain_sql(path: Path) -> None:
    trace = tracesteps.read(path)
    database = sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)
    tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master")}
    for table, kind in (
        ("KERNEL", columns.GpuKind.KERNEL),
        ("MEMCPY", columns.GpuKind.MEMCPY),
        ("MEMSET", columns.GpuKind.MEMSET),
    ):
        rows = trace.gpu.kind == kind
        if f"CUPTI_ACTIVITY_KIND_{table}" not in tables:
            assert not rows.any()
            continue
        question = f"SELECT deviceId, start, end FROM CUPTI_ACTIVITY_KIND_{table}"
        intervals = database.execute(question).fetchall()
        for device in {device for device, _, _ in intervals}:
            mine = [(start, end) for of, start, end in intervals if of == device]
            assert union(spans(trace, rows & (trace.gpu.device == device))) == union(mine)
            chosen = rows & (trace.gpu.device == device)
            assert int((trace.gpu.end - trace.gpu.start)[chosen].sum()) == sum(end - start for start, end in mine)
    joined = database.execute(
        "SELECT count(*) FROM CUPTI_ACTIVITY_KIND_KERNEL AS k JOIN CUPTI_ACTIVITY_KIND_RUNTIME AS r "
        "ON k.correlationId = r.correlationId AND (k.globalPid >> 24) = (r.globalTid >> 24)"
    ).fetchone()[0]
    calls = set(zip(trace.calls.process.tolist(), trace.calls.correlation.tolist(), strict=True))
    kernels = trace.gpu.kind == columns.GpuKind.KERNEL
    pairs = zip(trace.gpu.process[kernels].tolist(), trace.gpu.correlation[kernels].tolist(), strict=True)
    assert sum(pair in calls for pair in pairs) == joined
    names = database.execute(
        "SELECT value, count(*) FROM CUPTI_ACTIVITY_KIND_KERNEL JOIN StringIds ON demangledName = StringIds.id "
        "GROUP BY 1"
    )
    assert Counter(trace.names[name] for name in trace.gpu.name[kernels].tolist()) == Counter(dict(names.fetchall()))


@publictraces.needed
@pytest.mark.parametrize("path", NSYS, ids=by_name)
def test_nothing_of_the_environment_is_read(path: Path) -> None:
    database = sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)
    question = "SELECT value FROM TARGET_INFO_SYSTEM_ENV WHERE name = 'DeviceEnvironment'"
    secrets = [word for (text,) in database.execute(question) for word in text.split() if len(word) > 8]
    shown = repr(tracesteps.read(path))
    assert "must-never-be-shown" not in shown
    assert not [secret for secret in secrets if secret in shown]
