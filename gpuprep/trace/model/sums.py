"""Sums by (iteration, op, kernel, device) and by (iteration, op): all that tables are made of."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gpuprep.trace.columns import NONE, GpuEvents, Ints, Trace
from gpuprep.trace.model.groups import Groups, narrow, total
from gpuprep.trace.model.intervals import running_maximum, union, union_by_group
from gpuprep.trace.model.modules import Modules
from gpuprep.trace.model.sweep import CHUNK, Sweep
from gpuprep.trace.profile import Cells, ModuleCells, OpCells


def cells(gpu: GpuEvents, iteration: Ints, op: Ints, kernel: Ints) -> Cells:
    groups = Groups(iteration, op, kernel, gpu.device)
    length = gpu.end - gpu.start
    return Cells(
        iteration=groups.values(iteration),
        op=groups.values(op),
        kernel=groups.values(kernel),
        device=groups.values(gpu.device),
        calls=groups.size(),
        total=groups.sum(length),
        shortest=groups.least(length),
        longest=groups.most(length),
    )


@dataclass
class Times:
    """Of each position of the tree, ns."""

    cpu: Ints
    cpu_self: Ints
    overhead: Ints
    gpu: Ints  # its own kernels and memory operations
    gpu_children: Ints  # with those of the ops inside of it
    gpu_idle: Ints
    after: Ints  # not a time: the first position after it that is not inside of it


def times(trace: Trace, tree: Sweep, place: Ints, call_place: Ints) -> Times:
    """`place`: of each GPU event the position of its op in the tree; `call_place`: of each API call. -1 without."""
    count = len(tree.rows)
    cpu_self: Ints = np.zeros(count, np.int64)
    api = np.zeros(count, np.int64)
    for part in range(0, count, CHUNK):  # in parts: of tens of millions of ops each column has hundreds of MB
        rows, above = tree.rows[part : part + CHUNK], tree.above[part : part + CHUNK]
        start, end = trace.ops.start[rows], trace.ops.end[rows]
        cpu_self[part : part + CHUNK] += end - start
        inner = np.flatnonzero(above >= 0)
        # Rounded times may let a child end after its parent.
        inside = np.minimum(end[inner], trace.ops.end[tree.rows[above[inner]]]) - start[inner]
        np.subtract.at(cpu_self, above[inner], inside)
    cpu = narrow(trace.ops.end[tree.rows] - trace.ops.start[tree.rows])
    called = np.flatnonzero(call_place >= 0)
    at = call_place[called]
    length = np.minimum(trace.calls.end[called], trace.ops.end[tree.rows[at]]) - trace.calls.start[called]
    np.add.at(api, at, length)
    overhead = narrow(np.maximum(cpu_self - api, 0))
    cpu_self = narrow(cpu_self)
    del api, called, at, length
    linked = np.flatnonzero(place >= 0)
    at, begin, stop = place[linked], trace.gpu.start[linked], trace.gpu.end[linked]
    own = narrow(total(at, stop - begin, count))
    busy, span = union_by_group(at, begin, stop, count)
    span -= busy
    del busy, linked, at, begin, stop
    idle, last = narrow(span), after(tree)
    del span
    return Times(cpu, cpu_self, overhead, own, narrow(with_inner(own, last)), idle, last)


def with_inner(values: Ints, last: Ints) -> NDArray[np.int64]:
    """Of each position the sum of its value and the values of all inside of it; `last`: of `after`."""
    # The tree is in the order of a stack, so what is inside of a range follows it at once: a difference of sums so far.
    so_far = np.zeros(len(values) + 1, np.int64)
    np.cumsum(values, out=so_far[1:])
    return np.asarray(so_far[last] - so_far[:-1], np.int64)


def after(tree: Sweep) -> NDArray[np.int32]:
    """Of each position the first position after it that is not inside of it."""
    made = np.arange(1, len(tree.rows) + 1, dtype=np.int32)
    level = depth(tree.above)
    order = np.argsort(-level, kind="stable").astype(np.int32)
    change = np.flatnonzero(np.diff(level[order])) + 1
    for some in np.split(order, change):  # the innermost first
        some = some[tree.above[some] >= 0]
        np.maximum.at(made, tree.above[some], made[some])
    return made


def depth(above: Ints) -> NDArray[np.int32]:
    """0 of the outermost; by pointers that double their reach."""
    up = np.append(above, NONE).astype(np.int32)
    level = (up >= 0).astype(np.int32)
    todo = np.flatnonzero(up >= 0)
    while len(todo):
        level[todo] += level[up[todo]]
        up[todo] = up[up[todo]]
        todo = todo[up[todo] >= 0]
    return level[:-1]


def op_cells(iteration: Ints, row: Ints, of: Times) -> OpCells:
    """`iteration` and `row` of each position of the tree."""
    groups = Groups(iteration, row)
    # A row inside of itself (a recursion) has its GPU time with children counted once in its iteration.
    outermost = np.where(_inside_itself(of.after, groups.of), 0, of.gpu_children)
    return OpCells(
        iteration=groups.values(iteration),
        op=groups.values(row),
        calls=narrow(groups.size()),
        cpu=narrow(groups.sum(of.cpu)),
        cpu_self=narrow(groups.sum(of.cpu_self)),
        overhead=narrow(groups.sum(of.overhead)),
        gpu_idle=narrow(groups.sum(of.gpu_idle)),
        cpu_shortest=narrow(groups.least(of.cpu)),
        cpu_longest=narrow(groups.most(of.cpu)),
        gpu_with_children=narrow(groups.sum(outermost)),
        gpu=narrow(groups.sum(of.gpu)),
        gpu_shortest=narrow(groups.least(of.gpu)),
        gpu_longest=narrow(groups.most(of.gpu)),
        overhead_shortest=narrow(groups.least(of.overhead)),
        overhead_longest=narrow(groups.most(of.overhead)),
        gpu_idle_shortest=narrow(groups.least(of.gpu_idle)),
        gpu_idle_longest=narrow(groups.most(of.gpu_idle)),
    )


def _inside_itself(after: Ints, row: Ints) -> NDArray[np.bool_]:
    made = np.zeros(len(row), bool)
    if not len(row):
        return made
    order = np.argsort(row, kind="stable")
    sorted_rows = row[order]
    first = np.flatnonzero(np.concatenate(([True], sorted_rows[1:] != sorted_rows[:-1])))
    reached = running_maximum(after[order], first)
    before = np.concatenate(([0], reached[:-1]))
    before[first] = 0
    made[order] = before > order
    return made


def module_cells(trace: Trace, modules: Modules, iteration: Ints) -> ModuleCells:
    """`iteration` of each range of the profile."""
    of = iteration[modules.instances]
    groups = Groups(of, modules.instance_path)
    length = trace.ops.end[modules.instances] - trace.ops.start[modules.instances]
    path = groups.values(modules.instance_path)
    return ModuleCells(groups.values(of), path, groups.size(), groups.sum(length))


def busy(gpu: GpuEvents, devices: list[int], starts: Ints, ends: Ints) -> NDArray[np.float64]:
    """(windows, devices): the union of the GPU events of each device inside of each window, ns."""
    made = np.zeros((len(starts), len(devices)))
    for column, device in enumerate(devices):
        mine = gpu.device == device
        made[:, column] = union(gpu.start[mine], gpu.end[mine]).inside(starts, ends)
    return made
