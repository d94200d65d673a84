"""Rules about what a profile lacks, how to record it, what disturbs a profile, and how full the GPU's memory is."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gpuprep.trace.advice import intervals, kinds, replay
from gpuprep.trace.advice.evidence import Evidence
from gpuprep.trace.advice.rulebook import Found
from gpuprep.trace.columns import Format, OpKind
from gpuprep.trace.document import Slowdown


def memory_peak(e: Evidence) -> tuple[float, float] | None:
    """(per cent of the GPU's memory, GB) at the peak of the fullest GPU; None where the profile does not tell."""
    memory = e.trace.memory
    peaks = []
    for device in e.trace.devices:
        mine = (memory.device == device.index) & (memory.allocated >= 0)
        if device.memory_bytes > 0 and mine.any():
            most = float(memory.allocated[mine].max())
            peaks.append((100 * most / device.memory_bytes, most / 1e9))
    return max(peaks) if peaks else None


def mem_high(e: Evidence) -> Found | None:
    most = memory_peak(e)
    return Found({"percent": most[0], "gb": most[1]}) if most and most[0] > 90 else None


def mem_low(e: Evidence) -> Found | None:
    most = memory_peak(e)
    return Found({"percent": most[0], "gb": most[1]}) if most and most[0] < 25 else None


# Notes of the readers that report a missing part of the file.
CUT = ("torn", "truncated", "cut", "unreadable_events", "lost_events", "invalid_events")


LOST = 0.1  # of the launches: fewer are those before the recording began, and what a CUDA graph was recorded from


def slowed(e: Evidence) -> Slowdown:
    if e.profile.iterations.how == "one":
        return Slowdown(words="How much the profiler slowed a step is not known: the profile has no steps.")
    summary, timed_us = e.document.summary, None if e.timed_step_ns is None else e.timed_step_ns / 1e3
    return replay.slowdown(
        summary.average_iteration_us, summary.gpu_busy_us / e.steps, timed_us, e.trace.format is Format.KINETO
    )


def no_gpu(e: Evidence) -> Found | None:
    if len(e.gpu):
        return None
    where = "chosen iterations" if len(e.trace.gpu.start) else "profile"
    if launched := len(e.calls(kinds.LAUNCH)):
        what = (
            f"{launched} kernels were launched, and no kernel is in the {where}: the profiler dropped the GPU's records"
        )
        return Found({}, {"what": what})
    return Found({}, {"what": f"There is no GPU work in the {where}"})


def lost_kernels(e: Evidence) -> Found | None:
    """Launches whose kernels are not in the profile: the profiler dropped their records, or their times were corrupt;
    and kernels whose end was mended.

    A kernel that runs where none is recorded looks like an idle GPU.
    """
    launches = e.calls(kinds.LAUNCH) if len(e.gpu) else e.gpu
    lost = int((~np.isin(launches, e.profile.gpu.call)).sum())
    mended = e.trace.notes.get("clipped_durations", 0) + e.trace.notes.get("negative_durations", 0)
    of, what = (
        len(launches),
        "launches have no kernel in the profile: their records were lost, or have corrupt times",
    )
    if lost <= LOST * of:
        lost, of, what = mended, len(e.trace.gpu.start), "GPU events have a corrupt end"
    if lost <= LOST * of:
        return None
    return Found({"count": lost, "of": of, "percent": 100 * lost / of}, {"what": what})


def no_calls(e: Evidence) -> Found | None:
    """Exports of Nsight Systems may lack the table of calls, and profiles of other GPUs the calls of their runtime."""
    return Found() if len(e.gpu) and not e.launches_known else None


def no_ops(e: Evidence) -> Found | None:
    kind = e.trace.ops.kind
    return None if bool(((kind == OpKind.OP) | (kind == OpKind.ANNOTATION)).any()) else Found()


def no_steps(e: Evidence) -> Found | None:
    return Found() if e.profile.iterations.how == "one" else None


def no_shapes(e: Evidence) -> Found | None:
    has_ops = bool((e.trace.ops.kind == OpKind.OP).any())
    return Found() if not e.has_shapes or not has_ops else None


def no_memory(e: Evidence) -> Found | None:
    """Of a GPU that worked: profiles of before 2022 have no totals, and others lack the size of the GPU's memory."""
    if memory_peak(e) is not None:
        return None
    if not len(e.trace.memory.time):
        return Found({}, {"what": "The profile has no memory events.", "newer": ""})
    what = "The memory events of the profile do not tell how full the GPU's memory is."
    return Found({}, {"what": what, "newer": " and PyTorch 1.10 or newer"})


def no_stacks(e: Evidence) -> Found | None:
    """A reader may have left the stacks out: then the switch says that the file has them."""
    if e.trace.switches.get("with_stack") or e.trace.switches.get("with_modules"):
        return None
    kind = e.trace.ops.kind
    return None if bool(((kind == OpKind.PYTHON) | (kind == OpKind.MODULE)).any()) else Found()


def truncated(e: Evidence) -> Found | None:
    cut = {key: count for key, count in e.trace.notes.items() if any(word in key for word in CUT) and count > 0}
    if cut:
        what = f"The file is not whole: {', '.join(sorted(cut))}."
        return Found({"events": float(sum(cut.values()))}, {"what": what})
    # Of all iterations, because the last one of the file may be incomplete.
    of = e.profile.gpu.iteration
    count = np.bincount(of[of >= 0], minlength=len(e.profile.iterations.names))
    if len(count) < 3 or not count[-1] < 0.8 * np.median(count[:-1]):
        return None
    if e.last < len(count) - 1:
        return None
    what = f"The last iteration has {count[-1]} GPU events; the others have about {np.median(count[:-1]):.0f}."
    return Found({"events": float(count[-1])}, {"what": what})


def lazy_load(e: Evidence) -> Found | None:
    ranges, calls = e.ranges(kinds.LAZY), e.calls(kinds.LOADING_CALL)
    count = len(ranges) + len(calls)
    if not count:
        return None
    whole = intervals.length(e.range_set(ranges)) + intervals.length(e.call_set(calls))
    return Found({"count": count, "ms": whole / 1e6})


def unstable(e: Evidence) -> Found | None:
    iterations = e.profile.iterations
    if e.last - e.first < 2:
        return None
    # From end to end, the GPU's work counted: a CPU that runs ahead begins its first steps one right after the other.
    chosen = slice(e.first, e.last + 1)
    begun = np.append(iterations.start, iterations.end[-1])[e.first + 1 : e.last + 2]
    done = np.maximum.accumulate(np.maximum(iterations.until[chosen], begun).astype(float))
    times = np.diff(np.concatenate(([float(iterations.start[e.first])], done))) / 1e6
    mean, spread = float(times.mean()), float(times.std())
    if mean <= 0 or spread <= 0.1 * mean:
        return None
    begin, end = _calmest(times)
    figures = {"shortest": times.min(), "longest": times.max(), "percent": 100 * spread / mean,
               "start": e.first + begin, "stop": e.first + end}  # fmt: skip
    choose_range = f"Choose a range that is alike: --iter-start {e.first + begin} --iter-stop {e.first + end}."
    none = (
        "No two consecutive iterations are alike: record more steps, later ones, on a machine where nothing else runs."
    )
    return Found(figures, {"todo": choose_range if end > begin else none})


def _calmest(times: NDArray[np.float64]) -> tuple[int, int]:
    """The longest run of iterations that are within a tenth of the median; (first, last)."""
    near = np.abs(times - np.median(times)) <= 0.1 * np.median(times)
    best, begin = (0, 0), None
    for place, good in enumerate([*near, False]):
        if good and begin is None:
            begin = place
        elif not good and begin is not None:
            if place - begin > best[1] - best[0]:
                best = (begin, place)
            begin = None
    return best[0], max(best[0], best[1] - 1)
