"""Public profiles against sums and unions made by hand from the file itself, and against HTA where that is installed.

Set GPUPREP_PUBLIC_TRACES to a folder with profiles. HTA is `traceinsight` on PyPI; it is no dependency of gpuprep.
"""

from __future__ import annotations

import gzip
import json
import os
from bisect import bisect_right
from collections import defaultdict
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

import amount
import numpy as np
import pytest
import tracesteps

from gpuprep.trace import document, profile

FOLDER = Path(os.environ.get("GPUPREP_PUBLIC_TRACES") or "/nonexistent")
PUBLIC = sorted(FOLDER.glob("*.json.gz"))
OWN = sorted((Path(__file__).parent / "recorded").glob("*.json.gz"))
GPU = {"kernel", "gpu_memcpy", "gpu_memset", "Kernel", "Memcpy", "Memset"}
OPS = {"cpu_op", "Operator"}
NAMED_BY_PROGRAM = ("ProfilerStep#", "Optimizer.", "enumerate(DataLoader)")  # operators of the first generation
CALLS = {"cuda_runtime", "cuda_driver", "Runtime"}


def name_of(path: Path) -> str:
    return path.name.removesuffix(".json.gz")


needs_public = pytest.mark.skipif(not PUBLIC, reason="GPUPREP_PUBLIC_TRACES is not set")


@cache
def opened(path: Path) -> tuple[profile.Profile, document.TraceDocument]:
    made = tracesteps.linked(tracesteps.read(path))
    return made, tracesteps.summed(made)


@cache
def by_hand(path: Path) -> list[dict[str, Any]]:
    """Events as the standard library reads them, times as whole nanoseconds by decimal arithmetic."""
    found = json.loads(gzip.decompress(path.read_bytes()), strict=False, parse_float=Decimal)
    events = [event for event in found["traceEvents"] if event.get("ph") == "X" and event.get("cat") != "Trace"]
    for event in events:
        event["start"] = int((Decimal(event["ts"]) * 1000).to_integral_value())
        event["end"] = event["start"] + int((Decimal(event["dur"]) * 1000).to_integral_value())
    return events


def union_by_hand(intervals: list[tuple[int, int]]) -> int:
    total, reached = 0, min(start for start, _ in intervals)
    for start, end in sorted(intervals):
        total += max(0, end - max(start, reached))
        reached = max(reached, end)
    return total


@pytest.mark.parametrize("path", [*PUBLIC, *amount.third(OWN)], ids=name_of)
def test_span_busy_sums_and_counts_are_those_of_a_union_by_hand(path: Path) -> None:
    events: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for event in by_hand(path):
        if event["cat"] in GPU:
            events[event["args"]["device"]].append(event)
    made = {device.device: device for device in opened(path)[1].file.devices}
    assert made.keys() == events.keys()
    for number, mine in events.items():
        device = made[number]
        kernels = [event for event in mine if event["cat"] in ("kernel", "Kernel")]
        others = [event for event in mine if event["cat"] not in ("kernel", "Kernel")]
        span = max(event["end"] for event in mine) - min(event["start"] for event in mine)
        busy = union_by_hand([(event["start"], event["end"]) for event in mine])
        assert (device.kernels, device.memory_operations) == (len(kernels), len(others))
        assert device.kernel_time_us == sum(event["end"] - event["start"] for event in kernels) / 1000
        assert device.memory_time_us == sum(event["end"] - event["start"] for event in others) / 1000
        assert device.span_us == pytest.approx(span / 1000, rel=1e-6)
        assert device.busy_us == pytest.approx(busy / 1000, rel=1e-6)


