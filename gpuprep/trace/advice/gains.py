"""Gains of a step that is replayed with one thing changed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from gpuprep.trace.advice import intervals
from gpuprep.trace.advice.evidence import Evidence, Mask
from gpuprep.trace.advice.replay import Change, Replay
from gpuprep.trace.columns import Format, Ints
from gpuprep.trace.document import Gain
from gpuprep.trace.profile import REPEATED

LITTLE = 0.002  # share of the step that is too small to report
WORTH_SAYING = 0.02  # of the step
GPU_ALONE = 1.02  # a step that takes no more times the GPU's own time does not wait for the CPU
SURE = 0.2  # of the gain: a range that is not wider is not shown


def replay(e: Evidence) -> Replay:
    """Taken apart once for all rules."""
    if not isinstance(e.replayed, Replay):
        e.replayed = Replay(e)
    return e.replayed


def gain(
    e: Evidence,
    change: Change,
    how: str,
    *,
    least_ns: float = 0.0,
    least_cpu_ns: float = 0.0,
    most_ns: float = float("inf"),
) -> Gain | None:
    """The gain of a change. `least_ns`: a step still takes at least this long; `least_cpu_ns`: the same for the CPU's
    work as profiled. `most_ns`: the largest possible gain; if the GPU's work does not change, that is its idle time.
    None: this step cannot be replayed."""
    replayed = replay(e)
    if change.gpu_ns is None and change.without_gpu is None and change.aside is None:
        most_ns = min(most_ns, intervals.length(e.idle) / e.steps)

    def then(cpu: float) -> float:
        return max(replayed.step(change, cpu), least_ns, least_cpu_ns * cpu)

    made = of_steps(replayed, then, f"{how}; the step is replayed with this change alone", most_ns=most_ns)
    if made is None or least_ns or (change.gpu_ns is None and change.without_gpu is None):
        return made
    alone = (replayed.unchanged_ns(0.0) - replayed.step(change, 0.0)) / 1e3
    if alone <= max(made.us, made.most_us or 0.0) + WORTH_SAYING * replayed.step_ns / 1e3:
        return made
    return replace(made, how=f"{made.how}; the CPU is the limit: of the GPU's own work it is {alone / 1e3:.2f} ms")


def of_steps(
    replayed: Replay, then: Callable[[float], float], how: str, *, most_ns: float = float("inf")
) -> Gain | None:
    """`then(cpu)`: ns of a step with the change, where the CPU's work takes this share. See `paced` in replay.py.
    `most_ns`: the largest possible gain."""
    if not replayed.ok:
        return None

    def saved(cpu: float) -> float:
        return min(max(0.0, replayed.unchanged_ns(cpu) - then(cpu)), most_ns) / 1e3

    pace, us = replayed.pace, saved(replayed.pace.cpu)
    gpu_is_limit = replayed.unchanged_ns(1.0) <= GPU_ALONE * replayed.unchanged_ns(0.0)
    if not pace.timed and gpu_is_limit and then(1.0) <= GPU_ALONE * then(0.0):
        return Gain(us, how)  # before and after the change: the CPU's speed does not matter
    if not pace.timed and not gpu_is_limit and replayed.e.profile.iterations.how in ("one", REPEATED):
        how = f"{how}; a share, as how much the profiler slowed the CPU is not known where the program marks no steps"
        return Gain(us, how, share_percent=100 * us * 1e3 / replayed.unchanged_ns(pace.cpu))
    every = [us, *(saved(other) for other in pace.others)]
    low, high = min(every), max(every)
    if high - low <= SURE * us or high - low <= LITTLE * replayed.step_ns / 1e3:
        return Gain(us, how)
    between = f"{low / 1e3:.2f} to {high / 1e3:.2f} ms"
    return Gain(us, f"{how}; {between}, {_why_open(replayed)}", low, high)


def _why_open(replayed: Replay) -> str:
    if replayed.pace.timed:
        return "as the GPU is the limit without the profiler, and the CPU may be close behind it"
    slowed = "as a profiler may slow the CPU to half its speed"
    if replayed.e.trace.format is not Format.KINETO:
        return slowed
    return f"{slowed}; `gpuprep trace record` times steps without it, too"


def durations(e: Evidence) -> NDArray[np.float64]:
    """Durations of all rows of Trace.gpu, ns: a copy that may be changed."""
    return (e.trace.gpu.end - e.trace.gpu.start).astype(float)


def all_gpu(e: Evidence, of_chosen: Mask) -> Mask:
    """Mask of all rows of Trace.gpu, from a mask of the chosen rows."""
    mask = np.zeros(len(e.trace.gpu.start), bool)
    mask[e.gpu[of_chosen]] = True
    return mask


def calls_of(e: Evidence, gpu_rows: Mask) -> Mask:
    """Mask of Trace.calls: calls that launch only these rows of Trace.gpu."""
    call, known = e.profile.gpu.call, e.profile.gpu.call >= 0
    mask = np.zeros(len(e.trace.calls.start), bool)
    mask[call[known & gpu_rows]] = True
    mask[call[known & ~gpu_rows]] = False
    return mask


def calls_between(e: Evidence, rows: Ints) -> Mask:
    """Mask of Trace.calls: calls that start inside one of these ranges, on its thread."""
    ops = e.trace.ops
    return calls_in(e, ops.thread[rows], ops.start[rows], ops.end[rows])


def calls_in(e: Evidence, threads: Ints, starts: Ints, ends: Ints) -> Mask:
    """Mask of Trace.calls: calls that start inside one of these spans of a thread."""
    calls = e.trace.calls
    mask = np.zeros(len(calls.start), bool)
    for thread in np.unique(threads).tolist():
        spans = intervals.union(starts[threads == thread], ends[threads == thread])
        here = np.flatnonzero(calls.thread == thread)
        place = np.searchsorted(spans[:, 0], calls.start[here], side="right") - 1
        inside = place >= 0
        inside[inside] = calls.start[here[inside]] < spans[place[inside], 1]
        mask[here[inside]] = True
    return mask


def has_call(e: Evidence, rows: Ints, wanted: Mask) -> Mask:
    """Of each of these ranges: whether one of the calls `wanted` (of all) begins inside it, on its thread."""
    calls, ops = e.trace.calls, e.trace.ops
    mask = np.zeros(len(rows), bool)
    for thread in np.unique(ops.thread[rows]).tolist():
        mine = ops.thread[rows] == thread
        starts = np.sort(calls.start[wanted & (calls.thread == thread)])
        before, after = (np.searchsorted(starts, edge[rows[mine]]) for edge in (ops.start, ops.end))
        mask[mine] = after > before
    return mask


def gpu_of_calls(e: Evidence, calls: Mask) -> Mask:
    """Mask of Trace.gpu: events launched by one of these calls."""
    call = e.profile.gpu.call
    return np.asarray((call >= 0) & calls[np.where(call >= 0, call, 0)]) if len(calls) else np.zeros(len(call), bool)
