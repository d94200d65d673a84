"""In which module of the network does each range lie? The names of the modules around it, outermost first, with "/".

A backward op lies in no module: it takes that of its forward op.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gpuprep.trace.columns import NONE, Ints, OpKind, Trace
from gpuprep.trace.model.groups import Groups
from gpuprep.trace.model.sweep import Sweep, nearest

PREFIX = "nn.Module: "
# TorchScript: "SELF(Net)::forward.fc(Linear)::forward".
HIERARCHY = "Module Hierarchy"
PARTS, METHOD = re.compile(r"(?<=[\w)])\.(?=[\w]+\()"), re.compile(r"::\w+\Z")
LONGEST = 500  # characters of a path that are kept


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
            paths.append(f"{paths[outer[at]]}/{name}"[:LONGEST] if outer[at] >= 0 else name[:LONGEST])
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
            path = "/".join(METHOD.sub("", part) for part in PARTS.split(hierarchy))[:LONGEST]
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
