"""Sets of times as sorted, separate intervals: int64 arrays of shape (n, 2), start and end in ns."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gpuprep.trace.columns import Ints

Intervals = NDArray[np.int64]
EMPTY: Intervals = np.empty((0, 2), np.int64)


def union(start: Ints, end: Ints) -> Intervals:
    """The union of any intervals. Those without length are left out."""
    kept = end > start
    if not kept.any():
        return EMPTY
    start, end = start[kept].astype(np.int64), end[kept].astype(np.int64)
    order = np.argsort(start, kind="stable")
    start, end = start[order], np.maximum.accumulate(end[order])
    first = np.ones(len(start), bool)
    first[1:] = start[1:] > end[:-1]
    last = np.append(np.flatnonzero(first)[1:] - 1, len(start) - 1)
    return np.column_stack((start[first], end[last]))


def length(of: Intervals) -> int:
    return int((of[:, 1] - of[:, 0]).sum())


def clipped(of: Intervals, start: int, end: int) -> Intervals:
    cut = np.clip(of, start, end)
    return cut[cut[:, 1] > cut[:, 0]]


def gaps(of: Intervals, start: int, end: int) -> Intervals:
    """The complement within [start, end]."""
    inside = clipped(of, start, end)
    edges = np.concatenate(([start], inside.ravel(), [end])).reshape(-1, 2)
    return edges[edges[:, 1] > edges[:, 0]]


def both(intervals: Intervals, other: Intervals) -> Intervals:
    """The intersection."""
    if not len(intervals) or not len(other):
        return EMPTY
    starts, ends = (
        np.sort(np.concatenate((intervals[:, 0], other[:, 0]))),
        np.sort(np.concatenate((intervals[:, 1], other[:, 1]))),
    )
    # Both sets are separate in themselves, so at most two are open: the k-th end closes before the (k+1)-th start ...
    # of the overlaps, whose start is the start of the second that opens and whose end is the end of the first.
    start, end = starts[1:], ends[:-1]
    kept = end > start
    return np.column_stack((start[kept], end[kept]))


def without(intervals: Intervals, other: Intervals) -> Intervals:
    """The difference: `intervals` without `other`."""
    if not len(intervals) or not len(other):
        return intervals
    low, high = int(intervals[0, 0]), int(intervals[-1, 1])
    return both(intervals, gaps(other, low, high))


class Covered:
    """covered(t): how much of the time before t the intervals cover, ns. For many t at once."""

    def __init__(self, of: Intervals) -> None:
        self._edges = of.ravel() if len(of) else np.array([0, 1], np.int64)
        lengths = np.cumsum(of[:, 1] - of[:, 0]) if len(of) else np.zeros(1, np.int64)
        before = np.concatenate(([0], lengths[:-1]))
        self._values = np.column_stack((before, lengths)).ravel()

    def __call__(self, times: Ints) -> NDArray[np.float64]:
        covered: NDArray[np.float64] = np.interp(times, self._edges, self._values)
        return covered

    def between(self, start: Ints, end: Ints) -> NDArray[np.float64]:
        """How much of each [start, end] is covered."""
        return self(end) - self(start)
