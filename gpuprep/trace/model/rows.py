"""The distinct ops, kernels and modules of a profile, and from where in the program an op was called."""

from __future__ import annotations

import dataclasses
import math
import re
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpuprep.catalogue import Board, board
from gpuprep.trace import work
from gpuprep.trace.columns import NONE, Arguments, GpuKind, Ints, OpKind, Trace
from gpuprep.trace.model.groups import Groups
from gpuprep.trace.model.intervals import Sweep, inherited, nearest
from gpuprep.trace.profile import Cells, Direction, KernelRow, OpCells, OpRow, UsesTensorCores
from gpuprep.trace.work.optypes import SPEED, proves

PREFIX = "nn.Module: "
# TorchScript: "SELF(Net)::forward.fc(Linear)::forward".
HIERARCHY = "Module Hierarchy"
PARTS, METHOD = re.compile(r"(?<=[\w)])\.(?=[\w]+\()"), re.compile(r"::\w+\Z")
LONGEST_PATH = 500  # characters of a path that are kept


@dataclass
class Modules:
    own: Sweep
    paths: list[str]
    instances: Ints  # rows of Trace.ops that are modules
    instance_path: Ints  # of each of them its path, index of `paths`


def find(trace: Trace, everything: Sweep) -> Modules:
    """Loops over the depth of the network, not over its calls."""
    own = everything.only(trace.ops.kind == OpKind.MODULE)
    names, above = trace.ops.name[own.rows], own.above
    path = np.full(len(own.rows), NONE, np.int64)
    paths: list[str] = []
    level: Ints = np.flatnonzero(above < 0)
    children = np.argsort(above, kind="stable")
    sorted_above = above[children]
    while len(level):
        outer = np.where(above[level] < 0, NONE, path[above[level]])
        groups = Groups(outer, names[level])
        path[level] = groups.of + len(paths)
        for at in groups.first:
            name = trace.names[names[level[at]]].removeprefix(PREFIX)
            paths.append(f"{paths[outer[at]]}/{name}"[:LONGEST_PATH] if outer[at] >= 0 else name[:LONGEST_PATH])
        level = _children(children, sorted_above, level)
    return Modules(own, paths, own.rows, path)


def _children(children: Ints, sorted_above: Ints, level: Ints) -> Ints:
    begin = np.searchsorted(sorted_above, level, "left")
    size = np.searchsorted(sorted_above, level, "right") - begin
    total = int(size.sum())
    offset = np.repeat(begin - np.concatenate(([0], np.cumsum(size)[:-1])), size)
    return np.asarray(children[np.arange(total) + offset])


def of_tree(trace: Trace, modules: Modules, tree: Sweep, forward: Ints) -> NDArray[np.int32]:
    """Index of `modules.paths` of each position of the tree; -1 in none.

    `forward`: of each position with a backward op that of its forward op, else -1.
    """
    rows = tree.rows
    if not len(modules.instances):
        return _from_hierarchy(trace, modules, tree)
    path_of = np.full(len(trace.ops.start) + 1, NONE, np.int32)
    path_of[modules.instances] = modules.instance_path
    made = path_of[modules.own.around(trace.ops.start[rows], trace.ops.thread[rows])]
    joined = np.flatnonzero((forward >= 0) & (made < 0))
    made[joined] = made[forward[joined]]
    return nearest(made, tree.above)


def _from_hierarchy(trace: Trace, modules: Modules, tree: Sweep) -> NDArray[np.int32]:
    """What some profiles write beside their ops instead of ranges of modules; new paths go to `modules`."""
    arguments = trace.ops.arguments[tree.rows]
    known: dict[str, int] = {}
    of_arguments = np.full(len(trace.arguments) + 1, NONE, np.int32)  # the last entry: no arguments
    for index, each in enumerate(trace.arguments):
        hierarchy = dict(each.other).get(HIERARCHY)
        if hierarchy:
            path = "/".join(METHOD.sub("", part) for part in PARTS.split(hierarchy))[:LONGEST_PATH]
            of_arguments[index] = known.setdefault(path, len(known))
    modules.paths.extend(known)
    return nearest(of_arguments[arguments], tree.above)


def forward_of(trace: Trace, tree: Sweep, position: Ints, backward: NDArray[np.bool_]) -> NDArray[np.int32]:
    """Of each position of the tree with a backward op that of its forward op; -1 without.

    By the profile's own pairs, else by the sequence number. `position`: of each range of the profile in the tree.
    """
    made = np.full(len(tree.rows), NONE, np.int32)
    if len(trace.backward_of):
        pairs = position[trace.backward_of]
        pairs = pairs[(pairs >= 0).all(axis=1)]
        made[pairs[:, 1]] = pairs[:, 0]
        return made
    sequence = trace.ops.sequence[tree.rows]
    numbered = np.flatnonzero(sequence >= 0)
    # Several nested forward ops have the number; the numbers begin anew in every thread, so the last one before counts.
    key = Groups(trace.ops.process[tree.rows[numbered]], sequence[numbered]).of
    order = np.lexsort((trace.ops.start[tree.rows[numbered]], key))
    key, numbered = key[order], numbered[order]
    is_forward = ~backward[numbered]
    last = np.maximum.accumulate(np.where(is_forward, np.arange(len(order)), NONE))
    matched = np.flatnonzero(~is_forward & (last >= 0))
    matched = matched[key[matched] == key[last[matched]]]
    made[numbered[matched]] = numbered[last[matched]]
    return made


