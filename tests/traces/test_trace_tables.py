"""Tables are sums of one set of cells: they agree with each other and with a sum by hand."""

from __future__ import annotations

import json
import math
from itertools import pairwise
from typing import Any

import amount
import jsonschema
import numpy as np
import pytest
import tracesteps
from handmade import Call, Gpu, Op, launched, step, trace
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuprep import errors
from gpuprep.trace import columns, document, formats

HALF = columns.Arguments(shapes=((64, 64), (64, 64)), dtypes=("c10::Half", "c10::Half"))
TENSOR, PLAIN = "ampere_fp16_s16816gemm_fp16_128x128_ldg8_f2f_nn", "ampere_sgemm_128x64_nn"


def two_steps() -> columns.Trace:
    """Two streams that overlap, two devices, a copy; times in µs, to be read easily."""
    us = 1000
    rows: list[Any] = [
        step(1, 0, 100 * us),
        step(2, 100 * us, 200 * us),
        Op("aten::mm", 10 * us, 30 * us, arguments=HALF),
        Op("aten::mm", 110 * us, 130 * us, arguments=HALF),
        Op("aten::copy_", 40 * us, 50 * us),
        *launched(TENSOR, 15 * us, 20 * us, 60 * us, 1),
        *launched(PLAIN, 45 * us, 50 * us, 70 * us, 2, stream=8),
        *launched("Memcpy HtoD (Pageable -> Device)", 46 * us, 90 * us, 95 * us, 3, kind=columns.GpuKind.MEMCPY),
        *launched(TENSOR, 115 * us, 120 * us, 220 * us, 4),
        *launched(TENSOR, 116 * us, 120 * us, 140 * us, 5, device=1),
        Gpu("old", 2 * us, 4 * us, 99),
    ]
    return trace(
        *rows,
        devices=(columns.Device(0, "A", "8.0", 108, 40), columns.Device(1, "B", "8.0"), columns.Device(2, "unused")),
    )


def test_the_summary_of_all_iterations() -> None:
    made = tracesteps.summed(tracesteps.linked(two_steps()))
    summary = made.summary
    assert (summary.start_iteration, summary.stop_iteration, summary.iterations, summary.total_iterations) == (
        0,
        1,
        2,
        2,
    )
    assert summary.split_by == "ProfilerStep"
    assert summary.wall_us == 210.0  # from the first op at 10 to the last end at 220
    assert summary.average_iteration_us == 105.0
    # Device 0: 20 to 70, 90 to 95, 120 to 220; device 1: 120 to 140.
    assert summary.gpu_busy_us == (155 + 20) / 2
    assert summary.gpu_utilization_percent == pytest.approx(100 * (155 + 20) / 2 / 210)
    assert (summary.kernels, summary.kernel_time_us) == (4, 180.0)
    assert (summary.memory_operations, summary.memory_time_us) == (1, 5.0)
    assert (summary.tensor_core_kernels, summary.tensor_core_kernel_time_us) == (3, 160.0)
    assert (summary.eligible_op_time_us, summary.tensor_core_efficiency_percent) == (160.0, 100.0)
    assert (summary.ops_using_tensor_cores, summary.ops_eligible_not_using, summary.other_ops) == (1, 0, 1)


def test_the_totals_of_the_whole_file_by_device() -> None:
    one, two = tracesteps.summed(tracesteps.linked(two_steps()), 1, 1).file.devices
    assert (one.device, one.name, one.sms, one.memory_bytes) == (0, "A", 108, 40)
    assert (one.kernels, one.kernel_time_us, one.memory_operations, one.memory_time_us) == (4, 162.0, 1, 5.0)
    assert (one.busy_us, one.span_us) == (157.0, 218.0)
    assert (two.kernels, two.busy_us, two.span_us, two.sms, two.memory_bytes) == (1, 20.0, 20.0, None, None)
    assert one.utilization_percent == pytest.approx(100 * 100 / 110)  # of the second iteration, 110 to 220


def test_one_iteration() -> None:
    made = tracesteps.summed(tracesteps.linked(two_steps()), 0, 0)
    assert (made.summary.iterations, made.summary.kernels, made.summary.wall_us) == (1, 2, 85.0)
    assert [line.profiled for line in made.iterations] == [True, False]
    first, second = made.iterations
    assert (first.start_us, first.wall_us, first.busy_us) == (10.0, 85.0, 55.0 / 2)
    assert (first.gpu_time_us, first.tensor_core_time_us, first.other_kernel_time_us, first.memory_time_us) == (
        32.5, 20.0, 10.0, 2.5,
    )  # fmt: skip
    assert (second.kernels, second.tensor_core_kernels, second.gpu_time_us) == (2, 2, 60.0)


