"""The traces that were recorded on a real GPU, against what was measured and what torch itself said beside them."""

from __future__ import annotations

import gzip
import json
import re
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import Any

import amount
import numpy as np
import pytest
import tracesteps
from places import ROOT

from gpuprep.trace import columns, profile

RECORDED = Path(__file__).parent / "recorded"
MANIFEST: dict[str, Any] = json.loads((RECORDED / "manifest.json").read_text())
CASES: dict[str, Any] = MANIFEST["cases"]
SOME = amount.third(CASES)
ONE_RANK = [name for name in SOME if not name.startswith("ddp-")]
RULES = ROOT / "gpuprep" / "trace" / "advice" / "rules.yml"


@cache
def opened(name: str) -> profile.Profile:
    return tracesteps.linked(tracesteps.read(RECORDED / CASES[name]["file"]))


def test_the_manifest_and_the_folder_agree() -> None:
    assert {case["file"] for case in CASES.values()} == {file.name for file in RECORDED.glob("*.json.gz")}
    assert len(CASES) >= 30
    assert MANIFEST["machine"]["gpu"] == "NVIDIA H100 80GB HBM3"
    assert not MANIFEST["settings"]["tiny"]
    for pair in MANIFEST["pairs"]:
        before, after = (CASES[pair[which]]["step_ms"]["median"] for which in ("before", "after"))
        assert pair["gain_ms"] == pytest.approx(before - after, abs=1e-3)
        assert pair["gain_ms"] > 0, pair


def test_every_pair_names_a_rule_that_is_there() -> None:
    rules = re.findall(r"^([a-z0-9-]+):$", RULES.read_text(), re.MULTILINE)
    assert {pair["rule"] for pair in MANIFEST["pairs"]} <= set(rules)
    assert len({pair["rule"] for pair in MANIFEST["pairs"]}) >= 12


@pytest.mark.parametrize("name", SOME)
def test_a_trace_is_read_whole(name: str) -> None:
    made = opened(name)
    trace, case = made.trace, CASES[name]
    raw = json.loads(gzip.decompress((RECORDED / case["file"]).read_bytes()))
    events = [event for event in raw["traceEvents"] if event.get("ph") == "X"]
    for kind, category in zip(columns.GpuKind, ("kernel", "gpu_memcpy", "gpu_memset"), strict=True):
        of = [event for event in events if event.get("cat") == category]
        mine = trace.gpu.kind == kind
        assert int(mine.sum()) == len(of)
        length = sum(event["dur"] for event in of) * 1000
        assert int((trace.gpu.end - trace.gpu.start)[mine].sum()) == pytest.approx(length, abs=0.01 * len(of) + 1)
    assert not trace.notes
    assert made.iterations.how == "ProfilerStep"
    assert len(made.iterations.names) == case.get("active_steps", 3)
    assert trace.devices[0].name == MANIFEST["machine"]["gpu"]


@pytest.mark.parametrize("name", ONE_RANK)
def test_the_steps_are_as_long_as_the_clock_beside_the_profiler_said(name: str) -> None:
    """Of all profiled steps together. The script's clock starts and ends a little beside the first and last step."""
    steps = opened(name).iterations
    length = float(steps.until.max() - steps.start.min()) / 1e6 / len(steps.names)
    assert length == pytest.approx(CASES[name]["profiled_step_ms"], rel=0.03, abs=0.3)


@pytest.mark.parametrize("name", ONE_RANK)
def test_the_step_without_the_profiler_is_where_the_report_says(name: str) -> None:
    told, truth = tracesteps.slowdown(opened(name)), 1e3 * CASES[name]["step_ms"]["median"]
    assert told.least_us is not None
    assert told.most_us is not None
    assert told.least_us <= 1.05 * truth
    assert truth <= 1.05 * told.most_us


@pytest.mark.parametrize("name", ONE_RANK)
def test_every_kernel_has_a_launch_and_those_of_ops_have_an_op(name: str) -> None:
    made = opened(name)
    kernels = made.trace.gpu.kind == columns.GpuKind.KERNEL
    assert (made.gpu.call[kernels] >= 0).all()
    if name != "launch-graph":  # its one launch is made by no op
        told = (made.gpu.instance[kernels] >= 0).mean()
        assert told > 0.99, f"{told:.3f} of the kernels have an op"


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if "key_averages" in case])
def test_gpu_time_by_op_is_what_torch_says(name: str) -> None:
    """torch.profiler's own key_averages() of the same run: self device time by name, in µs with three decimals."""
    made = opened(name)
    mine: dict[str, float] = defaultdict(float)
    for op, total in zip(made.cells.op.tolist(), made.cells.total.tolist(), strict=True):
        mine[made.ops[op].type] += total / 1000
    ops = {made.trace.names[index] for index in made.trace.ops.name[made.trace.ops.kind == columns.OpKind.OP]}
    theirs = {row["name"]: row["self_device_us"] for row in CASES[name]["key_averages"] if row["name"] in ops}
    assert len([time for time in theirs.values() if time]) >= 10
    for op, time in theirs.items():
        assert mine[op] == pytest.approx(time, abs=0.5), op


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if "flops_a_step" in case])
def test_flops_are_what_torch_counts(name: str) -> None:
    """FlopCounterMode of one step, against the ops of the trace with their shapes.

    One known fault of torch's counter (2.11): for the gradient of a grouped convolution's weight it forgets the
    groups, and counts all input channels for each output channel: as many times too much as there are groups.
    """
    made = opened(name)
    trace = made.trace
    counted: dict[str, float] = defaultdict(float)
    too_much = 0.0
    theirs = {op.replace("aten.", "aten::"): count for op, count in CASES[name]["flops_a_step"].items()}
    for row in np.flatnonzero((trace.ops.kind == columns.OpKind.OP) & (made.ranges.iteration == 0)).tolist():
        op = trace.names[trace.ops.name[row]]
        if op not in theirs or trace.ops.arguments[row] < 0:
            continue
        arguments = trace.arguments[trace.ops.arguments[row]]
        flops = made.ops[made.ranges.op[row]].flops
        counted[op] += flops
        if op == "aten::convolution_backward" and (groups := int(arguments.concrete[9])) > 1:
            asked = arguments.concrete[10].count("True", 0, len("[True, True"))
            too_much += (groups - 1) * flops / asked
    assert too_much > 0
    theirs["aten::convolution_backward"] -= round(too_much)
    for op, count in theirs.items():
        assert counted[op] == pytest.approx(count, rel=1e-9), op


def test_no_folder_of_a_machine_is_in_a_trace() -> None:
    for case in CASES.values():
        text = gzip.decompress((RECORDED / case["file"]).read_bytes())
        assert not re.search(rb'"[^"]*/(root|home|tmp|opt|usr|mnt|work)/', text), case["file"]
