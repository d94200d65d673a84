"""Sums and unions of intervals, without a Python loop over them. Times are whole nanoseconds, so nothing is rounded.

A sum counts work at the same time twice (two streams; two kernels of one stream on newer GPUs). A union does not.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gpuprep.trace.columns import Ints


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