def test_an_op_has_its_own_gpu_time_and_that_of_the_ops_inside() -> None:
    rows: list[Any] = [Op("outer", 0, 100_000), Op("aten::mm", 10_000, 50_000, arguments=HALF)]
    made = tracesteps.summed(
        tracesteps.linked(
            trace(*rows, *launched(TENSOR, 20_000, 60_000, 64_000, 1), *launched("k", 60_000, 70_000, 71_000, 2))
        )
    )
    mm, outer = made.ops
    assert (mm.type, mm.gpu_us, mm.gpu_with_children_us, mm.kernel_calls) == ("aten::mm", 4.0, 4.0, 1)
    assert (outer.gpu_us, outer.gpu_with_children_us, outer.cpu_us) == (1.0, 5.0, 100.0)
    assert mm.flops == 2.0 * 64**3
    assert mm.tflops == pytest.approx(2.0 * 64**3 / 4e-6 / 1e12)
    assert (mm.eligible, mm.using_tensor_cores, mm.dtypes) == (True, True, "c10::Half, c10::Half")


def test_types_of_ops_have_the_spread_of_single_calls() -> None:
    rows = [Op("aten::mm", 0, 10_000), Op("aten::mm", 20_000, 50_000), *launched("k", 25_000, 60_000, 66_000, 1)]
    (line,) = tracesteps.summed(tracesteps.linked(trace(*rows))).op_types
    assert (line.type, line.ops, line.calls) == ("aten::mm", 1, 2)
    assert (line.cpu_us.total, line.cpu_us.average, line.cpu_us.shortest, line.cpu_us.longest) == (40, 20, 10, 30)
    assert (line.gpu_us.total, line.gpu_us.average, line.gpu_us.shortest, line.gpu_us.longest) == (6, 3, 0, 6)


def test_work_without_an_op_has_the_spread_of_its_kernels() -> None:
    rows: list[Any] = [Op("aten::mm", 0, 10_000), Gpu("a", 0, 2_000), Gpu("b", 0, 6_000)]
    line = tracesteps.summed(tracesteps.linked(trace(*rows))).op_types[0]
    assert (line.type, line.ops, line.calls) == ("the profile has no calls that launch", 1, 0)
    assert (line.gpu_us.total, line.gpu_us.average, line.gpu_us.shortest, line.gpu_us.longest) == (8, 4, 2, 6)


def test_a_module_counts_all_modules_inside() -> None:
    rows: list[Any] = [
        Op("nn.Module: Net_0", 0, 100_000, kind=columns.OpKind.MODULE),
        Op("nn.Module: Linear_0", 10_000, 50_000, kind=columns.OpKind.MODULE),
        Op("aten::mm", 20_000, 40_000, arguments=HALF),
        Op("aten::sum", 60_000, 80_000),
        *launched(TENSOR, 30_000, 60_000, 64_000, 1),
        *launched("sum", 70_000, 80_000, 81_000, 2),
    ]
    outer, inner = tracesteps.summed(tracesteps.linked(trace(*rows))).modules
    assert (outer.module, outer.calls, outer.gpu_us, outer.tensor_core_time_us, outer.cpu_us) == ("Net_0", 1, 5, 4, 100)
    assert (inner.module, inner.gpu_us, inner.cpu_us) == ("Net_0/Linear_0", 4, 40)


def test_modules_stand_as_a_tree_and_layer_2_above_layer_10() -> None:
    net = ["Layer_10", "Layer_2", "Layer_2/Linear_4", "Head", "Layer_" + "9" * 300]
    paths = ["Net", *(f"Net/{name}" for name in net), "Net-b"]  # "-" is before "/" in every character set
    rows: list[Any] = []
    for number, path in enumerate(paths):
        begin, depth = 1_000 * number, path.count("/")
        length = {"Net": 6_000 - 100, "Net/Layer_2": 2_000 - 100}.get(path, 500)
        rows.append(
            Op(f"nn.Module: {path.rpartition('/')[2]}", begin + depth, begin + length, kind=columns.OpKind.MODULE)
        )
    made = [line.module for line in tracesteps.summed(tracesteps.linked(trace(*rows))).modules]
    in_order = ["Head", "Layer_2", "Layer_2/Linear_4", "Layer_10", "Layer_" + "9" * 300]
    assert made == ["Net", *(f"Net/{name}" for name in in_order), "Net-b"]


