"""Which ops are the same row: one type at one place with one kind of input?"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpuprep.trace import work
from gpuprep.trace.columns import NONE, Arguments, GpuKind, Ints, OpKind, Trace
from gpuprep.trace.model.groups import Groups
from gpuprep.trace.model.sweep import Sweep, inherited
from gpuprep.trace.profile import Direction, KernelRow, OpRow, UsesTensorCores

# "autograd::engine::evaluate_function: AddmmBackward0" around what torch does backward; in older profiles and in those
# of Nsight Systems the second part alone.
BACKWARD = re.compile(
    r"(?:autograd::engine::evaluate_function: )?(?:\w+::)*\w*Backward\d*(?:\Z|[ ,:])|autograd::engine::"
)
LONGEST = 1000  # characters of shapes and data types that are kept
EMPTY = Arguments()


@dataclass
class Kind:
    """A type of op with one kind of input: what a row tells that does not depend on its place."""

    type: str
    arguments: int
    dtypes: str
    shapes: str
    eligible: bool
    why: str
    flops: float


@dataclass
class Rows:
    rows: list[OpRow]
    of: NDArray[np.int32]  # of each position of the tree its row
    first: Ints  # of each row the position of its first call; -1 of rows without calls


def is_backward(trace: Trace, tree: Sweep) -> NDArray[np.bool_]:
    """Of each position of the tree: it is, or lies in, the backward of something."""
    known = np.array([bool(BACKWARD.match(name)) for name in trace.names], bool)
    return inherited(known[trace.ops.name[tree.rows]], tree.above)


def kinds(trace: Trace, tree: Sweep, compute_capability: str) -> tuple[list[Kind], NDArray[np.int32]]:
    """Distinct kinds, and that of each position of the tree. Loops over distinct (name, arguments) alone.

    Numbers among the inputs (a learning rate) make no other row, unless the work depends on them (a stride).
    """
    ops = trace.ops
    pairs = Groups(ops.name[tree.rows], ops.arguments[tree.rows])
    made: list[Kind] = []
    seen: dict[Any, int] = {}
    index = np.zeros(pairs.count, np.int32)
    firsts = tree.rows[pairs.first]
    names, given_at = [trace.names[name] for name in ops.name[firsts]], ops.arguments[firsts].tolist()
    every = work.with_outputs(
        [(name, trace.arguments[at] if at >= 0 else EMPTY) for name, at in zip(names, given_at, strict=True)]
    )
    for pair, (row, name, arguments, given) in enumerate(zip(firsts, names, given_at, every, strict=True)):
        if given.output:
            trace.arguments[arguments] = given
        key: Any = (name, given.shapes, given.dtypes)
        is_op = ops.kind[row] == OpKind.OP
        eligible, why = work.eligible(name, given, compute_capability) if is_op else (False, "a name of the program")
        flops = work.flops(name, given) if is_op else None
        if eligible or flops is not None:
            key = (*key, given.strides, given.concrete)
        number = seen.setdefault(key, len(made))
        if number == len(made):
            flops_or_nan = math.nan if flops is None else float(flops)
            made.append(Kind(name, arguments, dtypes(given), shapes(given), eligible, why, flops_or_nan))
        index[pair] = number
    return made, index[pairs.of]


def rows(
    tree: Sweep,
    all_kinds: list[Kind],
    kind: Ints,
    module: Ints,
    paths: list[str],
    backward: NDArray[np.bool_],
) -> Rows:
    """Row 0 is left for GPU work without an op."""
    groups = Groups(kind, module, backward.astype(np.int8))
    eligible = np.array([each.eligible for each in all_kinds], bool)[kind]
    inner = groups.sum(work.bottom(eligible, tree.above).astype(np.int64)) > 0
    made = []
    for group, at in enumerate(groups.first):
        what = all_kinds[kind[at]]
        path = paths[module[at]] if module[at] >= 0 else ""
        place = f"{path}/{what.type}" if path else what.type
        bottom = bool(inner[group])
        made.append(
            OpRow(
                name=f"{place} {what.shapes}" if what.shapes else place,
                type=what.type,
                direction=Direction.BACKWARD if backward[at] else Direction.FORWARD,
                module=path,
                arguments=what.arguments,
                dtypes=what.dtypes,
                shapes=what.shapes,
                stack=(),
                eligible=what.eligible and bottom,
                why=what.why if bottom or not what.eligible else "an op inside of it does the work",
                flops=what.flops,
            )
        )
    return Rows(made, (groups.of + 1).astype(np.int32), np.concatenate(([NONE], groups.first)))


def kernels(trace: Trace) -> tuple[list[KernelRow], NDArray[np.int32]]:
    """Distinct kernels and memory operations by name, and that of each GPU event."""
    gpu = trace.gpu
    memory = (gpu.kind != GpuKind.KERNEL).astype(np.int8)
    groups = Groups(gpu.name, memory)
    made: list[KernelRow] = []
    seen: dict[tuple[str, bool], int] = {}
    index = np.zeros(groups.count, np.int32)
    for group, at in enumerate(groups.first):
        name, is_memory = trace.names[gpu.name[at]], bool(memory[at])
        index[group] = seen.setdefault((name, is_memory), len(made))
        if index[group] == len(made):
            uses, rule = (UsesTensorCores.NO, "") if is_memory else work.tensor_cores(name)
            made.append(KernelRow(name, is_memory, uses, rule, _size(gpu.grid[at]), _size(gpu.block[at])))
    return made, index[groups.of]


def _size(three: Ints) -> str:
    return "" if (three < 0).any() else "(" + ",".join(map(str, three.tolist())) + ")"


def dtypes(arguments: Arguments) -> str:
    return ", ".join(each for each in arguments.dtypes if each)[:LONGEST]


def shapes(arguments: Arguments) -> str:
    if not any(arguments.shapes):
        return ""
    return ("[" + ", ".join(map(_shape, arguments.shapes)) + "]")[:LONGEST]


def _shape(shape: Any) -> str:
    return "[" + ",".join(map(_shape, shape)) + "]" if isinstance(shape, tuple) else str(shape)
