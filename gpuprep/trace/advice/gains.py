"""Gains of a step that is replayed with one thing changed."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gpuprep.trace.advice import intervals
from gpuprep.trace.advice.evidence import Evidence, Mask
from gpuprep.trace.advice.replay import Change, Replay
from gpuprep.trace.columns import Ints
from gpuprep.trace.document import Gain

WORTH_SAYING = 0.02  # of the step


def replay(e: Evidence) -> Replay:
    """Taken apart once for all rules."""
    if not isinstance(e.replayed, Replay):
        e.replayed = Replay(e)
    return e.replayed


def gain(e: Evidence, change: Change, how: str, *, least_ns: float = 0.0) -> Gain | None:
    """`least_ns`: a step takes at least so long then. None: this step cannot be replayed."""
    found = replay(e)
    if not found.ok:
        return None
    then = max(found.step(change), least_ns)
    saved = max(0.0, found.step_ns - then)
    words = f"{how}; the step is replayed with this change alone"
    if change.gpu_ns is not None or change.without_gpu is not None:
        alone = found.saved_by_gpu_ns(change)
        if alone > saved + WORTH_SAYING * found.step_ns and least_ns == 0.0:
            words += (
                f", and the CPU, which the profiler slows, then limits it: of the GPU's work it is {alone / 1e6:.2f} ms"
            )
    return Gain(saved / 1e3, words)


def durations(e: Evidence) -> NDArray[np.float64]:
    """Of all rows of Trace.gpu, ns: to be changed."""
    return (e.trace.gpu.end - e.trace.gpu.start).astype(float)


def all_gpu(e: Evidence, of_chosen: Mask) -> Mask:
    """Of all rows of Trace.gpu, from a mask of the chosen ones."""
    found = np.zeros(len(e.trace.gpu.start), bool)
    found[e.gpu[of_chosen]] = True
    return found


def calls_of(e: Evidence, gpu_rows: Mask) -> Mask:
    """Of all rows of Trace.calls: which launch nothing but these rows of Trace.gpu."""
    call, known = e.profile.gpu.call, e.profile.gpu.call >= 0
    found = np.zeros(len(e.trace.calls.start), bool)
    found[call[known & gpu_rows]] = True
    found[call[known & ~gpu_rows]] = False
    return found


def calls_between(e: Evidence, rows: Ints) -> Mask:
    """Of all rows of Trace.calls: which begin inside one of these ranges, on its thread."""
    ops = e.trace.ops
    return calls_in(e, ops.thread[rows], ops.start[rows], ops.end[rows])


def calls_in(e: Evidence, threads: Ints, starts: Ints, ends: Ints) -> Mask:
    """Of all rows of Trace.calls: which begin inside one of these spans of a thread."""
    calls = e.trace.calls
    found = np.zeros(len(calls.start), bool)
    for thread in np.unique(threads).tolist():
        spans = intervals.union(starts[threads == thread], ends[threads == thread])
        here = np.flatnonzero(calls.thread == thread)
        place = np.searchsorted(spans[:, 0], calls.start[here], side="right") - 1
        inside = place >= 0
        inside[inside] = calls.start[here[inside]] < spans[place[inside], 1]
        found[here[inside]] = True
    return found


def has_call(e: Evidence, rows: Ints, wanted: Mask) -> Mask:
    """Of each of these ranges: whether one of the calls `wanted` (of all) begins inside it, on its thread."""
    calls, ops = e.trace.calls, e.trace.ops
    found = np.zeros(len(rows), bool)
    for thread in np.unique(ops.thread[rows]).tolist():
        mine = ops.thread[rows] == thread
        starts = np.sort(calls.start[wanted & (calls.thread == thread)])
        before, after = (np.searchsorted(starts, edge[rows[mine]]) for edge in (ops.start, ops.end))
        found[mine] = after > before
    return found


def gpu_of_calls(e: Evidence, calls: Mask) -> Mask:
    """Of all rows of Trace.gpu: which were launched by one of these calls."""
    call = e.profile.gpu.call
    return np.asarray((call >= 0) & calls[np.where(call >= 0, call, 0)]) if len(calls) else np.zeros(len(call), bool)