def test_without_gpu_work_nothing_is_called_zero_percent() -> None:
    made = tracesteps.summed(tracesteps.linked(trace(Op("aten::mm", 0, 10))))
    assert made.file.devices == ()
    assert made.summary.gpu_utilization_percent is None
    assert made.summary.tensor_core_efficiency_percent is None
    assert (made.summary.kernels, made.summary.kernel_time_us) == (0, 0)


def test_iterations_that_are_not_there_are_an_error_of_the_user() -> None:
    made = tracesteps.linked(two_steps())
    for start, stop in ((2, 2), (-1, 0), (1, 0), (0, 2)):
        with pytest.raises(errors.UsageError, match="the profile has 2 iterations, 0 to 1"):
            tracesteps.summed(made, start, stop)


def test_what_was_left_out_is_told() -> None:
    made = trace(Op("aten::mm", 0, 10), notes={"negative_durations": 12})
    (note,) = tracesteps.summed(tracesteps.linked(made)).file.notes
    assert (note.id, note.count) == ("negative_durations", 12)
    assert "12" in note.text


# ------------------------------------------------------------------------------------------------------ properties

moments = st.integers(0, 400)


@st.composite
def profiles(draw: st.DrawFn) -> columns.Trace:
    """Steps that touch, ops that nest or overlap on two threads, kernels on two devices and three streams."""
    borders = sorted(set(draw(st.lists(moments, min_size=2, max_size=5))))
    rows: list[Any] = [step(n, a, b) for n, (a, b) in enumerate(pairwise(borders))]
    for start, length, thread, name, given_ in draw(
        st.lists(
            st.tuples(moments, st.integers(0, 120), st.integers(0, 1), st.sampled_from("abc"), st.booleans()),
            max_size=25,
        )
    ):
        name = "aten::mm" if given_ else name
        rows.append(Op(name, start, start + length, thread, arguments=HALF if given_ else None))
    kernels = draw(
        st.lists(
            st.tuples(moments, st.integers(-5, 90), st.integers(0, 80), st.integers(0, 1), st.integers(0, 1),
                      st.sampled_from((TENSOR, PLAIN, "odd", "Memcpy HtoD")), st.booleans()),
            max_size=25,
        )
    )  # fmt: skip
    for number, (at, delay, length, thread, device, name, has_call) in enumerate(kernels, 1):
        kind = columns.GpuKind.MEMCPY if name.startswith("Mem") else columns.GpuKind.KERNEL
        rows.append(Gpu(name, at + delay, at + delay + length, number, kind, device, stream=number % 3))
        if has_call:
            rows.append(Call(at, at + 2, number, thread))
    return trace(*rows)


def close(one: float, two: float) -> bool:
    return math.isclose(one, two, rel_tol=1e-9, abs_tol=1e-9)


def check(made: document.TraceDocument) -> None:
    summary, gpu = made.summary, sum(line.total_us for line in made.kernels)
    assert close(summary.kernel_time_us + summary.memory_time_us, gpu)
    assert close(sum(line.gpu_us for line in made.ops), gpu)
    assert close(sum(line.gpu_us.total for line in made.op_types), gpu)
    assert sum(line.calls for line in made.kernels) == summary.kernels + summary.memory_operations
    assert sum(line.kernel_calls for line in made.ops) == summary.kernels
    assert sum(line.ops for line in made.op_types) == len(made.ops)
    assert sum(line.calls for line in made.op_types) == sum(line.calls for line in made.ops)
    assert close(sum(line.cpu_us.total for line in made.op_types), sum(line.cpu_us for line in made.ops))
    parts = (
        summary.ops_using_tensor_cores_time_us,
        summary.ops_eligible_not_using_time_us,
        summary.other_ops_time_us,
    )
    assert close(sum(parts), gpu)
    assert summary.ops_using_tensor_cores + summary.ops_eligible_not_using + summary.other_ops == len(made.ops)
    assert summary.tensor_core_kernel_time_us <= summary.kernel_time_us
    assert close(
        summary.tensor_core_kernel_time_us,
        sum(line.total_us for line in made.kernels if line.tensor_cores == "yes"),
    )
    assert summary.gpu_busy_us <= summary.wall_us
    for line in made.iterations:
        assert line.busy_us <= line.wall_us
        assert close(line.gpu_time_us, line.tensor_core_time_us + line.other_kernel_time_us + line.memory_time_us)
    for device in made.file.devices:
        assert device.busy_us <= device.span_us
        assert device.busy_us <= device.kernel_time_us + device.memory_time_us + 1e-9
        assert device.utilization_percent is None or 0 <= device.utilization_percent <= 100
    for op in made.ops:
        assert op.gpu_with_children_us >= op.gpu_us
        assert 0 <= op.cpu_overhead_us <= op.cpu_us
    for kind in made.op_types:
        for spread in (kind.cpu_us, kind.gpu_us, kind.cpu_overhead_us, kind.gpu_idle_us):
            assert spread.shortest <= spread.average + 1e-9
            assert spread.average <= spread.longest + 1e-9
    for kernel in made.kernels:
        assert kernel.shortest_us <= kernel.average_us + 1e-9
        assert kernel.average_us <= kernel.longest_us + 1e-9


