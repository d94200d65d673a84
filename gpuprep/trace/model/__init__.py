"""Which op launched which kernel, in which iteration? Trace ► Profile."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gpuprep.trace import work
from gpuprep.trace.columns import NONE, OTHER_VENDORS, Ints, OpKind, Trace, give_back
from gpuprep.trace.model import rows, sums
from gpuprep.trace.model.groups import Groups, narrow, parts
from gpuprep.trace.model.intervals import Sweep, and_none, nearest, of_ops
from gpuprep.trace.model.iterations import ONE, Borders, borders, by_key_op, by_repetition
from gpuprep.trace.profile import (
    NO_OP,
    OUTSIDE,
    Direction,
    Iterations,
    KernelInstances,
    Links,
    OpCells,
    OpInstances,
    OpRow,
    Profile,
)

# Above this share of External ids that equal the correlation id, they are a copy of it.
COPIED = 0.9


@dataclass
class Launches:
    call: NDArray[np.int32]  # of each GPU event its row of Trace.calls; -1 without
    range: NDArray[np.int32]  # of each GPU event the row of Trace.ops around its launch; -1 without
    call_op: NDArray[np.int32]  # of each API call the innermost operator around it; -1 without
    checked: int  # GPU events of which the External id names an operator
    agree: int  # of these, how many have the same operator around their launch
    by_external: int  # GPU events whose operator is known by the External id alone


def launches(trace: Trace, ops: Sweep, annotations: Sweep) -> Launches:
    """`ops`: the operators alone. `annotations`: the names that a program gave, without the borders of iterations."""
    calls = trace.calls
    call = _calls_of(trace)
    call_op = ops.around(calls.start, calls.thread)
    around = _of_call(call_op, call)
    external = _by_external(trace)
    both = (around >= 0) & (external >= 0)
    by_external_id = (around < 0) & (external >= 0)
    # Calls without an operator around them, and events without a call: what the External id says, if it can say it.
    around = np.where(by_external_id, external, around)
    rest = around < 0
    if rest.any() and len(annotations.rows):
        noted = annotations.around(calls.start, calls.thread)
        around = np.where(rest, _of_call(noted, call), around)
    return Launches(
        call=call,
        range=around.astype(np.int32),
        call_op=call_op,
        checked=int(both.sum()),
        agree=int((both & (around == external)).sum()),
        by_external=int(by_external_id.sum()),
    )


def _of_call(values: Ints, call: Ints) -> NDArray[np.int32]:
    return and_none(values)[call]


def _calls_of(trace: Trace) -> NDArray[np.int32]:
    """A correlation id is unique in its process. One call may own many GPU events: a CUDA graph."""
    gpu, calls = trace.gpu, trace.calls
    call_rows = np.full(len(gpu.start), NONE, np.int32)
    processes = np.unique(calls.process)
    for process in processes:
        among = (calls.process == process) & (calls.correlation > 0)
        mine = np.flatnonzero((gpu.process == process) & (gpu.correlation > 0))
        call_rows[mine] = _look_up(calls.correlation, among, gpu.correlation[mine])
    return call_rows


def _by_external(trace: Trace) -> NDArray[np.int32]:
    """Row of the operator that the External id of a GPU event, or of its call, names; -1 without."""
    gpu, ops = trace.gpu, trace.ops
    op_rows = np.full(len(gpu.start), NONE, np.int32)
    have = (gpu.external > 0) & (gpu.correlation > 0)
    if not have.any() or np.count_nonzero(have & (gpu.external == gpu.correlation)) > COPIED * np.count_nonzero(have):
        return op_rows
    for process in np.unique(gpu.process):
        among = (ops.process == process) & (ops.external > 0) & (ops.kind == OpKind.OP)
        mine = np.flatnonzero((gpu.process == process) & (gpu.external > 0))
        op_rows[mine] = _look_up(ops.external, among, gpu.external[mine])
    return op_rows


def _look_up(keys: Ints, among: NDArray[np.bool_], wanted: Ints) -> Ints:
    """The first row of each wanted key, of the rows that `among` has true; -1 without."""
    asked, of = np.unique(wanted, return_inverse=True)
    if not len(asked):
        return np.full(0, NONE)
    first = np.full(len(asked), len(keys))
    for part in parts(len(keys)):
        rows = np.flatnonzero(among[part]) + part.start
        at = np.minimum(np.searchsorted(asked, keys[rows]), len(asked) - 1)
        same = asked[at] == keys[rows]
        np.minimum.at(first, at[same], rows[same])
    first[first == len(keys)] = NONE
    return first[of]


GRAPH_LAUNCH = "GraphLaunch"  # cudaGraphLaunch, cuGraphLaunch, hipGraphLaunch


def profile(trace: Trace, *, key_op: str = "", name: str = "", one_of_a_job: bool = False) -> Profile:
    """Links a whole file. UsageError: the key op is not in it.

    `one_of_a_job`: steps count by their names alone: those of another rank that are found otherwise may be others.
    """
    give_back()  # what reading had
    _in_32_bits(trace)
    ops, gpu = trace.ops, trace.gpu
    border = borders(trace)
    everything = of_ops(ops, np.arange(len(ops.start), dtype=np.int32))
    give_back()
    plain = np.ones(len(ops.start), bool)
    plain[border.rows] = False  # ProfilerStep#3 is no work, and an optimizer may end after the step's end
    parents = everything.only(plain).parents()
    is_op = ops.kind == OpKind.OP
    annotation = (ops.kind == OpKind.ANNOTATION) & plain
    linked = launches(trace, everything.only(is_op), everything.only(annotation))
    if border.how == ONE and not one_of_a_job:
        border = by_repetition(trace, linked.call, everything) or border
    give_back()

    # Annotations are ops as far as they launch something that no op launches.
    launching = ops.name[linked.range[linked.range >= 0]]
    tree = everything.only(is_op | (annotation & np.isin(ops.name, launching)))
    position = np.full(len(ops.start) + 1, NONE, np.int32)  # of each range in the tree; the last entry: no range
    position[tree.rows] = np.arange(len(tree.rows))
    backward = rows.is_backward(trace, tree)
    forward = rows.forward_of(trace, tree, position, backward)
    nn_modules = rows.find(trace, everything)
    del everything, is_op, annotation, plain
    give_back()
    module = rows.of_tree(trace, nn_modules, tree, forward)
    all_kinds, kind = rows.kinds(trace, tree, _compute_capability(trace))
    made = rows.rows(tree, all_kinds, kind, module, nn_modules.paths, backward)
    first = made.first[1:]
    give_back()
    origin = np.append(tree.rows, NONE)[nearest(forward, tree.above)[first]]
    call_stacks = rows.of_ranges(trace, tree.rows[first].tolist(), parents, origin.tolist())
    op_rows = [dataclasses.replace(row, stack=stack) for row, stack in zip(made.rows, call_stacks, strict=True)]
    kernels, kernel = rows.kernels(trace)
    if key_op:
        named = [at for at, row in enumerate(op_rows, 1) if row.name == key_op]
        border = by_key_op(trace, key_op, tree.rows[np.isin(made.of, named)])

    place = position[linked.range]
    op = np.append(made.of, NO_OP)[place].astype(np.int32)
    graphs = _graph_rows(trace, linked, 1 + len(op_rows))
    op[graphs.events] = graphs.of_events

    iteration = np.append(border.of(trace.calls.start), OUTSIDE)[linked.call].astype(np.int32)
    if border.how == ONE:
        iteration[:] = 0
    elif not len(trace.calls.start):  # no launches in this profile: only the time of the GPU work is known
        iteration = border.of(gpu.start)
    call_place = position[linked.call_op]
    del position, forward, backward, module, kind
    give_back()
    of = sums.times(trace, tree, place, call_place)
    del place, call_place
    give_back()
    op_iteration = border.of(ops.start) if key_op else border.holding(ops.start, ops.end)
    iterations = _iterations(trace, border, iteration, op_iteration)
    devices = np.unique(gpu.device).tolist()
    all_ops, cells = [_no_op(trace, linked), *op_rows, *graphs.rows], sums.cells(gpu, iteration, op, kernel)
    op_cells = _with_graphs(sums.op_cells(op_iteration[tree.rows], made.of, of), graphs, trace, border)
    give_back()
    ranges = OpInstances(
        op=_spread(made.of, tree, len(ops.start), NONE),
        parent=parents,
        iteration=op_iteration,
        cpu_self=_spread(of.cpu_self, tree, len(ops.start), 0),
        overhead=_spread(of.overhead, tree, len(ops.start), 0),
        gpu_idle=_spread(of.gpu_idle, tree, len(ops.start), 0),
    )
    del tree, made, of
    give_back()
    return Profile(
        trace=trace,
        iterations=iterations,
        ops=all_ops,
        kernels=rows.proven(trace, all_ops, kernels, cells, op_cells),
        cells=cells,
        op_cells=op_cells,
        gpu=KernelInstances(kernel, op, np.where(op == NO_OP, NONE, linked.range), linked.call, iteration),
        ranges=ranges,
        busy=sums.busy(gpu, devices, iterations.first, iterations.until),
        device_order=devices,
        modules=nn_modules.paths,
        module_cells=sums.module_cells(trace, nn_modules, op_iteration),
        links=Links(
            to_call=int((linked.call >= 0).sum()),
            to_op=int((op != NO_OP).sum()),
            by_external=linked.by_external,
            checked=linked.checked,
            agree=linked.agree,
        ),
        name=name or trace.file,
    )


def _in_32_bits(trace: Trace) -> None:
    """Numbers that only tell things apart; in place, for a profile may have tens of millions of rows.

    What is the same in all rows takes the memory of one, and cannot be written to.
    """
    columns = ("external", "correlation", "sequence", "forward_thread", "graph_node", "stream")
    for table in (trace.gpu, trace.calls, trace.ops):
        for column in columns:
            if column in vars(table):
                values = narrow(getattr(table, column))
                same = len(values) and (values == values[0]).all()
                setattr(table, column, np.broadcast_to(values[0], len(values)) if same else values)


def _spread(values: Ints, tree: Sweep, size: int, otherwise: int) -> Ints:
    """Values of positions of the tree as values of ranges; in 32 bits where they fit."""
    kind = np.int32 if not len(values) or int(values.max()) <= np.iinfo(np.int32).max else np.int64
    made = np.full(size, otherwise, kind) if otherwise else np.zeros(size, kind)  # zeros: no memory before it is used
    made[tree.rows] = values
    return made


def _compute_capability(trace: Trace) -> str:
    """Of the first GPU that did something."""
    if trace.notes.keys() & OTHER_VENDORS:
        return work.NOT_NVIDIA
    used = set(np.unique(trace.gpu.device).tolist())
    known = [device.compute_capability for device in trace.devices if device.index in used or not used]
    return next((each for each in known if each), "")


def _no_op(trace: Trace, linked: Launches) -> OpRow:
    before, outside = linked.call < 0, (linked.call >= 0) & (linked.range < 0)
    if not (trace.ops.kind == OpKind.OP).any():
        why = "no op ranges in this report"
    else:
        never = (
            "launched before the profile began" if len(trace.calls.start) else "the profile has no calls that launch"
        )
        causes = ((before, never), (outside, "launched outside of every op"))
        why = ", or ".join(text for rows_, text in causes if rows_.any()) or "without an op"
    return _row(why, why)


def _row(type_: str, why: str) -> OpRow:
    return OpRow(type_, type_, Direction.NONE, "", NONE, "", "", (), False, why, float("nan"))


@dataclasses.dataclass
class Graphs:
    """Launches of CUDA graphs outside of every op: the ops of their kernels are not known. A row for each API call."""

    rows: list[OpRow]
    events: Ints  # GPU events
    of_events: Ints  # of these the row
    calls: Ints  # rows of Trace.calls
    of_calls: Ints


def _graph_rows(trace: Trace, linked: Launches, first: int) -> Graphs:
    names = [index for index, name in enumerate(trace.names) if GRAPH_LAUNCH in name]
    events = np.flatnonzero((linked.call >= 0) & (linked.range < 0)) if names else np.zeros(0, np.int64)
    events = events[np.isin(trace.calls.name[linked.call[events]], names)]
    calls = np.unique(linked.call[events])
    used, of_calls = np.unique(trace.calls.name[calls], return_inverse=True)
    made = [_row(trace.names[name], "a CUDA graph was launched; its ops are not in the profile") for name in used]
    of_events = of_calls[np.searchsorted(calls, linked.call[events])]
    return Graphs(made, events, of_events + first, calls, of_calls + first)


def _with_graphs(made: OpCells, graphs: Graphs, trace: Trace, border: Borders) -> OpCells:
    if not graphs.rows:
        return made
    iteration = border.of(trace.calls.start[graphs.calls])
    length = trace.calls.end[graphs.calls] - trace.calls.start[graphs.calls]
    groups = Groups(iteration, graphs.of_calls)
    more: dict[str, Ints] = {each.name: np.zeros(groups.count, np.int64) for each in dataclasses.fields(OpCells)}
    more["iteration"], more["op"] = groups.values(iteration), groups.values(graphs.of_calls)
    more["calls"], more["cpu"], more["cpu_self"] = groups.size(), groups.sum(length), groups.sum(length)
    more["cpu_shortest"], more["cpu_longest"] = groups.least(length), groups.most(length)
    joined = {key: np.concatenate((getattr(made, key), more[key])) for key in more}
    order = np.lexsort((joined["op"], joined["iteration"]))
    return OpCells(**{key: values[order] for key, values in joined.items()})


def _iterations(trace: Trace, border: Borders, gpu_iteration: Ints, op_iteration: Ints) -> Iterations:
    """The wall clock of an iteration: from its first op on the CPU to the last end of its ops or of its GPU work."""
    ops, count = trace.ops, len(border.start)
    first, until = np.full(count, np.iinfo(np.int64).max), np.full(count, np.iinfo(np.int64).min)
    named = (ops.kind == OpKind.OP) | (ops.kind == OpKind.ANNOTATION)
    named[border.rows] = False
    begun = np.flatnonzero(named & (op_iteration >= 0))
    np.minimum.at(first, op_iteration[begun], ops.start[begun])
    ended = np.flatnonzero((ops.kind == OpKind.OP) & (op_iteration >= 0))
    np.maximum.at(until, op_iteration[ended], ops.end[ended])
    worked = np.flatnonzero(gpu_iteration >= 0)
    np.maximum.at(until, gpu_iteration[worked], trace.gpu.end[worked])
    first = np.where(first > border.end, border.start, first)
    until = np.where(until < first, border.end, until)
    return Iterations(border.names, border.start, border.end, until, first, border.how)
