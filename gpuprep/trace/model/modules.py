"""In which module of the network does each range lie? The names of the modules around it, outermost first, with "/".

A backward op lies in no module: it takes that of its forward op.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gpuprep.trace.columns import NONE, Ints, OpKind, Trace
from gpuprep.trace.model.groups import Groups
from gpuprep.trace.model.sweep import Sweep, nearest

PREFIX = "nn.Module: "
LONGEST = 500  # characters of a path that are kept


@dataclass
class Modules:
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
            paths.append(f"{paths[outer[at]]}/{name}"[:LONGEST] if outer[at] >= 0 else name[:LONGEST])
        level = _children(children, sorted_above, level)
    return Modules(paths, own.rows, path)


def _children(children: Ints, sorted_above: Ints, level: Ints) -> Ints:
    begin = np.searchsorted(sorted_above, level, "left")
    size = np.searchsorted(sorted_above, level, "right") - begin
    total = int(size.sum())
    offset = np.repeat(begin - np.concatenate(([0], np.cumsum(size)[:-1])), size)
    return np.asarray(children[np.arange(total) + offset])


def of_ranges(trace: Trace, modules: Modules, parents: Ints, forward: Ints) -> NDArray[np.int32]:
    """Index of `modules.paths` of each range of the profile; -1 in none. `forward`: of a backward op its forward op."""
    own = np.full(len(trace.ops.start), NONE, np.int32)
    if not modules.paths:
        return own
    own[modules.instances] = modules.instance_path
    made = nearest(own, parents)
    joined = np.flatnonzero((forward >= 0) & (made < 0))
    made[joined] = made[forward[joined]]
    return nearest(made, parents)


def forward_of(trace: Trace, backward: NDArray[np.bool_]) -> NDArray[np.int32]:
    """Of each backward op its forward op: by the profile's own pairs, else by the sequence number; -1 without."""
    ops = trace.ops
    made = np.full(len(ops.start), NONE, np.int32)
    pairs = trace.backward_of
    if len(pairs):
        made[pairs[:, 1]] = pairs[:, 0]
        return made
    numbered = (ops.sequence >= 0) & (ops.kind == OpKind.OP)
    forward = np.flatnonzero(numbered & ~backward)
    later = np.flatnonzero(numbered & backward)
    if not len(forward) or not len(later):
        return made
    # Several nested forward ops have the number; the numbers begin anew in every thread, so the last one before counts.
    groups = Groups(np.concatenate((ops.process[forward], ops.process[later])), _joined(ops.sequence, forward, later))
    key = groups.of.astype(np.int64)
    times = np.concatenate((ops.start[forward], ops.start[later]))
    order = np.lexsort((times, key))
    is_forward = order < len(forward)
    last = np.maximum.accumulate(np.where(is_forward, np.arange(len(order)), NONE))
    found = np.flatnonzero(~is_forward & (last >= 0))
    found = found[key[order[found]] == key[order[last[found]]]]
    made[later[order[found] - len(forward)]] = forward[order[last[found]]]
    return made


def _joined(column: Ints, one: Ints, two: Ints) -> Ints:
    return np.concatenate((column[one], column[two]))