@given(profiles())
@settings(max_examples=amount.examples(150), deadline=None)
def test_cells_sum_to_totals_and_unions_stay_below_sums(found: columns.Trace) -> None:
    made = tracesteps.linked(found)
    check(tracesteps.summed(made))
    # All GPU events are in the cells, and all ops that are no step in the cells of ops.
    assert made.cells.calls.sum() == len(found.gpu.start)
    assert made.cells.total.sum() == (found.gpu.end - found.gpu.start).sum()
    assert made.op_cells.calls.sum() == (made.ranges.op >= 0).sum()
    assert made.op_cells.cpu_self.sum() == made.ranges.cpu_self.sum()
    # The CPU time of a thread's outermost ops is the sum of all own times, for no moment counts twice.
    for thread in (0, 1):
        mine = (found.ops.thread == thread) & (made.ranges.op >= 0)
        assert (made.ranges.cpu_self[mine] >= 0).all()


@given(profiles(), st.data())
@settings(max_examples=amount.examples(150), deadline=None)
def test_a_range_of_iterations_is_the_sum_of_its_iterations(found: columns.Trace, data: st.DataObject) -> None:
    made = tracesteps.linked(found)
    last = len(made.iterations.start) - 1
    start = data.draw(st.integers(0, last))
    stop = data.draw(st.integers(start, last))
    whole = tracesteps.summed(made, start, stop)
    check(whole)
    single = [tracesteps.summed(made, at, at) for at in range(start, stop + 1)]
    for field in (
        "kernels", "kernel_time_us", "memory_operations", "memory_time_us", "tensor_core_kernels",
        "tensor_core_kernel_time_us", "unknown_kernel_time_us", "eligible_op_time_us", "tensor_core_time_elsewhere_us",
    ):  # fmt: skip
        assert close(getattr(whole.summary, field), sum(getattr(each.summary, field) for each in single)), field
    for table, fields in (
        (
            "ops",
            ("calls", "kernel_calls", "gpu_us", "gpu_with_children_us", "cpu_us", "cpu_overhead_us", "gpu_idle_us"),
        ),
        ("kernels", ("calls", "total_us")),
    ):
        for field in fields:
            parts: dict[int, float] = {}
            for each in single:
                for line in getattr(each, table):
                    parts[line.id] = parts.get(line.id, 0) + getattr(line, field)
            together = {line.id: getattr(line, field) for line in getattr(whole, table)}
            assert together.keys() == parts.keys()
            assert all(close(together[key], parts[key]) for key in together), (table, field)
    # Totals of the file do not depend on the range.
    fields_of_file = ("kernels", "kernel_time_us", "busy_us", "span_us")
    for each in single:
        for one, two in zip(each.file.devices, whole.file.devices, strict=True):
            assert [getattr(one, field) for field in fields_of_file] == [
                getattr(two, field) for field in fields_of_file
            ]


# ---------------------------------------------------------------------------------------------------------- schema


@given(profiles())
@settings(max_examples=amount.examples(20), deadline=None)
def test_documents_fit_the_schema(found: columns.Trace) -> None:
    validator = jsonschema.Draft202012Validator(tracesteps.schemas()["trace"])
    validator.validate(json.loads(formats.FORMATS["json"](tracesteps.summed(tracesteps.linked(found)))))
    assert np.isfinite(tracesteps.summed(tracesteps.linked(found)).summary.wall_us)


def test_a_document_of_another_version_does_not_fit() -> None:
    found = json.loads(formats.FORMATS["json"](tracesteps.summed(tracesteps.linked(two_steps()))))
    validator = jsonschema.Draft202012Validator(tracesteps.schemas()["trace"])
    validator.validate(found)
    assert not validator.is_valid({**found, "schema_version": document.SCHEMA_VERSION + 1})
    assert not validator.is_valid({key: value for key, value in found.items() if key != "summary"})
