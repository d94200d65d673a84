"""How fast are a step and its CPU work without the profiler?

A profiler slows the CPU, and by how much a profile does not tell. RECORDING_NS for each range and call that it wrote
down is certain. In own traces (tests/traces) the CPU's work then takes 0.5 to 1.1 of what is left, the same program on
the same machine included, and everything on the CPU is slower by the same factor. So there is a range, and its middle
is the estimate.

Where a step was timed without the profiler, this is no longer open: the CPU's work is scaled until the replayed step
takes that time. If that time is the GPU's own, the GPU's work decides what a change gains; how close behind it the CPU
is remains open.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gpuprep.trace.document import Slowdown

# What writing down a range of the CPU or a call of the CUDA API costs at least: the median of the fastest of those
# cases of tests/traces/recorded in which the CPU was the limit with and without the profiler (1.1 to 1.75 µs); and at
# most.
RECORDING_NS = 1_600.0
MOST_RECORDING_NS = 5_000.0
SLOWED = 0.5  # the least share of the CPU's work that was left
LARGEST = 3.0  # a timed step that needs more is another program's
GPU_BOUND = 1.05  # times the GPU's own time: a step that is not longer waits for the GPU
NEAR = 0.002  # of the timed step
LITTLE = 0.02  # of a step: not worth a figure
HALVINGS = 16


@dataclass(frozen=True)
class Pace:
    """Shares of the CPU's work that remain. `cpu` is that of the estimate, `others` are as possible."""

    cpu: float = 1.0
    others: tuple[float, ...] = ()
    timed: bool = False


def paced(step_ns: Callable[[float], float], timed_ns: float | None, cpu_ns: float, written: float) -> Pace:
    """`step_ns(share)`: the step with nothing changed. `timed_ns`: the step without the profiler, None: not known.
    `cpu_ns`: the CPU's work in the profile, without RECORDING_NS for each of the `written` ranges and calls."""
    if timed_ns is not None and timed_ns > 0:
        alone = step_ns(0.0)
        # Else it is no step of this profile: the GPU's work alone takes longer, or no CPU is that slow.
        if alone <= GPU_BOUND * timed_ns and timed_ns <= GPU_BOUND * step_ns(LARGEST):
            if timed_ns <= GPU_BOUND * alone:
                return Pace(0.0, (_share(step_ns, GPU_BOUND * alone, 1.0),), True)
            return Pace(_share(step_ns, timed_ns, LARGEST), (), True)
    more = (MOST_RECORDING_NS - RECORDING_NS) * written / max(cpu_ns, 1.0)
    least = max(SLOWED, 1.0 - more)
    return Pace((1.0 + least) / 2, (least, 1.0))


def slowdown(step_us: float, busy_us: float, timed_us: float | None, can_be_timed: bool) -> Slowdown:
    """`step_us`, `busy_us`: a step of the profile, and the GPU's work in it. `timed_us`: a step without the profiler;
    None: not timed, then it lies between the two. The shares above are good for what a change gains: as an estimate of
    the step they were off by a third in own traces. `can_be_timed`: `gpuprep trace record` times what it records so."""
    if not step_us > 0:
        return Slowdown(words="How much the profiler slowed a step is not known: its steps take no time.")
    if timed_us is None:
        if step_us - busy_us <= LITTLE * step_us:
            return Slowdown(None, busy_us, step_us, "The profiler hardly slowed a step: the GPU works all the time.")
        words = f"Without the profiler a step takes {_ms(busy_us)} to {_ms(step_us)} ms (the GPU alone, as profiled)."
        if not busy_us > 0:
            words = f"Without the profiler a step takes {_ms(step_us)} ms at most, as profiled."
        todo = " `gpuprep trace record` times it." if can_be_timed else ""
        return Slowdown(None, busy_us, step_us, words + todo)
    if busy_us > GPU_BOUND * timed_us:
        words = f"{_ms(timed_us)} ms were timed without it, and the GPU alone takes {_ms(busy_us)} ms"
        return Slowdown(None, busy_us, step_us, f"How much the profiler slowed a step is not known: {words}.")
    both, percent = f"{_ms(timed_us)} ms without it, {_ms(step_us)} ms with it", 100 * (step_us - timed_us) / timed_us
    if percent < -100 * LITTLE:
        return Slowdown(
            timed_us, words=f"A step took longer without the profiler ({both}): they are not the same steps."
        )
    if percent < 100 * LITTLE:
        return Slowdown(timed_us, words=f"The profiler did not slow a step: {both}.")
    return Slowdown(timed_us, words=f"The profiler made a step {percent:.0f} % longer: {both}.")


def _ms(us: float) -> str:
    return f"{us / 1e3:.2f}" if us >= 100 else f"{us / 1e3:.4f}"


def _share(step_ns: Callable[[float], float], wanted_ns: float, most: float) -> float:
    """The largest share up to `most` with which the step takes no longer than this."""
    low, high = 0.0, most
    if step_ns(most) <= wanted_ns:
        return most
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        ns = step_ns(middle)
        low, high = (middle, high) if ns <= wanted_ns else (low, middle)
        if abs(ns - wanted_ns) <= NEAR * wanted_ns:
            return middle
    return low
