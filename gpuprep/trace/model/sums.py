"""Sums by (iteration, op, kernel, device) and by (iteration, op): all that tables are made of."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gpuprep.trace.columns import GpuEvents, Ints, Trace
from gpuprep.trace.model.groups import Groups, joined, narrow, total
from gpuprep.trace.model.intervals import CHUNK, Sweep, and_none, union, union_by_group
from gpuprep.trace.model.rows import Modules
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
    linked = np.flatnonzero(place >= 0)
    ops, of = np.unique(place[linked], return_inverse=True)
    begin, stop = trace.gpu.start[linked], trace.gpu.end[linked]
    own = _spread(total(of, stop - begin, len(ops)), ops, count)
    busy, span = union_by_group(of, begin, stop, len(ops))
    idle = _spread(span - busy, ops, count)
    del linked, ops, of, begin, stop, busy, span
    last = after(tree)
    children = with_inner(own, last)
    cpu, cpu_self = _cpu(trace, tree)
    return Times(cpu, cpu_self, _without_calls(cpu_self, trace, tree, call_place), own, children, idle, last)


def _spread(values: Ints, rows: Ints, count: int) -> Ints:
    """The values at their rows, else 0; in 32 bits where they fit."""
    values = narrow(values)
    made = np.zeros(count, values.dtype)
    made[rows] = values
    return made


def _cpu(trace: Trace, tree: Sweep) -> tuple[Ints, Ints]:
    """Of each position the time of its range, and that without the ranges inside of it."""
    cpu: list[Ints] = []
    own = np.zeros(len(tree.rows), np.int64)
    for part in range(0, len(own), CHUNK):
        rows, above = tree.rows[part : part + CHUNK], tree.above[part : part + CHUNK]
        start, end = trace.ops.start[rows], trace.ops.end[rows]
        cpu.append(narrow(end - start))
        own[part : part + CHUNK] += end - start
        inner = np.flatnonzero(above >= 0)
        # Rounded times may let a child end after its parent.
        inside = np.minimum(end[inner], trace.ops.end[tree.rows[above[inner]]]) - start[inner]
        np.subtract.at(own, above[inner], inside)
    return joined(cpu), narrow(own)


def _without_calls(cpu_self: Ints, trace: Trace, tree: Sweep, call_place: Ints) -> Ints:
    """What is left of each position's own time without its calls of the CUDA API, at least 0."""
    api = np.zeros(len(cpu_self), np.int64)
    for part in range(0, len(call_place), CHUNK):
        at = call_place[part : part + CHUNK]
        called = at >= 0
        at = at[called]
        start, end = (each[part : part + CHUNK][called] for each in (trace.calls.start, trace.calls.end))
        np.add.at(api, at, np.minimum(end, trace.ops.end[tree.rows[at]]) - start)
    left: list[Ints] = []
    for part in range(0, len(api), CHUNK):
        left.append(narrow(np.maximum(cpu_self[part : part + CHUNK] - api[part : part + CHUNK], 0)))
    del api
    return joined(left)


def with_inner(values: Ints, last: Ints) -> Ints:
    """Of each position the sum of its value and the values of all inside of it; `last`: of `after`."""
    # The tree is in the order of a stack, so what is inside of a range follows it at once: a difference of sums so far.
    so_far = np.zeros(len(values) + 1, np.int64)
    np.cumsum(values, out=so_far[1:])
    chunks: list[Ints] = []
    for part in range(0, len(values), CHUNK):
        until = last[part : part + CHUNK]
        chunks.append(narrow(so_far[until] - so_far[part : part + len(until)]))
    del so_far
    return joined(chunks)


def after(tree: Sweep) -> NDArray[np.int32]:
    """Of each position the first position after it that is not inside of it."""
    made = np.arange(1, len(tree.rows) + 1, dtype=np.int32)
    level = depth(tree.above)
    for part in reversed(range(0, len(made), CHUNK)):  # what is inside of a range follows it
        order = np.argsort(-level[part : part + CHUNK], kind="stable")
        change = np.flatnonzero(np.diff(level[order + part])) + 1
        for some in np.split(order + part, change):  # the innermost first
            some = some[tree.above[some] >= 0]
            np.maximum.at(made, tree.above[some], made[some])
    return made


def depth(above: Ints) -> NDArray[np.int32]:
    """0 of the outermost; by pointers that double their reach."""
    up = and_none(above)
    level = (up >= 0).astype(np.int32)
    for part in range(0, len(above), CHUNK):  # pointers only lead backwards
        todo = np.arange(part, min(part + CHUNK, len(above)), dtype=np.int32)
        todo = todo[up[todo] >= 0]
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
    """Of each position: it lies in an earlier one of the same row."""
    made = np.zeros(len(row), bool)
    order = np.argsort(row, kind="stable").astype(np.int32)
    # A row that is ever inside of itself is so next to an own position, too. Few rows are, and the others need no
    # further work.
    nested = np.zeros(len(order), bool)
    nested[1:] = (row[order[1:]] == row[order[:-1]]) & (after[order[:-1]] > order[1:])
    if not nested.any():
        return made
    order = order[np.isin(row[order], np.unique(row[order[nested]]))]
    first = np.ones(len(order), bool)
    first[1:] = row[order[1:]] != row[order[:-1]]
    # The highest `after` so far of each row: positions, so that group × positions fits into 64 bits.
    base = np.cumsum(first) * (len(row) + 1)
    reached = np.maximum.accumulate(base + after[order]) - base
    made[order[1:]] = (reached[:-1] > order[1:]) & ~first[1:]
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
