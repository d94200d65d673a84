"""Rules about the optimizer's step and its gradients."""

from __future__ import annotations

import math
import re
from typing import NamedTuple

import numpy as np

from gpuprep.trace.advice import intervals, kinds, physics
from gpuprep.trace.advice.evidence import Evidence, Mask
from gpuprep.trace.advice.gains import calls_between, calls_in, calls_of, durations, gain, gpu_of_calls
from gpuprep.trace.advice.replay import Change
from gpuprep.trace.advice.rulebook import Found
from gpuprep.trace.columns import Ints

# Of the CPU: Python walks over the parameters once and sorts them by device and type (torch/optim/optimizer.py).
WALK_NS = 3_000
WALK_START_NS = 50_000
PARAMETERS_A_LAUNCH = 36  # tensors in one launch of four lists (ATen/native/cuda/MultiTensorApply.cuh, depth 4)
SHORTEST_NS = 4_000  # of such a kernel
# Elements that a fused step reads and writes for each parameter: weight, gradient and states.
ADAM, MOMENTUM, PLAIN = 7, 5, 3
LEAST_UPDATES = 40  # one behind the other
IN_PLACE = re.compile(r"^aten::(mul|add|sub|div|lerp|addcmul|addcdiv|copy|sqrt|clamp|clamp_min|neg)_$")
# What an update calculates on its way to an op in place.
UPDATE = re.compile(
    IN_PLACE.pattern.replace("_$", "_?$") + r"|^aten::(rsqrt|square|maximum|pow|sign|detach|linalg_vector_norm|norm)$"
)
ZEROED = re.compile(r"^aten::(zero_|_foreach_zero_|fill_)$")
ACCUMULATED = re.compile(r"AccumulateGrad")


class Who(NamedTuple):
    """Who updates many tensors."""

    what: str
    todo: str
    once: tuple[tuple[re.Pattern[str], int], ...]  # an op that each tensor needs once, and the elements moved for it


ADDCDIV, MUL, ADD = (re.compile(rf"^aten::{name}_$") for name in ("addcdiv", "mul", "add"))
OPTIMIZER = Who(
    "Optimizer.step",
    "Create the optimizer with fused=True (or foreach=True).",
    ((ADDCDIV, ADAM), (MUL, MOMENTUM), (ADD, PLAIN)),
)
LOOP = Who(
    "A loop over tensors",
    "Update all of them at once: torch._foreach_lerp_, torch._foreach_add_ and the like take lists of tensors. For an "
    "average of the weights: torch.optim.swa_utils.AveragedModel with get_ema_multi_avg_fn().",
    ((ADDCDIV, ADAM), *((re.compile(rf"^aten::{name}_$"), PLAIN) for name in ("lerp", "add", "sub", "copy", "mul"))),
)


def opt_foreach(e: Evidence) -> Found | None:
    rows, ops = e.outermost(e.ranges(kinds.OPTIMIZER)), e.trace.ops
    found = _one_by_one(e, OPTIMIZER, ops.thread[rows], ops.start[rows], ops.end[rows])
    return found or _one_by_one(e, LOOP, *_loops(e, UPDATE, IN_PLACE))


def _loops(e: Evidence, kind: re.Pattern[str], mostly: re.Pattern[str]) -> tuple[Ints, Ints, Ints]:
    """(thread, begin, end) of each loop of ops of this kind, outside of an optimizer: an average of the weights, an
    optimizer written by hand. At least half of its ops are `mostly`."""
    ops, found = e.trace.ops, []
    rows = e.outermost(e.all_ops)
    known = [e.ranges(pattern) for pattern in (kinds.OPTIMIZER, kinds.ZERO_GRAD)]
    rows = rows[~e.inside_ranges(np.concatenate(known), ops.start[rows])]
    for thread in np.unique(ops.thread[rows]).tolist():
        mine = rows[ops.thread[rows] == thread]
        mine = mine[np.argsort(ops.start[mine], kind="stable")]
        updates = e.name_ids(kind)[ops.name[mine]]
        edges = np.flatnonzero(np.diff(np.concatenate(([False], updates, [False]))))
        for first, after in edges.reshape(-1, 2).tolist():
            run = mine[first:after]
            if len(run) >= LEAST_UPDATES and 2 * e.name_ids(mostly)[ops.name[run]].sum() >= len(run):
                found.append((thread, int(ops.start[run[0]]), int(ops.end[run[-1]])))
    thread, start, end = np.array(found, np.int64).reshape(-1, 3).T
    return thread, start, end


