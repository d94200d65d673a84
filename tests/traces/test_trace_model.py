"""Kernel ► API call ► op ► iteration, on profiles of a few rows whose links are known."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import amount
import pytest
import tracesteps
from handmade import Call, Gpu, Op, launched, step, trace
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuprep import errors
from gpuprep.trace import columns, opening, profile


def op_of(made: profile.Profile, kernel: int = 0) -> str:
    return made.ops[int(made.gpu.op[kernel])].type


def test_a_kernel_belongs_to_the_innermost_op_around_its_launch() -> None:
    made = tracesteps.linked(
        trace(
            Op("aten::linear", 0, 100),
            Op("aten::addmm", 10, 60),
            Op("aten::relu", 70, 90),
            *launched("gemm", 20, 200, 300, 1),
            *launched("relu", 75, 300, 310, 2),
            *launched("linear", 95, 310, 320, 3),
        )
    )
    assert [op_of(made, kernel) for kernel in range(3)] == ["aten::addmm", "aten::relu", "aten::linear"]
    assert made.ranges.parent.tolist() == [columns.NONE, 0, 0]
    assert made.links.to_op == made.links.to_call == 3


def test_the_same_correlation_in_another_process_is_another_launch() -> None:
    made = tracesteps.linked(
        trace(
            Op("aten::mm", 0, 100, thread=0, process=0),
            Op("aten::add", 0, 100, thread=1, process=1),
            Call(10, 11, 5, thread=0, process=0),
            Call(10, 11, 5, thread=1, process=1),
            Gpu("one", 20, 30, 5, process=0),
            Gpu("two", 20, 30, 5, process=1, device=1),
        )
    )
    assert [op_of(made, 0), op_of(made, 1)] == ["aten::mm", "aten::add"]


def test_threads_have_stacks_of_their_own() -> None:
    made = tracesteps.linked(
        trace(Op("main", 0, 100), Op("aten::mm", 20, 40, thread=1), *launched("gemm", 30, 50, 60, 1))
    )
    assert op_of(made) == "main"


def test_of_ranges_with_the_same_times_the_first_numbered_is_outside() -> None:
    # Whole microseconds: aten::linear and aten::addmm begin and end together.
    rows = (Op("aten::addmm", 0, 5, external=8), Op("aten::linear", 0, 5, external=7))
    assert op_of(tracesteps.linked(trace(*rows, *launched("gemm", 2, 10, 20, 1)))) == "aten::addmm"
    assert op_of(tracesteps.linked(trace(*reversed(rows), *launched("gemm", 2, 10, 20, 1)))) == "aten::addmm"


def test_a_launch_at_the_moment_when_one_op_ends_and_the_next_begins_is_of_the_next() -> None:
    made = tracesteps.linked(trace(Op("aten::mm", 0, 10), Op("aten::add", 10, 20), *launched("add", 10, 30, 40, 1)))
    assert op_of(made) == "aten::add"


def test_ops_that_overlap_without_nesting_are_no_trouble() -> None:
    # A rounded end: the inner op ends after the outer one.
    made = tracesteps.linked(
        trace(Op("outer", 0, 10), Op("inner", 5, 11), Op("next", 12, 20), *launched("k", 10, 30, 40, 1))
    )
    assert op_of(made) == "inner"
    assert made.ranges.parent.tolist() == [columns.NONE, 0, columns.NONE]
    assert (made.ranges.cpu_self >= 0).all()
    assert made.ranges.cpu_self.tolist() == [5, 6, 8]


def test_a_kernel_that_was_launched_before_the_profile_began_counts_as_busy_and_has_no_op() -> None:
    made = tracesteps.linked(
        trace(step(1, 0, 100), Op("aten::mm", 5, 50), *launched("gemm", 10, 20, 30, 1), Gpu("old", 10, 15, 9))
    )
    assert made.gpu.op[1] == profile.NO_OP
    assert made.gpu.call[1] == columns.NONE
    assert made.gpu.iteration[1] == profile.OUTSIDE
    assert made.ops[profile.NO_OP].name == "launched before the profile began"
    assert made.busy.tolist() == [[15.0]]


def test_a_launch_outside_of_every_op_says_so() -> None:
    made = tracesteps.linked(trace(Op("aten::mm", 0, 10), *launched("k", 50, 60, 70, 1)))
    assert made.gpu.op[0] == profile.NO_OP
    assert made.ops[profile.NO_OP].name == "launched outside of every op"
    assert made.gpu.instance[0] == columns.NONE
    assert made.gpu.call[0] == 0


def test_a_profile_without_ops_says_so() -> None:
    made = tracesteps.linked(trace(*launched("k", 50, 60, 70, 1)))
    assert made.ops[profile.NO_OP].name == "no op ranges in this report"
    assert made.iterations.how == "one"
    assert made.gpu.iteration.tolist() == [0]


def test_the_external_id_helps_where_no_call_is_in_the_profile() -> None:
    made = tracesteps.linked(trace(Op("aten::mm", 0, 10, external=42), Gpu("gemm", 20, 30, 7, external=42)))
    assert op_of(made) == "aten::mm"
    assert made.links.by_external == 1


def test_an_external_id_that_repeats_the_correlation_is_not_believed() -> None:
    rows = [Gpu("gemm", 20 + number, 30 + number, 100 + number, external=100 + number) for number in range(10)]
    made = tracesteps.linked(trace(Op("wrong", 0, 10, external=100), *rows))
    assert made.links.by_external == 0
    assert made.gpu.op.tolist() == [profile.NO_OP] * 10


def test_the_stack_is_believed_before_the_external_id_and_the_difference_is_counted() -> None:
    made = tracesteps.linked(
        trace(
            Op("aten::mm", 0, 10, external=1),
            Op("aten::add", 20, 30, external=2),
            Call(5, 6, 100),
            Gpu("gemm", 40, 50, 100, external=2),
        )
    )
    assert op_of(made) == "aten::mm"
    assert (made.links.checked, made.links.agree) == (1, 0)


def test_all_kernels_of_a_graph_belong_to_its_launch() -> None:
    rows = [Gpu(f"k{number}", 20 + 10 * number, 30 + 10 * number, 7, node=number) for number in range(4)]
    made = tracesteps.linked(
        trace(step(1, 0, 100), Op("aten::mm", 1, 3), Call(10, 14, 7, name="cudaGraphLaunch"), *rows)
    )
    assert {op_of(made, kernel) for kernel in range(4)} == {"cudaGraphLaunch"}
    assert made.gpu.iteration.tolist() == [0] * 4
    row = int(made.gpu.op[0])
    assert row != profile.NO_OP
    mine = made.op_cells.op == row
    assert made.op_cells.calls[mine].tolist() == [1]
    assert made.op_cells.cpu[mine].tolist() == [4]


def test_work_inside_of_a_name_of_the_program_alone_belongs_to_that_name() -> None:
    made = tracesteps.linked(
        trace(
            step(1, 0, 100),
            Op("decode", 10, 90, kind=columns.OpKind.ANNOTATION),
            Op("aten::mm", 20, 30),
            *launched("gemm", 25, 40, 50, 1),
            *launched("custom", 60, 70, 80, 2),
        )
    )
    assert [op_of(made, 0), op_of(made, 1)] == ["aten::mm", "decode"]
    assert not any("ProfilerStep" in row.type for row in made.ops)


def test_backward_work_is_on_another_thread_and_in_the_iteration_of_its_time() -> None:
    made = tracesteps.linked(
        trace(
            step(1, 0, 100),
            step(2, 101, 200),
            Op("aten::mm", 10, 20, sequence=5),
            Op("autograd::engine::evaluate_function: MmBackward0", 40, 80, thread=1, sequence=5),
            Op("MmBackward0", 41, 79, thread=1, sequence=5),
            Op("aten::mm", 45, 60, thread=1),
            *launched("fwd", 15, 20, 30, 1),
            *launched("bwd", 50, 60, 170, 2, thread=1),
        )
    )
    assert [made.ops[op].direction for op in made.gpu.op] == [profile.Direction.FORWARD, profile.Direction.BACKWARD]
    assert made.gpu.iteration.tolist() == [0, 0]
    assert made.iterations.until.tolist() == [170, 200]


def test_a_kernel_that_seems_to_start_before_its_launch_stays_with_it() -> None:
    made = tracesteps.linked(
        trace(step(1, 0, 100), step(2, 100, 200), Op("aten::mm", 101, 120), *launched("k", 110, 90, 95, 1))
    )
    assert op_of(made) == "aten::mm"
    assert made.gpu.iteration.tolist() == [1]


def test_modules_are_paths_and_the_backward_has_the_module_of_its_forward() -> None:
    rows = [
        Op("nn.Module: Net_0", 0, 100, kind=columns.OpKind.MODULE),
        Op("nn.Module: Linear_0", 10, 50, kind=columns.OpKind.MODULE),
        Op("aten::addmm", 20, 40, sequence=3),
        Op("aten::sum", 60, 80),
        Op("AddmmBackward0", 120, 180, thread=1, sequence=3),
        Op("aten::mm", 130, 150, thread=1),
    ]
    kernels = [*launched("f", 30, 200, 210, 1), *launched("s", 70, 210, 220, 2)]
    for pairs in ([(2, 4)], []):  # the profile's own pairs; by the sequence number
        made = tracesteps.linked(trace(*rows, *kernels, *launched("b", 140, 220, 230, 3, thread=1), backward=pairs))
        assert [made.ops[op].module for op in made.gpu.op] == ["Net_0/Linear_0", "Net_0", "Net_0/Linear_0"]
        assert made.ops[made.gpu.op[0]].name == "Net_0/Linear_0/aten::addmm"
        assert made.modules == ["Net_0", "Net_0/Linear_0"]
        assert made.module_cells.calls.tolist() == [1, 1]
        assert made.module_cells.cpu.tolist() == [100, 40]


def test_modules_that_are_told_beside_the_ops_are_read() -> None:
    told = columns.Arguments(
        other=(("Module Hierarchy", "SELF(Net)::forward.layer1(Block)::forward.0(Conv2d)::forward"),)
    )
    made = tracesteps.linked(trace(Op("aten::conv2d", 0, 50, arguments=told), Op("aten::convolution", 10, 40)))
    assert [row.module for row in made.ops[1:]] == ["SELF(Net)/layer1(Block)/0(Conv2d)"] * 2


def test_a_stack_is_the_python_functions_around_the_first_call() -> None:
    made = tracesteps.linked(
        trace(
            Op("train.py(1): main", 0, 100, kind=columns.OpKind.PYTHON),
            Op("train.py(9): loss", 10, 90, kind=columns.OpKind.PYTHON),
            Op("aten::mm", 20, 40),
            Op("AddBackward0", 120, 180, thread=1),
            *launched("f", 30, 200, 210, 1),
            backward=[(2, 3)],
        )
    )
    assert made.ops[made.gpu.op[0]].stack == ("train.py(1): main", "train.py(9): loss")
    backward = next(row for row in made.ops if row.type == "AddBackward0")
    assert backward.stack == ("train.py(1): main", "train.py(9): loss")


def test_the_frames_of_the_oldest_profiles_are_read_from_the_arguments() -> None:
    told = columns.Arguments(other=(("Call stack", "loss.py(9): f;train.py(1): main"),))
    made = tracesteps.linked(trace(Op("aten::mm", 20, 40, arguments=told)))
    assert made.ops[1].stack == ("train.py(1): main", "loss.py(9): f")


def test_ops_differ_by_shapes_and_not_by_numbers_among_the_inputs() -> None:
    def add(shape: int, alpha: str) -> columns.Arguments:
        return columns.Arguments(shapes=((shape,), ()), dtypes=("float", "Scalar"), concrete=("", alpha))

    made = tracesteps.linked(
        trace(*[Op("aten::add_", 10 * n, 10 * n + 5, arguments=add(2 + n // 2, str(n))) for n in range(4)])
    )
    assert [row.name for row in made.ops[1:]] == ["aten::add_ [[2], []]", "aten::add_ [[3], []]"]
    assert made.op_cells.calls.tolist() == [2, 2]


def test_of_ops_in_one_another_the_one_that_does_the_work_is_eligible() -> None:
    given_ = columns.Arguments(shapes=((64, 64), (64, 64)), dtypes=("c10::Half", "c10::Half"))
    made = tracesteps.linked(
        trace(
            Op("aten::matmul", 0, 50, arguments=given_),
            Op("aten::mm", 10, 40, arguments=given_),
            *launched("k", 20, 60, 70, 1),
        )
    )
    eligible = {row.type: row.eligible for row in made.ops[1:]}
    assert eligible == {"aten::matmul": False, "aten::mm": True}
    assert {row.flops for row in made.ops[1:]} == {2.0 * 64**3}


# ---------------------------------------------------------------------------------------------------- iterations


def test_without_steps_all_is_one_iteration() -> None:
    made = tracesteps.linked(trace(Op("aten::mm", 10, 50), *launched("k", 20, 60, 99, 1), Gpu("old", 0, 5)))
    assert made.iterations.how == "one"
    assert made.gpu.iteration.tolist() == [0, 0]
    assert (made.iterations.first.tolist(), made.iterations.until.tolist()) == ([10], [99])


def test_a_key_op_begins_an_iteration_each_time() -> None:
    rows = [Op("zero_grad", at, at + 5) for at in (10, 110, 210)] + [Op("aten::mm", at, at + 9) for at in (2, 50, 150)]
    made = tracesteps.linked(trace(*rows, *launched("k", 155, 160, 170, 1)), key_op="zero_grad")
    assert made.iterations.how == "key op zero_grad"
    assert made.iterations.start.tolist() == [10, 110, 210]
    assert made.gpu.iteration.tolist() == [1]
    assert made.ranges.iteration.tolist() == [0, 1, 2, profile.OUTSIDE, 0, 1]


@pytest.mark.parametrize(
    ("start", "end", "iteration"),
    [
        (10, 90, 0),
        (60, 110, 0),  # 40 of 50 ns in the first step
        (90, 140, 1),
        (-20, 30, 0),
        (-40, 30, profile.OUTSIDE),  # most of it was before the first step
        (270, 390, 2),  # it ends long after the last step, and begins in it
        (280, 310, 2),
        (50, 260, 0),  # a whole step and parts of others: where it begins
        (-50, 350, profile.OUTSIDE),
    ],
)
def test_a_range_over_an_end_counts_to_the_step_that_holds_most_of_it(start: int, end: int, iteration: int) -> None:
    at = 1000  # no time is below zero
    steps = [step(number, at + 100 * number, at + 100 * number + 99) for number in range(3)]
    made = tracesteps.linked(trace(*steps, Op("aten::mm", at + start, at + end)))
    assert made.ranges.iteration.tolist()[-1] == iteration


def test_a_step_that_begins_inside_of_a_range_is_not_a_part_of_it() -> None:
    steps = [step(1, 0, 100), step(2, 101, 200), step(3, 201, 300)]
    optimizers = [Op("Optimizer.step#SGD.step", at, at + 35, kind=columns.OpKind.ANNOTATION) for at in (70, 170)]
    made = tracesteps.linked(trace(*steps, *optimizers, Op("aten::mm", 150, 160)))
    assert made.ranges.parent.tolist()[3:] == [columns.NONE] * 3


def test_a_key_op_may_be_one_row_of_ops() -> None:
    one, two = (columns.Arguments(shapes=((size,),), dtypes=("float",)) for size in (8, 9))
    rows = [Op("aten::add", at, at + 5, arguments=one if at % 20 else two) for at in (10, 20, 30, 40)]
    made = tracesteps.linked(trace(*rows), key_op="aten::add [[9]]")
    assert made.iterations.start.tolist() == [20, 40]
    assert len(tracesteps.linked(trace(*rows), key_op="aten::add").iterations.start) == 4


def test_the_borders_of_steps_are_no_work_with_a_key_op_either() -> None:
    made = tracesteps.linked(
        trace(step(1, 0, 100), Op("aten::mm", 10, 20), *launched("k", 50, 60, 70, 1)), key_op="aten::mm"
    )
    assert made.gpu.op.tolist() == [profile.NO_OP]


def test_steps_of_other_threads_and_inside_of_steps_are_no_work_either() -> None:
    others = [dataclasses.replace(step(1, 0, 100), thread=1), step(7, 1, 90)]
    made = tracesteps.linked(
        trace(step(1, 0, 100), *others, step(2, 200, 300), Op("aten::mm", 10, 20), *launched("k", 50, 60, 70, 1))
    )
    assert made.gpu.op.tolist() == [profile.NO_OP]
    assert len(made.iterations.start) == 2
    assert made.iterations.first[0] == 10


def test_a_key_op_that_is_not_there_is_an_error_of_the_user() -> None:
    with pytest.raises(errors.UsageError, match="the key op aten::nothing is not in hand"):
        tracesteps.linked(trace(Op("aten::mm", 10, 50)), key_op="aten::nothing")


def test_a_name_that_repeats_around_all_launches_is_an_iteration() -> None:
    def rows(name: str) -> columns.Trace:
        made = [Op(name.format(n), 100 * n, 100 * n + 90, kind=columns.OpKind.ANNOTATION) for n in range(3)]
        inner = [Op("forward", 100 * n + 10, 100 * n + 40, kind=columns.OpKind.ANNOTATION) for n in range(3)]
        calls = [row for n in range(3) for row in launched("k", 100 * n + 20, 100 * n + 50, 100 * n + 60, n + 1)]
        return trace(*inner, *made, *calls)

    assert tracesteps.linked(rows("iteration {}")).iterations.how == "annotation iteration"
    assert tracesteps.linked(rows("train step")).iterations.how == "annotation train step"
    assert tracesteps.linked(rows("train step")).gpu.iteration.tolist() == [0, 1, 2]


def test_a_name_that_repeats_beside_the_launches_is_none() -> None:
    rows = [Op(f"dataloader {n}", 100 * n, 100 * n + 10, kind=columns.OpKind.ANNOTATION) for n in range(3)]
    assert tracesteps.linked(trace(*rows, *launched("k", 50, 50, 60, 1))).iterations.how == "one"


def series(text: str, *others: Any) -> columns.Trace:
    """A letter is a kernel, W a wait for the GPU, | more work of the CPU."""
    rows: list[Any] = []
    for place, letter in enumerate(text):
        at = 100 * place
        if letter == "W":
            rows.append(Call(at, at + 90, place + 1, name="cudaStreamSynchronize"))
        elif letter != "|":
            rows += launched(letter, at, at + 20, at + 60, place + 1)
    return trace(*rows, *others)


NOTHING = ""
REPEATING = {
    "a loop": ("|abbcd" * 5, "abbcd", 5),
    "first steps that differ": ("|xyabb|zzz" + "|abbcd" * 5, "abbcd", 5),
    "a recording that begins and ends within a step": ("d" + "|abbcd" * 4 + "|a", "abbcd", 4),
    "a step that does more from time to time": (
        "|abbcdefghi" * 9 + "|abbcdefghil" + "|abbcdefghi" * 5,
        "abbcdefghi",
        15,
    ),
    "layers in steps": (("|x" + "abbc" * 8 + "y") * 4, "x" + "abbc" * 8 + "y", 4),
    "no kernel that is there once": ("|abaabbab" * 6, "abaabbab", 6),
    "kernels that are all alike, and a wait": ("|aaaaW" * 5, "aaaa", 5),
    "layers of one answer": ("xy" + "abbc" * 12 + "zh", NOTHING, 1),
    "two steps": ("|abbcdd" * 2, NOTHING, 1),
    "one kernel": ("a" * 30, NOTHING, 1),
    "no repetition": ("abcdefghijklmnopqrstuvwxyz", NOTHING, 1),
    "little of it repeats": ("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMN" + "|stst" * 4, NOTHING, 1),
}


@pytest.mark.parametrize("what", REPEATING)
def test_steps_that_no_name_tells_are_found_by_kernels_that_repeat(what: str) -> None:
    text, wanted, many = REPEATING[what]
    made = tracesteps.linked(series(text))
    assert len(made.iterations.names) == many
    assert made.iterations.how == ("repetition of kernels" if many > 1 else "one")
    for number in range(many if wanted else 0):
        found = "".join(made.kernels[kernel].name for kernel in made.gpu.kernel[made.gpu.iteration == number])
        assert found.rstrip("l") == wanted


def test_no_step_begins_inside_of_a_module_or_of_the_optimizer() -> None:
    for name, kind in (("Decoder_0", columns.OpKind.MODULE), ("Optimizer.step#SGD.step", columns.OpKind.ANNOTATION)):
        assert tracesteps.linked(series("abbc" * 8, Op(name, 0, 3_300, kind=kind))).iterations.how == "one"


def test_a_step_begins_with_the_op_that_launches_its_first_kernel() -> None:
    ops = [Op("aten::embedding", 600 * step + 60, 600 * step + 195) for step in range(5)]
    made = tracesteps.linked(series("|abbcd" * 5, *ops))
    assert made.iterations.start.tolist() == [600 * step + 60 for step in range(5)]


def test_what_lies_between_two_steps_is_outside() -> None:
    made = tracesteps.linked(
        trace(step(1, 0, 100), step(2, 150, 200), Op("aten::mm", 110, 140), *launched("k", 120, 160, 170, 1))
    )
    assert made.gpu.iteration.tolist() == [profile.OUTSIDE]


def test_empty_and_one_sided_profiles_are_linked() -> None:
    assert tracesteps.linked(trace()).gpu.op.tolist() == []
    assert tracesteps.linked(trace(Op("aten::mm", 0, 10))).device_order == []
    assert tracesteps.linked(trace(Gpu("k", 0, 10))).busy.tolist() == [[10.0]]
    assert tracesteps.linked(trace(Call(0, 10, 1))).iterations.how == "one"


# --------------------------------------------------------------------------------------------------- sums of times


def test_cpu_time_is_split_into_own_time_calls_and_children() -> None:
    made = tracesteps.linked(
        trace(
            Op("outer", 0, 100),
            Op("inner", 10, 60),
            Call(20, 30, 1),
            Gpu("a", 100, 110, 1),
            Call(35, 40, 2),
            Gpu("b", 130, 150, 2),
        )
    )
    assert made.ranges.cpu_self.tolist() == [50, 50]
    assert made.ranges.overhead.tolist() == [50, 35]
    assert made.ranges.gpu_idle.tolist() == [0, 20]
    cells = made.op_cells
    by_type = {made.ops[op].type: at for at, op in enumerate(cells.op)}
    assert cells.gpu_with_children[by_type["outer"]] == cells.gpu_with_children[by_type["inner"]] == 30
    assert cells.gpu_longest[by_type["outer"]] == 0
    assert cells.gpu_longest[by_type["inner"]] == 30


def test_an_op_inside_of_itself_has_its_gpu_time_once() -> None:
    made = tracesteps.linked(trace(Op("checkpoint", 0, 100), Op("checkpoint", 10, 60), *launched("k", 20, 100, 140, 1)))
    assert made.op_cells.gpu_with_children.tolist() == [40]


# ------------------------------------------------------------------------------------------------------ properties

ranges = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 25), st.integers(0, 2)), max_size=60)


def naive_parents(found: list[tuple[int, int, int]]) -> list[int]:
    """A stack of open ranges on each thread."""
    made = [columns.NONE] * len(found)
    for thread in {thread for _, _, thread in found}:
        rows = [row for row in range(len(found)) if found[row][2] == thread]
        stack: list[int] = []
        for row in sorted(rows, key=lambda each: (found[each][0], -found[each][1], each)):
            start = found[row][0]
            while stack and found[stack[-1]][0] + found[stack[-1]][1] <= start:
                stack.pop()
            made[row] = stack[-1] if stack else columns.NONE
            stack.append(row)
    return made


def ops_of(found: list[tuple[int, int, int]]) -> list[Op]:
    return [Op("aten::add", start, start + length, thread) for start, length, thread in found]


@given(ranges)
@settings(max_examples=amount.examples(200), deadline=None)
def test_parents_are_those_of_a_stack(found: list[tuple[int, int, int]]) -> None:
    assert tracesteps.linked(trace(*ops_of(found))).ranges.parent.tolist() == naive_parents(found)


@given(ranges, st.lists(st.tuples(st.integers(0, 90), st.integers(0, 3)), max_size=20))
@settings(max_examples=amount.examples(200), deadline=None)
def test_the_range_around_a_time_is_the_last_open_one(
    found: list[tuple[int, int, int]], times: list[tuple[int, int]]
) -> None:
    launches = [row for at, (time, thread) in enumerate(times, 1)
                for row in (Call(time, time + 1, at, thread), Gpu("kernel", 200 + at, 201 + at, at))]  # fmt: skip
    made = tracesteps.linked(trace(*ops_of(found), *launches)).gpu.instance
    for (time, thread), got in zip(times, made.tolist(), strict=True):
        around = [
            (start, -length, row)
            for row, (start, length, on) in enumerate(found)
            if on == thread and start <= time < start + length
        ]
        assert got == (max(around)[2] if around else columns.NONE)


intervals = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 20)), max_size=30)


@given(intervals, st.integers(0, 80), st.integers(0, 80))
@settings(max_examples=amount.examples(200), deadline=None)
def test_a_union_counts_each_moment_once(found: list[tuple[int, int]], one: int, two: int) -> None:
    """Of the GPU, and of a step: from its first op to the last end of what it launched."""
    moments = {moment for start, length in found for moment in range(start, start + length)}
    low, high = min(one, two), max(one, two) + 1
    rows: list[Gpu | Op] = [step(1, low, high), Op("aten::add", low, high)]
    rows += [Gpu("k", start, start + more) for start, more in found]
    made = tracesteps.summed(trace(*rows))
    until = low + round(made.summary.wall_us * 1000)
    assert until >= high
    assert made.iterations[0].busy_us == len([m for m in moments if low <= m < until]) / 1000
    assert sum(device.busy_us for device in made.file.devices) == len(moments) / 1000


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 50), st.integers(0, 20)), max_size=40))
@settings(max_examples=amount.examples(200), deadline=None)
def test_of_each_op_the_gpu_is_idle_between_its_kernels(found: list[tuple[int, int, int]]) -> None:
    """The span of its kernels less their union: each call of its own has the kernels of one number."""
    rows: list[Gpu | Call | Op] = [Op(f"op {number}", 10 * number, 10 * number + 9) for number in range(5)]
    for at, (number, start, length) in enumerate(found, 1):
        rows += [Call(10 * number + 1, 10 * number + 2, at), Gpu("k", 100 + start, 100 + start + length, at)]
    ops = {op.type: op for op in tracesteps.summed(trace(*rows)).ops}
    for number in range(5):
        mine = [(start, start + length) for op, start, length in found if op == number]
        span = max(end for _, end in mine) - min(start for start, _ in mine) if mine else 0
        busy = len({moment for start, end in mine for moment in range(start, end)})
        assert ops[f"op {number}"].gpu_idle_us == (span - busy) / 1000


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 50), st.integers(0, 20)), max_size=40))
@settings(max_examples=amount.examples(200), deadline=None)
def test_unions_of_groups_are_the_unions_of_each(found: list[tuple[int, int, int]]) -> None:
    """Of each GPU, and of the GPUs that did nothing there is no line."""
    rows = [Gpu("k", start, start + length, device=number) for number, start, length in found]
    devices = [columns.Device(number, "A GPU", "8.0") for number in range(5)]
    lines = {line.device: line for line in tracesteps.summed(trace(*rows, devices=devices)).file.devices}
    assert lines.keys() == {number for number, *_ in found}
    for number, line in lines.items():
        mine = [(start, start + length) for device, start, length in found if device == number]
        assert line.busy_us == len({moment for start, end in mine for moment in range(start, end)}) / 1000
        assert line.span_us == (max(end for _, end in mine) - min(start for start, _ in mine)) / 1000


def test_memory_operations_are_no_kernels() -> None:
    made = tracesteps.linked(
        trace(Gpu("Memcpy HtoD", 0, 5, kind=columns.GpuKind.MEMCPY), Gpu("Memset", 5, 6, kind=columns.GpuKind.MEMSET))
    )
    assert [row.memory for row in made.kernels] == [True, True]


@pytest.mark.parametrize("name", ["gpt-stacks", "launch-graph"])
def test_parts_of_columns_make_no_difference(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Columns of tens of millions of rows are worked on in parts; here the parts have 997 rows."""
    path = Path(__file__).parent / "recorded" / f"{name}.json.gz"
    opened = opening.open_trace(path)
    whole = tracesteps.packed(opened.profile).data
    tracesteps.small_parts(monkeypatch, 997)
    again = opening.open_trace(path)
    assert again.document == opened.document
    assert tracesteps.packed(again.profile).data == whole


def test_without_calls_nothing_is_said_of_when_a_kernel_was_launched() -> None:
    rows = (Op("aten::mm", 0, 100), Gpu("gemm", 20, 30, 5))
    assert op_of(tracesteps.linked(trace(*rows))) == "the profile has no calls that launch"
    assert op_of(tracesteps.linked(trace(*rows, Call(10, 11, 7)))) == "launched before the profile began"