MOST_FRAMES, LONGEST_FRAME = 100, 300  # frames of a stack and characters of a frame that are kept
# What older profiles put beside the op instead of ranges: the frames, innermost first, with ";".
CALL_STACK = "Call stack"


def of_ranges(trace: Trace, ranges: list[int], parents: Ints, forward: list[int]) -> list[tuple[str, ...]]:
    """Python functions around each of some ranges, outermost first.

    `forward`: the range whose stack is taken where a range has none, of a backward op its forward op; -1 without.
    """
    made = []
    for row, other in zip(ranges, forward, strict=True):
        frames = _frames(trace, row, parents) or _frames(trace, other, parents)
        made.append(tuple(reversed(frames)))
    return made


def _frames(trace: Trace, row: int, parents: Ints) -> list[str]:
    """Innermost first."""
    kind, python = trace.ops.kind, int(OpKind.PYTHON)
    frames: list[str] = []
    while row >= 0 and len(frames) < MOST_FRAMES:
        if kind[row] == python:
            frames.append(trace.names[trace.ops.name[row]][:LONGEST_FRAME])
        elif not frames:
            frames.extend(_recorded_frames(trace, row))
        row = int(parents[row])
    return frames


def _recorded_frames(trace: Trace, row: int) -> list[str]:
    arguments = int(trace.ops.arguments[row])
    if arguments < 0:
        return []
    call_stack = dict(trace.arguments[arguments].other).get(CALL_STACK, "")
    return [frame.strip()[:LONGEST_FRAME] for frame in call_stack.split(";")[:MOST_FRAMES] if frame.strip()]


# "autograd::engine::evaluate_function: AddmmBackward0" around what torch does backward; in older profiles and in those
# of Nsight Systems the second part alone.
BACKWARD = re.compile(
    r"(?:autograd::engine::evaluate_function: )?(?:\w+::)*\w*Backward\d*(?:\Z|[ ,:])|autograd::engine::"
)
LONGEST_TEXT = 1000  # characters of shapes and data types that are kept
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
    return ", ".join(each for each in arguments.dtypes if each)[:LONGEST_TEXT]


def shapes(arguments: Arguments) -> str:
    if not any(arguments.shapes):
        return ""
    return ("[" + ", ".join(map(_shape, arguments.shapes)) + "]")[:LONGEST_TEXT]


def _shape(shape: Any) -> str:
    return "[" + ",".join(map(_shape, shape)) + "]" if isinstance(shape, tuple) else str(shape)


MIB = 1 << 20


def proven(
    trace: Trace, ops: list[OpRow], kernels: list[KernelRow], cells: Cells, op_cells: OpCells
) -> list[KernelRow]:
    """The kernels, with yes for those that are proven: of an op its longest unknown one, if no other is a yes."""
    unknown = {at for at, row in enumerate(kernels) if row.tensor_cores is UsesTensorCores.UNKNOWN}
    gpu_board = _board(trace) if unknown else None
    if gpu_board is None:
        return kernels
    memory = np.array([row.memory for row in kernels], bool)
    sure: set[int] = set()
    for op in np.unique(cells.op[np.isin(cells.kernel, list(unknown))]).tolist():
        mine = (cells.op == op) & ~memory[cells.kernel]
        launched = int(cells.calls[mine].sum())
        calls = min(int(op_cells.calls[op_cells.op == op].sum()), launched)
        kernel, total = cells.kernel[mine], cells.total[mine]
        yes = any(kernels[each].tensor_cores is UsesTensorCores.YES for each in set(kernel.tolist()))
        if not yes and _proves(trace, ops[op], gpu_board, calls, int(total.sum())):
            times = np.bincount(kernel, weights=total, minlength=len(kernels))
            sure.add(max(unknown & set(kernel.tolist()), key=lambda each: float(times[each])))
    proven_use = UsesTensorCores.YES
    return [
        dataclasses.replace(row, tensor_cores=proven_use, rule=SPEED) if at in sure else row
        for at, row in enumerate(kernels)
    ]


def _proves(trace: Trace, op: OpRow, device: Board, calls: int, ns: int) -> bool:
    if op.arguments < 0 or not ns:
        return False
    given = trace.arguments[op.arguments]
    shape = work.shape(op.type, given)
    if shape is None or shape.kind == "convolution":  # Winograd and FFT calculate less than is counted
        return False
    return proves(device, work.dtype(op.type, given), shape.flops * shape.needed * calls / ns / 1000)


def _board(trace: Trace) -> Board | None:
    """Of the GPUs that worked, if they are of one kind."""
    used = [device for device in trace.devices if device.index in set(np.unique(trace.gpu.device).tolist())]
    every = {
        device.name: board(
            "",
            name=device.name,
            memory_mib=device.memory_bytes / MIB if device.memory_bytes > 0 else None,
            sms=device.sms if device.sms > 0 else None,
        )
        for device in used
    }
    return next(iter(every.values())) if len(every) == 1 else None