def _one_by_one(e: Evidence, who: Who, thread: Ints, start: Ints, end: Ints) -> Found | None:
    """GPU events that these spans of the CPU launch, if they launch at least one kernel for each tensor."""
    if not len(start) or not len(e.gpu):
        return None
    inside = gpu_of_calls(e, calls_in(e, thread, start, end))
    chosen = np.flatnonzero(inside)
    kernels = e.profile.gpu.kernel[chosen]
    if len(chosen) < 100 * e.steps or e.kernel_rows(kinds.MULTI_TENSOR)[kernels].any():
        return None
    spans = intervals.clipped(intervals.union(start, end), *e.window)
    parameters, elements, size, states = _parameters(e, who, spans)
    if not parameters or len(chosen) / e.steps < parameters:
        return None
    gpu_ns = int((e.trace.gpu.end - e.trace.gpu.start)[chosen].sum())
    cpu_ns = intervals.length(spans)
    figures = {
        "kernels": len(chosen) / e.steps,
        "parameters": parameters,
        "cpu_ms": e.a_step(cpu_ns),
        "gpu_ms": e.a_step(gpu_ns),
    }
    new = durations(e)
    how = "its kernels take as long as now"
    moved = physics.memory_ns(e.board, elements * states * size) if e.board is not None and elements else None
    if moved is not None:
        fused = max(moved, SHORTEST_NS * math.ceil(parameters / PARAMETERS_A_LAUNCH)) * e.steps
        new[chosen] *= min(1.0, fused / max(1, gpu_ns))
        how = f"a fused step moves {states} × {size:.0f} bytes for each of {elements / 1e6:.2f} million elements"
    without_calls = calls_of(e, inside)
    without_calls[np.unique(e.profile.gpu.call[chosen])[::PARAMETERS_A_LAUNCH]] = False
    kept = min(1.0, (WALK_NS * parameters + WALK_START_NS) * len(start) / max(1, cpu_ns))
    change = Change(gpu_ns=new, without_calls=without_calls, cut=spans, kept=kept, merged=inside)
    made = gain(e, change, f"{how}, and the CPU walks over {parameters} parameters once")
    ops = np.unique(e.profile.gpu.op[chosen])
    return Found(figures, {"what": who.what, "todo": who.todo}, ops=ops.tolist(), gain=made)


def _parameters(e: Evidence, who: Who, spans: intervals.Intervals) -> tuple[int, float, float, int]:
    """(parameters, their elements, bytes of an element, elements moved for each) of one step, from the op that every
    parameter needs once."""
    ops = e.trace.ops
    for pattern, states in who.once:
        op_rows = e.ranges(pattern, ops_alone=True)
        op_rows = op_rows[intervals.Covered(spans).between(ops.start[op_rows], ops.start[op_rows] + 1) > 0]
        if not len(op_rows):
            continue
        elements = size = 0.0
        for row in op_rows.tolist():
            arguments = e.trace.arguments[ops.arguments[row]] if ops.arguments[row] >= 0 else None
            if arguments and arguments.shapes:
                elements += physics.numel(arguments.shapes[0])
                size = physics.bytes_of(arguments.dtypes, 0)
        return round(len(op_rows) / e.steps), elements / e.steps, size or 4.0, states
    return 0, 0.0, 4.0, PLAIN


def zero_grad(e: Evidence) -> Found | None:
    ops, fills = e.trace.ops, e.outermost(e.ranges(ZEROED, ops_alone=True))
    rows = e.outermost(e.ranges(kinds.ZERO_GRAD))
    _, start, end = _loops(e, ZEROED, ZEROED)  # Module.zero_grad() has no range of its own
    spans = intervals.union(np.append(ops.start[rows], start), np.append(ops.end[rows], end))
    fills = fills[intervals.Covered(spans).between(ops.start[fills], ops.start[fills] + 1) > 0]
    if not len(fills):
        return None
    without = gpu_of_calls(e, calls_between(e, fills))
    adding = without | _accumulating(e)
    gpu_ns = int((e.trace.gpu.end - e.trace.gpu.start)[without].sum())
    cut = e.range_set(fills)
    cpu_ns = intervals.length(cut)
    how = "without the fills, and without adding each gradient to these zeros in the backward pass"
    made = gain(e, Change(without_gpu=adding, without_calls=calls_of(e, adding), cut=cut), how)
    launched = int(adding.sum()) / e.steps
    figures = {
        "count": int(without.sum()) / e.steps,
        "kernels": launched,
        "gpu_ms": e.a_step(gpu_ns),
        "cpu_ms": e.a_step(cpu_ns),
    }
    op = e.profile.ranges.op[fills]
    return Found(figures, ops=np.unique(op[op >= 0]).tolist(), gain=made)


def _accumulating(e: Evidence) -> Mask:
    """Of all GPU events: additions inside autograd's AccumulateGrad. If the gradient is None, the new gradient is used
    without an addition.
    """
    return gpu_of_calls(e, calls_between(e, e.outermost(e.ranges(ACCUMULATED))))
