"""Sums, unions and nesting of intervals, without a Python loop over them. Times are whole ns: nothing is rounded.

A sum counts work at the same time twice (two streams; two kernels of one stream on newer GPUs). A union does not.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from gpuprep.trace.columns import NONE, Ints, Ops


@dataclass(frozen=True)
class Union:
    """Intervals merged where they touch or overlap: sorted, apart from each other."""

    starts: Ints
    ends: Ints
    before: Ints  # int64, one longer: length of all merged intervals before each, and of all

    @property
    def length(self) -> int:
        return int(self.before[-1])

    def until(self, times: Ints) -> NDArray[np.int64]:
        """How much of the union lies before each of `times`."""
        row = np.searchsorted(self.starts, times, side="right") - 1
        if not len(self.starts):
            return np.zeros(np.shape(times), np.int64)
        inside = np.minimum(times, self.ends[row]) - self.starts[row]
        return np.asarray(np.where(row < 0, 0, self.before[row] + inside), np.int64)

    def inside(self, starts: Ints, ends: Ints) -> NDArray[np.int64]:
        """Length of the union inside of each window."""
        return np.asarray(self.until(np.maximum(starts, ends)) - self.until(starts), np.int64)


def union(starts: Ints, ends: Ints) -> Union:
    """Of intervals in any order. An interval that ends before it starts counts as empty."""
    order = np.argsort(starts, kind="stable")
    starts = np.asarray(starts, np.int64)[order]
    ends = np.maximum(np.asarray(ends, np.int64)[order], starts)
    if not len(starts):
        nothing = np.zeros(0, np.int64)
        return Union(nothing, nothing, np.zeros(1, np.int64))
    reached = np.maximum.accumulate(ends)
    first = np.concatenate(([True], starts[1:] > reached[:-1]))
    last = np.concatenate((first[1:], [True]))
    begin, end = starts[first], reached[last]
    return Union(begin, end, np.concatenate(([0], np.cumsum(end - begin))))


def union_by_group(group: Ints, starts: Ints, ends: Ints, groups: int) -> tuple[Ints, Ints]:
    """(union, span) of the intervals of each group 0 … groups − 1; 0 for a group without any."""
    lengths = np.zeros(groups, np.int64)
    spans = np.zeros(groups, np.int64)
    if not len(group):
        return lengths, spans
    order = np.lexsort((starts, group)).astype(np.int32)
    group, starts, ends = group[order], np.asarray(starts, np.int64)[order], np.asarray(ends, np.int64)[order]
    first = np.flatnonzero(np.concatenate(([True], group[1:] != group[:-1])))
    reached = running_maximum(ends, first)
    before = np.concatenate((starts[:1], reached[:-1]))
    before[first] = starts[first]
    own = np.maximum(ends - np.maximum(starts, before), 0)
    lengths[group[first]] = np.add.reduceat(own, first)
    spans[group[first]] = np.maximum.reduceat(ends, first) - starts[first]
    return lengths, spans


def running_maximum(values: Ints, first: Ints) -> NDArray[np.int64]:
    """Highest value so far, anew in each group; `first` are the rows where groups begin.

    Works on ranks: group number × times in nanoseconds would not fit into 64 bits.
    """
    order = np.argsort(values, kind="stable")
    rank = np.empty(len(values), np.int64)
    rank[order] = np.arange(len(values))
    group = np.zeros(len(values), np.int64)
    group[first] = 1
    group = (np.cumsum(group) - 1) * len(values)
    return np.asarray(values[order[np.maximum.accumulate(rank + group) - group]], np.int64)


Rows = NDArray[np.int32]
CHUNK = 1 << 20  # ranges that are looked at together: bounds what is needed beside the columns


class Sweep:
    """Ranges in the order of a stack: by thread, then by start, the longest first, then by `tie`."""

    def __init__(self, start: Ints, end: Ints, thread: Ints, rows: Ints, tie: tuple[Ints, ...] = ()) -> None:
        """`rows`: the ranges that take part, rows of the other arrays. `tie`: which of two equal ones is outer."""
        self.start, self.end, self.thread = start, end, thread
        self.rows: Ints = _sorted(start, end, thread, rows, tie)
        self._find_threads()

    def only(self, keep: NDArray[np.bool_]) -> Sweep:
        """The same with the ranges of which `keep` (one entry a range of the profile) is true. Sorts nothing again."""
        made = object.__new__(Sweep)
        made.start, made.end, made.thread = self.start, self.end, self.thread
        made.rows = self.rows[keep[self.rows]]
        made._find_threads()
        return made

    def _find_threads(self) -> None:
        threads = self.thread[self.rows]
        change = np.flatnonzero(threads[1:] != threads[:-1]) + 1
        bounds = np.concatenate(([0], change, [len(threads)])) if len(threads) else np.zeros(1, np.int64)
        self.threads = {int(threads[a]): (int(a), int(b)) for a, b in pairwise(bounds)}
        self.first = np.asarray(bounds[:-1], np.int64)
        self._above: Rows | None = None

    @property
    def above(self) -> Rows:
        """Of each position in `rows` the position of the innermost range around it; -1 without.

        Each range first points to the one before it. While that one is over already when the range starts, the range
        takes over its pointer: all between the two are over, too. Pointers double their reach in every round.
        """
        if self._above is None:
            above = np.arange(-1, len(self.rows) - 1, dtype=np.int32)
            above[self.first] = NONE
            # pointers only lead backwards, so parts can be processed one by one
            for begin in range(0, len(above), CHUNK):
                todo = np.arange(begin, min(begin + CHUNK, len(above)), dtype=np.int32)
                todo = todo[above[todo] >= 0]
                while len(todo):
                    todo = todo[self.end[self.rows[above[todo]]] <= self.start[self.rows[todo]]]
                    above[todo] = above[above[todo]]
                    todo = todo[above[todo] >= 0]
            self._above = above
        return self._above

    def parents(self) -> Rows:
        """Of each range of the profile the row of the innermost one around it; -1 without, and for those not here."""
        parents = np.full(len(self.start), NONE, np.int32)
        inner = np.flatnonzero(self.above >= 0).astype(np.int32)
        parents[self.rows[inner]] = self.rows[self.above[inner]]
        return parents

    def around(self, times: Ints, thread: Ints) -> Rows:
        """Row of the innermost range around each time on its thread; -1 without."""
        innermost = np.full(len(times), NONE, np.int32)
        if not len(times) or not len(self.rows):
            return innermost
        order = np.argsort(thread, kind="stable").astype(np.int32)
        change = np.flatnonzero(np.diff(thread[order])) + 1
        for mine in np.split(order, change):
            begin, stop = self.threads.get(int(thread[mine[0]]), (0, 0))
            starts = self.start[self.rows[begin:stop]]
            for part in range(0, len(mine), CHUNK):
                some = mine[part : part + CHUNK]
                at = np.searchsorted(starts, times[some], side="right") - 1
                innermost[some] = np.where(at < 0, NONE, at + begin)
        del order, starts
        above = self.above
        for part in range(0, len(innermost), CHUNK):
            todo = np.arange(part, min(part + CHUNK, len(innermost)), dtype=np.int32)
            todo = todo[innermost[todo] >= 0]
            while len(todo):
                todo = todo[self.end[self.rows[innermost[todo]]] <= times[todo]]
                innermost[todo] = above[innermost[todo]]
                todo = todo[innermost[todo] >= 0]
        inside = innermost >= 0
        innermost[inside] = self.rows[innermost[inside]]
        return innermost


def of_ops(ops: Ops, rows: Ints) -> Sweep:
    """Some ranges of a profile.

    Of two with the same times the outer one: what the program named, before the op, before Python; then the one that
    was numbered first.
    """
    outer = np.array([2, 0, 1, 3], np.int8)  # by OpKind: OP, ANNOTATION, MODULE, PYTHON
    return Sweep(ops.start, ops.end, ops.thread, rows, (outer[ops.kind], ops.external))


def _sorted(start: Ints, end: Ints, thread: Ints, rows: Ints, tie: tuple[Ints, ...]) -> Ints:
    """By one key of thread and start where both fit into 64 bits; the rest is looked at where that key is the same."""
    latest = int(start.max()) + 1 if len(start) else 1
    low = int(start.min()) if len(start) else 0
    threads = int(thread.max()) + 1 if len(thread) else 1
    if low < 0 or latest * threads >= 2**62:
        return _by_all(start, end, thread, rows, tie)
    key = thread[rows] * np.int64(latest)
    key += start[rows]
    order = np.argsort(key, kind="stable").astype(np.int32)
    key = key[order]
    same = np.zeros(len(rows), bool)
    same[1:] = key[1:] == key[:-1]
    same[:-1] |= same[1:]
    del key
    rows = rows[order]
    rows[same] = _by_all(start, end, thread, np.sort(rows[same]), tie)
    return rows


def _by_all(start: Ints, end: Ints, thread: Ints, rows: Ints, tie: tuple[Ints, ...]) -> Ints:
    keys = tuple(each[rows] for each in reversed(tie))
    return rows[np.lexsort((*keys, -end[rows], start[rows], thread[rows]))]


def inherited(own: NDArray[np.bool_], parents: Ints) -> NDArray[np.bool_]:
    """True for each range that has the property itself or in a range around it."""
    have = np.append(own, False)  # -1, no parent, is the last entry
    up = and_none(parents)
    for begin in range(0, len(own), CHUNK):
        todo = np.arange(begin, min(begin + CHUNK, len(own)), dtype=np.int32)
        todo = todo[(up[todo] >= 0) & ~have[todo]]
        while len(todo):
            have[todo] |= have[up[todo]]
            up[todo] = up[up[todo]]
            todo = todo[(up[todo] >= 0) & ~have[todo]]
    return np.asarray(have[:-1])


def nearest(own: Ints, parents: Ints) -> NDArray[np.int32]:
    """Of each range its own value, or that of the nearest range around it which has one (0 or more); -1 without."""
    value, up = and_none(own), and_none(parents)
    for begin in range(0, len(own), CHUNK):
        todo = np.arange(begin, min(begin + CHUNK, len(own)), dtype=np.int32)
        todo = todo[(up[todo] >= 0) & (value[todo] < 0)]
        while len(todo):
            value[todo] = value[up[todo]]
            up[todo] = np.where(value[todo] < 0, up[up[todo]], NONE)
            todo = todo[(up[todo] >= 0) & (value[todo] < 0)]
    return value[:-1]


def and_none(values: Ints) -> NDArray[np.int32]:
    """A copy in 32 bits with NONE behind it: what NONE, as an index, then finds."""
    made = np.full(len(values) + 1, NONE, np.int32)
    made[:-1] = values
    return made