@pytest.mark.parametrize("path", [*PUBLIC, *amount.third(OWN)], ids=name_of)
def test_every_kernel_whose_launch_lies_inside_an_op_is_attributed_to_the_innermost(path: Path) -> None:
    """By the last range that is open when the call begins. Of ops with the same times any is right."""
    events = by_hand(path)
    threads: dict[Any, list[tuple[int, int]]] = defaultdict(list)
    names: dict[Any, set[str]] = defaultdict(set)
    for event in events:
        if event["cat"] in OPS and not event["name"].startswith(NAMED_BY_PROGRAM):
            thread = (str(event["pid"]), str(event["tid"]))
            threads[thread].append((event["start"], -event["end"]))
            names[thread, event["start"], event["end"]].add(event["name"])
    for ranges in threads.values():
        ranges.sort()
    calls = {event["args"]["correlation"]: event for event in events if event["cat"] in CALLS and "args" in event}
    expected: dict[Any, list[tuple[int, set[str]]]] = defaultdict(list)
    inside = 0
    for event in events:
        call = calls.get(event["args"]["correlation"]) if event["cat"] in GPU else None
        if call is None:
            continue
        thread = (str(call["pid"]), str(call["tid"]))
        ranges = threads[thread]
        at = bisect_right(ranges, (call["start"], 0)) - 1
        while at >= 0 and -ranges[at][1] <= call["start"]:
            at -= 1
        allowed = names[thread, ranges[at][0], -ranges[at][1]] if at >= 0 else set()
        expected[event["name"], event["args"]["correlation"]].append((event["start"], allowed))
        inside += at >= 0

    made = opened(path)[0]
    gpu = made.trace.gpu
    found: dict[Any, list[tuple[int, int]]] = defaultdict(list)
    for row, (name, correlation, start) in enumerate(
        zip(gpu.name.tolist(), gpu.correlation.tolist(), gpu.start.tolist(), strict=True)
    ):
        found[made.trace.names[name], correlation].append((start, row))
    checked = 0
    for key, wanted in expected.items():
        mine = sorted(found[key])
        assert len(mine) == len(wanted)
        for (_, allowed), (_, row) in zip(sorted(wanted, key=lambda each: each[0]), mine, strict=True):
            if allowed:
                assert made.gpu.op[row] != profile.NO_OP
                assert made.ops[made.gpu.op[row]].type in allowed
                checked += 1
    assert checked == inside


# ------------------------------------------------------------------------------------------------------------- HTA

# What HTA 0.6.1 is known to do otherwise, by file: rows that it counts as work of the GPU.
FAULTS = {
    "hta-triton": lambda event: event["cat"] == "cpu_op" and "stream" in event["args"],  # a Triton op
    "hta-alexnet-cuda-sync": lambda event: event["cat"] == "cuda_sync",
    "hta-event-sync": lambda event: event["cat"] == "cuda_sync" and event["args"]["stream"] >= 0,
}


@needs_public
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("path", PUBLIC, ids=name_of)
def test_span_busy_time_and_iterations_equal_those_of_hta(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTA_DISABLE_NS_ROUNDING", "1")  # otherwise it rounds to whole microseconds
    analysis = pytest.importorskip("hta.trace_analysis")
    found = analysis.TraceAnalysis(
        trace_files={0: str(path)}, trace_dir=str(path.parent), include_last_profiler_step=True
    )
    line = found.get_temporal_breakdown(visualize=False).iloc[0]
    span, busy = line["kernel_time(us)"], line["kernel_time(us)"] - line["idle_time(us)"]
    made, shown = opened(path)
    device = shown.file.devices[0]
    frame = found.t.get_trace(0)
    work = frame[frame.stream >= 0]
    if name_of(path) in FAULTS:
        assert len(work) == len(made.trace.gpu.start) + sum(map(FAULTS[name_of(path)], by_hand(path)))
        assert busy > device.busy_us + 0.1
        return
    # HTA keeps times as floats; of times since 1970 these have 0.25 µs.
    assert span == pytest.approx(device.span_us, abs=0.1)
    assert busy == pytest.approx(device.busy_us, abs=0.1)
    assert len(work) == len(made.trace.gpu.start)
    if made.iterations.how == "ProfilerStep":
        theirs = {f"ProfilerStep#{step}": count for step, count in work.iteration.value_counts().items() if step >= 0}
        calls = np.bincount(
            made.cells.iteration[made.cells.iteration >= 0], made.cells.calls[made.cells.iteration >= 0]
        )
        assert theirs == dict(zip(made.iterations.names, calls.tolist(), strict=True))
