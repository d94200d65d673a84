"""Replays a step with one thing changed: how long would the step have taken?

The recorded step is taken apart into what the CPU does between its calls, the calls, and the GPU's work; each piece
waits for what it waited for when it was recorded:

    a call        begins when the CPU's work before it is done
    a kernel      begins after its launch, after the work before it on its stream, and after the work of another stream
                  that it waited for
    a wait        (cudaStreamSynchronize and its like, a copy that blocks, a launch into a full queue) ends when the
                  GPU's work that it waited for is done

Then pieces are made shorter or left out, and the times follow. The iterations are replayed twice in a row, and the
time of the second round counts: so the start and end of the recording have no effect, and a CPU that runs ahead still
does. The idea is that of Daydream (Zhu, Phanishayee, Pekhimenko: "Estimating the Efficacy of Optimizations for DNN
Training", USENIX ATC 2020).

What the profiler itself costs is taken off the CPU: RECORDING_NS for each range and each call that it wrote down.
Programs run without a profiler, and what waits for the CPU while it is profiled often does not wait then. How fast the
CPU is then, Pace says.

All threads of the CPU count as one line of time, in the order of their calls: while PyTorch's backward thread works,
the thread that called it waits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from gpuprep.trace.advice import intervals, kinds
from gpuprep.trace.advice.evidence import Evidence, Mask
from gpuprep.trace.advice.intervals import Intervals
from gpuprep.trace.columns import Ints, OpKind
from gpuprep.trace.document import Slowdown

# ---------------------------------------------------------------- pace of the CPU

# How fast are a step and its CPU work without the profiler?
#
# A profiler slows the CPU, and by how much a profile does not tell. RECORDING_NS for each range and call that it wrote
# down is certain. In own traces (tests/traces) the CPU's work then takes 0.5 to 1.1 of what is left, the same program
# on the same machine included, and everything on the CPU is slower by the same factor. So there is a range, and its
# middle is the estimate.
#
# Where a step was timed without the profiler, this is no longer open: the CPU's work is scaled until the replayed step
# takes that time. If that time is the GPU's own, the GPU's work decides what a change gains; how close behind it the
# CPU is remains open.


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
        # Otherwise the timed step is not a step of this profile: the GPU's work alone takes longer, or no CPU is that
        # slow.
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
            timed_us, words=f"A step took longer without the profiler ({both}): the steps are not the same."
        )
    if percent < 100 * LITTLE:
        return Slowdown(timed_us, words=f"The profiler did not slow a step: {both}.")
    return Slowdown(timed_us, words=f"The profiler made a step {percent:.0f} % longer: {both}.")


def _ms(us: float) -> str:
    return f"{us / 1e3:.2f}" if us >= 100 else f"{us / 1e3:.4f}"


def _share(step_ns: Callable[[float], float], wanted_ns: float, most: float) -> float:
    """The largest share up to `most` with which the step takes at most this time."""
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


# ---------------------------------------------------------------- replay


MOST_PIECES = 20_000  # calls and GPU events that are replayed; fewer iterations where there are more
LARGEST_STEP = 120_000  # a step of more is not replayed
UNEXPLAINED_NS = 5_000  # a kernel that begins so much later than its stream and launch allow waited for another stream
ROOM_NS = 50_000  # before the end of a kernel, others may have room beside its last blocks
LOOK_BACK = 11  # ends of work that one may have waited for
QUEUE = 500  # launches ahead of the GPU from which a long launch call is a wait for room in the queue
LONG_LAUNCH_NS = 30_000
WAKE_NS = 5_000  # from the end of what was awaited to the end of the call
CLOCKS_NS = 2_000  # the clocks of CPU and GPU agree that well
LEAST_WORK = 0.25  # of the recorded time between two calls, and of a call, at least remains
SLOW_START = 1.5  # times as long as the others
TRUSTED_ERROR = 0.15  # of the recorded step: a replay that differs more is not used

Times = NDArray[np.float64]


@dataclass(frozen=True)
class Change:
    """What is different. Arrays are for all rows of Trace.gpu and Trace.calls; None: nothing."""

    gpu_ns: Times | None = None  # new duration of each GPU event
    without_gpu: Mask | None = None  # GPU events that are removed
    without_calls: Mask | None = None  # calls that are removed, with their waits
    no_waits: Mask | None = None  # calls that no longer wait for the GPU, and take `call_ns`
    merged: Mask | None = None  # GPU events that follow each other without a gap, as one kernel
    aside: Mask | None = None  # GPU events that no longer hold up their stream
    cut: Intervals | None = None  # CPU times that are removed
    kept: float = 0.0  # share of `cut` that stays
    extra_ns: Times | None = None  # more CPU time before each call
    added_ns: float = 0.0  # more CPU time a step


@dataclass
class Replay:
    """The pieces of the chosen iterations, or of some of them."""

    e: Evidence
    ok: bool = False
    refusal: str = ""
    recorded_ns: float = 0.0  # of the same iterations, from start to start
    pace: Pace = field(default_factory=Pace)
    _steps: dict[float, float] = field(default_factory=dict)  # by the CPU's share: with nothing changed, ns

    def __post_init__(self) -> None:
        self._prepare()

    @property
    def usual_op_ns(self) -> float:
        """What the CPU usually needs for an op that launches one kernel, with its call: the median distance."""
        between = np.diff(self.call_start) if self.ok and len(self.call_start) > 1 else np.array([10_000.0])
        return float(np.median(between))

    # ------------------------------------------------------------------ taking apart

    def _prepare(self) -> None:
        e, iterations = self.e, self.e.profile.iterations
        trace = e.trace
        self.calls_of = e.profile.gpu.call
        if not len(e.gpu) or not len(trace.calls.start):
            self.refusal = "there are no launches in the profile"
            return
        first, last = self._some_iterations()
        begin = int(iterations.start[first])
        end = int(iterations.start[last + 1]) if last + 1 < len(iterations.start) else int(iterations.end[last])
        if iterations.how == "one":
            begin, end = e.window
        calls = trace.calls
        interesting = np.zeros(len(calls.start), bool)
        with_work = self.calls_of[(self.calls_of >= 0)]
        interesting[with_work] = True
        interesting |= e.name_ids(kinds.WAITING_CALL)[calls.name]
        interesting &= (calls.start >= begin) & (calls.start < end)
        rows = np.flatnonzero(interesting)
        rows = rows[np.lexsort((calls.end[rows], calls.start[rows]))]
        # Waits behind the last launch of the whole profile are those of its end, and no part of a step.
        final = int(calls.start[with_work].max()) if len(with_work) else begin
        ending = rows[calls.start[rows] > final]
        if len(ending) and last == len(iterations.start) - 1:
            long = ending[calls.end[ending] - calls.start[ending] > LONG_LAUNCH_NS]
            # A program that waits at the end of every step has such a wait in the steps before, too.
            often = np.bincount(calls.name[rows], minlength=len(trace.names))
            long = long[often[calls.name[long]] <= last - first]
            if len(long):
                end = min(end, int(calls.start[long[0]]))
                rows = rows[calls.start[rows] < end]
        if not len(rows):
            self.refusal = "there are no launches in the chosen iterations"
            return
        other = np.flatnonzero((calls.start >= begin) & (calls.start < end))
        self.other_calls = np.sort(calls.start[np.setdiff1d(other, rows, assume_unique=True)])
        self.rows, self.begin, self.end, self.count = rows, begin, end, last - first + 1
        place_of_call = np.full(len(calls.start), -1, np.int64)
        place_of_call[rows] = np.arange(len(rows))
        gpu_rows = np.flatnonzero(self.calls_of >= 0)
        gpu_rows = gpu_rows[place_of_call[self.calls_of[gpu_rows]] >= 0]
        if len(rows) + len(gpu_rows) > LARGEST_STEP:
            self.refusal = "a step has too many kernels to be replayed"
            return
        place = place_of_call[self.calls_of[gpu_rows]]
        order = np.lexsort((trace.gpu.start[gpu_rows], place))
        self.gpu_rows, self.place = gpu_rows[order], place[order]
        self._gpu_constraints()
        self._cpu_pieces()
        as_recorded = self._run(Change())
        recorded = (end - begin) / self.count
        # Where the CPU runs ahead and nothing stops it, the iterations on the GPU tell the step's time.
        starts = trace.gpu.start[self.gpu_rows]
        span = float(trace.gpu.end[self.gpu_rows].max() - starts.min()) / self.count if len(starts) else 0.0
        self.recorded_ns = max(recorded, span)
        self.ok = abs(as_recorded - self.recorded_ns) <= TRUSTED_ERROR * self.recorded_ns
        written = self._without_profiler()
        cpu_ns = float(self.work.sum() + self.call.sum() + self.tail)
        self.pace = paced(self.unchanged_ns, e.timed_step_ns, cpu_ns, written)
        if not self.ok:
            self.refusal = "the replayed step takes another time than the recorded one"

    def _some_iterations(self) -> tuple[int, int]:
        """A run of chosen iterations of at most MOST_PIECES pieces, at least one; around the middle."""
        e = self.e
        if e.profile.iterations.how == "one":
            return e.first, e.last
        first, last = e.first, e.last
        count = np.bincount(np.clip(e.profile.gpu.iteration[e.gpu] - first, 0, None), minlength=last - first + 1)
        if last - first >= 2:  # the first may contain the profiler's own start
            begun = e.profile.iterations.start[first : last + 1]
            if begun[1] - begun[0] > SLOW_START * np.median(np.diff(begun)[1:]):
                first += 1
        while last > first and count[first - e.first : last - e.first + 1].sum() > MOST_PIECES:
            if (first - e.first) <= (e.last - last):  # if iterations must be left out, the first goes first
                first += 1
            else:
                last -= 1
        return first, last

    def _gpu_constraints(self) -> None:
        """For each GPU event: how soon after its launch and after its stream's work it can begin, and what else it
        waited for."""
        gpu, calls = self.e.trace.gpu, self.e.trace.calls
        rows, place = self.gpu_rows, self.place
        start, end = gpu.start[rows].astype(float), gpu.end[rows].astype(float)
        self.duration = end - start
        streams, self.stream = np.unique(
            np.column_stack((gpu.device[rows], gpu.stream[rows])), axis=0, return_inverse=True
        )
        self.stream = self.stream.reshape(-1)
        self.streams = len(streams)
        launched = calls.start[self.rows[place]].astype(float)
        before = np.full(len(rows), -np.inf)  # end of the event before it on its stream
        order = np.lexsort((start, self.stream))
        same = self.stream[order][1:] == self.stream[order][:-1]
        before[order[1:][same]] = end[order[:-1][same]]
        self.in_stream = order  # the order in which streams do their work
        gap, delay = start - before, start - launched
        queued = launched + 10_000 < before  # launched well before the GPU was free
        waited = before + 2_000 < launched  # the stream was empty
        typical_gap = float(np.median(np.clip(gap[queued], -5e3, 5e3))) if queued.any() else 1_000.0
        typical_delay = float(np.median(np.clip(delay[waited], 0, 5e4))) if waited.any() else 5_000.0
        self.gap = np.where(np.isfinite(gap), np.minimum(gap, typical_gap), 0.0)
        self.delay = np.minimum(delay, typical_delay)
        graph = np.zeros(len(rows), bool)  # nodes of a graph but its first: the launch does not start them
        graph[1:] = place[1:] == place[:-1]
        self.gap = np.where(graph & np.isfinite(gap), gap, self.gap)
        self.delay = np.where(graph, np.minimum(delay, typical_delay), self.delay)
        possible = np.maximum(before + self.gap, launched + self.delay)
        late = (start - possible > UNEXPLAINED_NS) & ~graph
        # What waited for neither waited for another stream: for its event, or for room that its last blocks leave.
        # Where none fits, its launch took that long.
        self.waits_for = np.full(len(rows), -1, np.int64)
        self.lag = np.zeros(len(rows))
        by_end = np.argsort(end, kind="stable")
        waiting = np.flatnonzero(late)
        near = np.searchsorted(end[by_end], start[waiting] + ROOM_NS, side="right") - 1
        for event, last in zip(waiting.tolist(), near.tolist(), strict=True):
            for candidate in by_end[max(0, last - LOOK_BACK) : last + 1][::-1].tolist():
                if (
                    self.stream[candidate] != self.stream[event]
                    and candidate < event
                    and end[candidate] > launched[event]
                ):
                    self.waits_for[event], self.lag[event] = candidate, start[event] - end[candidate]
                    break
            else:
                self.delay[event] = delay[event]

    def _cpu_pieces(self) -> None:
        """What the CPU does before each call, how long the call takes without waiting, and what it waits for."""
        gpu, calls = self.e.trace.gpu, self.e.trace.calls
        rows = self.rows
        start, end = calls.start[rows].astype(float), calls.end[rows].astype(float)
        end = np.maximum(end, start)
        # A call that starts inside the previous one is of another thread: the timeline continues at its start.
        self.call_start, self.call_end = start, np.minimum(end, np.append(start[1:], float(max(self.end, end[-1]))))
        before = np.append(float(self.begin), self.call_end[:-1])
        self.before = before
        self.work = np.maximum(0.0, start - before)
        self.tail = max(0.0, float(self.end) - float(self.call_end[-1]))
        self.call = np.maximum(0.0, self.call_end - self.call_start)
        # Waits. What the GPU finished last before the call ended is what it waited for.
        waits = self.e.name_ids(kinds.WAITING_CALL)[calls.name[rows]]
        ends = gpu.end[self.gpu_rows].astype(float)
        by_end = np.argsort(ends, kind="stable")
        has = np.zeros(len(rows), bool)
        has[self.place] = True
        usual = float(np.median(self.call[has & ~waits])) if (has & ~waits).any() else 5_000.0
        self.usual_call = usual
        memory = np.zeros(len(rows), bool)
        memory[self.place[gpu.kind[self.gpu_rows] != 0]] = True
        long = has & (self.call > LONG_LAUNCH_NS)
        candidates = np.flatnonzero(waits | long)
        self.wait_on = np.full(len(rows), -1, np.int64)  # index of gpu_rows
        self.wake = np.zeros(len(rows))
        first_of = np.searchsorted(self.place, np.arange(len(rows)))  # first GPU event of each call
        nearest = np.searchsorted(ends[by_end], self.call_end[candidates] + CLOCKS_NS, side="right") - 1
        for call, near in zip(candidates.tolist(), nearest.tolist(), strict=True):
            awaited = -1
            for candidate in by_end[max(0, near - 8) : near + 1][::-1].tolist():
                if self.place[candidate] <= call:
                    awaited = candidate
                    break
            if awaited < 0 and waits[call] and self.call[call] > LONG_LAUNCH_NS:
                awaited = self._of_the_round_before(self.call_end[call])
                if awaited >= 0:
                    self.wait_on[call], self.call[call] = awaited, min(self.call[call], usual)
                    self.wake[call] = WAKE_NS
                continue
            if awaited < 0 or ends[awaited] < self.call_start[call]:
                continue  # the call waited for nothing: it is work of the CPU
            behind = first_of[call] - awaited
            own = self.place[awaited] == call
            if not waits[call] and not own and not memory[call] and behind < QUEUE:
                continue  # a slow launch
            self.wait_on[call] = awaited
            self.wake[call] = max(0.0, self.call_end[call] - ends[awaited])
            self.call[call] = min(self.call[call], usual)

    def _without_profiler(self) -> float:
        """Takes the profiler's own time off the CPU. How many ranges and calls it wrote down."""
        ops = self.e.trace.ops
        plain = (ops.end > self.begin) & (ops.start < self.end)
        plain &= (ops.kind == OpKind.OP) | (ops.kind == OpKind.ANNOTATION)
        # Half of it at the begin of a range, half at its end.
        moments = np.sort(np.concatenate((ops.start[plain], ops.end[plain])))
        inside = np.searchsorted(moments, self.call_start) - np.searchsorted(moments, self.before)
        more = np.searchsorted(self.other_calls, self.call_start) - np.searchsorted(self.other_calls, self.before)
        cost = RECORDING_NS / 2 * np.maximum(inside, 0) + RECORDING_NS * np.maximum(more, 0)
        self.work = np.maximum(self.work - cost, LEAST_WORK * self.work)
        self.call = np.maximum(self.call - RECORDING_NS, LEAST_WORK * self.call)
        ends = np.searchsorted(moments, self.end) - np.searchsorted(moments, self.call_end[-1])
        self.tail = max(self.tail - RECORDING_NS / 2 * max(0, int(ends)), LEAST_WORK * self.tail)
        return float(np.maximum(inside, 0).sum() / 2 + np.maximum(more, 0).sum() + len(self.call))

    def _of_the_round_before(self, moment: float) -> int:
        """The event launched before these iterations that ended last before the moment, as the same launch counted from
        the end of these iterations. -1: none."""
        gpu, call = self.e.trace.gpu, self.calls_of
        earlier = np.flatnonzero((call >= 0) & (gpu.end <= moment + CLOCKS_NS))
        earlier = earlier[self.e.trace.calls.start[call[earlier]] < self.begin]
        if not len(earlier):
            return -1
        awaited = earlier[np.argmax(gpu.end[earlier])]
        launched = self.e.trace.calls.start[call[awaited]]
        between = np.flatnonzero(call >= 0)
        starts = self.e.trace.calls.start[call[between]]
        behind = int(((starts > launched) & (starts < self.begin)).sum())
        return len(self.gpu_rows) - 1 - behind

    # ------------------------------------------------------------------ once more

    @property
    def step_ns(self) -> float:
        """Of the replay with nothing changed."""
        return self.unchanged_ns(self.pace.cpu)

    def step(self, change: Change, cpu: float | None = None) -> float:
        """ns of a step with this change. `cpu`: how long its work on the CPU takes, as a share of what it takes in the
        profile without the profiler's own part; 0: what the GPU's work alone takes."""
        return self._run(change, self.pace.cpu if cpu is None else cpu)

    def unchanged_ns(self, cpu: float) -> float:
        if cpu not in self._steps:
            self._steps[cpu] = self._run(Change(), cpu)
        return self._steps[cpu]

    def _run(self, change: Change, cpu: float = 1.0) -> float:
        work, call = self.work.copy(), self.call.copy()
        tail = self.tail
        wait_on = self.wait_on
        if change.cut is not None and len(change.cut):
            covered = intervals.Covered(change.cut)
            share_gone = 1.0 - change.kept
            work = np.maximum(0.0, work - share_gone * covered.between(_int(self.before), _int(self.call_start)))
            inside = share_gone * covered.between(_int(self.call_start), _int(self.call_end))
            share = np.divide(inside, self.call_end - self.call_start, out=np.zeros_like(inside), where=inside > 0)
            call = call * (1.0 - np.clip(share, 0.0, 1.0))
            ends = np.array([self.call_end[-1], float(self.end)])
            tail = max(0.0, tail - share_gone * float(covered.between(_int(ends[:1]), _int(ends[1:]))[0]))
        if change.extra_ns is not None:
            work = work + change.extra_ns[self.rows]
        if change.no_waits is not None:
            wait_on = np.where(change.no_waits[self.rows], -1, wait_on)
            call = np.where(change.no_waits[self.rows], np.minimum(call, self.usual_call), call)
        gone_calls = np.zeros(len(self.rows), bool)
        if change.without_calls is not None:
            gone_calls = change.without_calls[self.rows]
            call = np.where(gone_calls, 0.0, call)
            wait_on = np.where(gone_calls, -1, wait_on)
        work, call, tail = work * cpu, call * cpu, (tail + change.added_ns * self.count) * cpu
        duration = self.duration if change.gpu_ns is None else change.gpu_ns[self.gpu_rows]
        removed = (
            np.zeros(len(self.gpu_rows), bool) if change.without_gpu is None else change.without_gpu[self.gpu_rows]
        )
        aside = np.zeros(len(self.gpu_rows), bool) if change.aside is None else change.aside[self.gpu_rows]
        gap = self.gap
        if change.merged is not None:
            gap = np.where(change.merged[self.gpu_rows], np.minimum(gap, 0.0), gap)
        return self._times(
            work.tolist(), call.tolist(), wait_on.tolist(), duration.tolist(), removed.tolist(), aside.tolist(),
            gap.tolist(), tail,
        )  # fmt: skip

    def _times(
        self, work: list[float], call: list[float], wait_on: list[int], duration: list[float], removed: list[bool],
        aside: list[bool], gap: list[float], tail: float,
    ) -> float:  # fmt: skip
        """The second round's time, divided by its iterations."""
        place, stream, delay = self.place.tolist(), self.stream.tolist(), self.delay.tolist()
        waits_for, lag, wake = self.waits_for.tolist(), self.lag.tolist(), self.wake.tolist()
        events, ends = len(place), [0.0] * len(place)
        free = [0.0] * self.streams
        now = latest = 0.0
        marks = []
        for _ in range(2):
            done = [-1.0] * events  # ends of this round; a wait for a later event is one of the round before
            position = 0
            for index, busy in enumerate(work):
                now += busy
                begun = now
                now += call[index]
                while position < events and place[position] == index:
                    event = position
                    position += 1
                    if removed[event]:
                        done[event] = begun
                        continue
                    lane = stream[event]
                    start = max(free[lane] + gap[event], begun + delay[event])
                    other = waits_for[event]
                    if other >= 0:
                        start = max(start, (done[other] if done[other] >= 0 else ends[other]) + lag[event])
                    stop = start + duration[event]
                    done[event] = stop
                    if not aside[event]:
                        free[lane] = max(free[lane], stop)
                        latest = max(latest, stop)
                awaited = wait_on[index]
                if awaited >= 0:
                    stop = done[awaited] if done[awaited] >= 0 else ends[awaited]
                    now = max(now, stop + wake[index])
            now += tail
            ends = done
            marks.append(max(now, latest))
        return (marks[1] - marks[0]) / self.count


def _int(times: Times) -> Ints:
    return times.astype(np.int64)
