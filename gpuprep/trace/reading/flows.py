"""Pairs of a forward op and its backward op, of flow events `fwdbwd`."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpuprep.trace.columns import OpKind
from gpuprep.trace.reading.events import AnyEvent
from gpuprep.trace.reading.growing import Threads

Array = np.ndarray[Any, Any]


class Flows:
    def __init__(self) -> None:
        self._starts: dict[Any, tuple[Any, Any, int]] = {}
        self._ends: dict[Any, tuple[Any, Any, int]] = {}

    def add(self, events: list[AnyEvent], times: Array) -> None:
        """A flow's begin (s) stands at the forward op, its end (f) at the backward op, with the same id."""
        for event, time in zip(events, times.tolist(), strict=True):
            (self._starts if event.ph == "s" else self._ends)[event.id] = (event.pid, event.tid, time)

    def join(self, others: Flows) -> None:
        self._starts.update(others._starts)
        self._ends.update(others._ends)

    def pairs(self, ops: dict[str, Array], threads: Threads, zero: int) -> Array:
        """int32, (pairs, 2): rows of `ops`, whose times count from `zero`.

        An end without a begin, and the other way round, is no pair.
        """
        both = [flow for flow in self._starts if flow in self._ends]
        if not both or not len(ops["start"]):
            return np.empty((0, 2), np.int32)
        rows = np.stack(
            [_rows([ends[flow] for flow in both], ops, threads, zero) for ends in (self._starts, self._ends)], 1
        )
        row_pairs = rows[(rows >= 0).all(axis=1)]
        return row_pairs[np.lexsort((row_pairs[:, 1], row_pairs[:, 0]))].astype(np.int32)


def _rows(ends: list[tuple[Any, Any, int]], ops: dict[str, Array], threads: Threads, zero: int) -> Array:
    """The op that starts at the time on the thread; of several the one with a sequence number, then the innermost."""
    candidates = np.flatnonzero(ops["kind"] == OpKind.OP)
    numbered = ops["sequence"][candidates] >= 0
    order = candidates[
        np.lexsort((ops["end"][candidates], ~numbered, ops["start"][candidates], ops["thread"][candidates]))
    ]
    width = int(ops["start"].max()) + 2
    thread = threads.ids([(pid, tid) for pid, tid, _ in ends]).astype(np.int64)
    time = np.array([time for _, _, time in ends], np.int64) - zero
    inside = (time >= 0) & (time < width - 1)
    if width * (len(threads.threads) + 1) >= 2**62:  # absurd times in the file: no key of one number
        return np.full(len(ends), -1)
    keys = ops["thread"][order].astype(np.int64) * width + ops["start"][order]
    wanted = thread * width + time
    at = np.minimum(np.searchsorted(keys, wanted), max(len(keys) - 1, 0))
    if not len(keys):
        return np.full(len(ends), -1)
    return np.where(inside & (keys[at] == wanted), order[at], -1)
