"""Rules about the optimizer's step and its gradients."""

from __future__ import annotations

import math
import re

import numpy as np

from gpuprep.trace.advice import intervals, kinds, physics
from gpuprep.trace.advice.evidence import Evidence, Mask
from gpuprep.trace.advice.found import Found
from gpuprep.trace.advice.gains import calls_between, calls_of, durations, gain, gpu_of_calls
from gpuprep.trace.advice.replay import Change
from gpuprep.trace.columns import Ints

# Of the CPU: Python walks over the parameters once and sorts them by device and type (torch/optim/optimizer.py).
WALK_NS = 3_000
WALK_START_NS = 50_000
PARAMETERS_A_LAUNCH = 36  # tensors in one launch of four lists (ATen/native/cuda/MultiTensorApply.cuh, depth 4)
SHORTEST_NS = 4_000  # of such a kernel
# Elements that a fused step reads and writes for each parameter: weight, gradient and states.
ADAM, MOMENTUM, PLAIN = 7, 5, 3
ZEROED = re.compile(r"^aten::(zero_|_foreach_zero_|fill_)$")
ACCUMULATED = re.compile(r"AccumulateGrad")


def opt_foreach(e: Evidence) -> Found | None:
    rows = e.outermost(e.ranges(kinds.OPTIMIZER))
    if not len(rows) or not len(e.gpu):
        return None
    inside = gpu_of_calls(e, calls_between(e, rows))
    chosen = np.flatnonzero(inside)
    kernels = e.profile.gpu.kernel[chosen]
    if len(chosen) < 100 * e.steps or e.kernel_rows(kinds.MULTI_TENSOR)[kernels].any():
        return None
    parameters, elements, size, states = _parameters(e, rows)
    if not parameters or len(chosen) / e.steps < parameters:
        return None
    gpu_ns = int((e.trace.gpu.end - e.trace.gpu.start)[chosen].sum())
    cpu_ns = intervals.length(e.range_set(rows))
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
    kept = min(1.0, (WALK_NS * parameters + WALK_START_NS) * len(rows) / max(1, cpu_ns))
    change = Change(gpu_ns=new, without_calls=without_calls, cut=e.range_set(rows), kept=kept, merged=inside)
    made = gain(e, change, f"{how}, and the CPU walks over {parameters} parameters once")
    ops = np.unique(e.profile.gpu.op[chosen])
    return Found(figures, ops=ops.tolist(), gain=made)


def _parameters(e: Evidence, rows: Ints) -> tuple[int, float, float, int]:
    """(parameters, their elements, bytes of an element, elements moved for each) of one optimizer step, from the op
    that every parameter needs once."""
    ops = e.trace.ops
    for pattern, states in ((r"^aten::addcdiv_$", ADAM), (r"^aten::mul_$", MOMENTUM), (r"^aten::add_$", PLAIN)):
        op_rows = e.ranges(re.compile(pattern), ops_alone=True)
        op_rows = op_rows[e.inside_ranges(rows, ops.start[op_rows])]
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
    rows = e.outermost(e.ranges(kinds.ZERO_GRAD))
    if not len(rows):
        return None
    fills = e.ranges(ZEROED, ops_alone=True)
    fills = e.outermost(fills[e.inside_ranges(rows, e.trace.ops.start[fills])])
    if not len(fills):
        return None
    without = gpu_of_calls(e, calls_between(e, fills))
    adding = without | _accumulating(e)
    gpu_ns = int((e.trace.gpu.end - e.trace.gpu.start)[without].sum())
    cut = e.range_set(fills)
    cpu_ns = intervals.length(cut)
    how = "without the fills, and without adding each gradient to these zeros in the backward pass"
    made = gain(e, Change(without_gpu=adding, without_calls=calls_of(e, adding), cut=cut), how)
    figures = {"count": int(without.sum()) / e.steps, "gpu_ms": e.a_step(gpu_ns), "cpu_ms": e.a_step(cpu_ns)}
    op = e.profile.ranges.op[fills]
    return Found(figures, ops=np.unique(op[op >= 0]).tolist(), gain=made)


def _accumulating(e: Evidence) -> Mask:
    """Of all GPU events: additions inside autograd's AccumulateGrad. A gradient that is None is taken as it comes."""
    return gpu_of_calls(e, calls_between(e, e.outermost(e.ranges(ACCUMULATED))))
