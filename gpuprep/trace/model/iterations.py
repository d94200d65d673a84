"""Where does an iteration begin and end? ProfilerStep#N, a key op, a name that repeats, or one iteration for all."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from gpuprep.errors import UsageError
from gpuprep.trace.columns import Ints, OpKind, Trace
from gpuprep.trace.model.sweep import CHUNK
from gpuprep.trace.profile import OUTSIDE

STEP = re.compile(r"ProfilerStep\s?#?\d+\Z")
# A name with a number at its end, and what stands before it: "iteration 12", "step_3", "train/batch#7".
NUMBERED = re.compile(r"(?P<base>.*?[^\W\d_])[\s_#:=\[(/.-]*\d+[\])]?\Z", re.DOTALL)
LIKELY = re.compile(r"(?:\b|_)(?:iter|iteration|step|train_step|training_step|batch|minibatch)s?\Z", re.IGNORECASE)
# Of all API calls, what must lie inside the ranges of a name that repeats before they are taken for iterations.
LIKELY_COVER, OTHER_COVER = 0.5, 0.9
ONE = "one"
FAMILIES = 200  # names that are looked at
LONGEST = 200  # characters of a name that are looked at


@dataclass
class Borders:
    """Iterations in the order of time, apart from each other: [start, end]."""

    names: list[str]
    start: NDArray[np.int64]
    end: NDArray[np.int64]
    how: str
    rows: Ints  # the ranges of Trace.ops that are the borders themselves: no work of the program; may be empty

    def of(self, times: Ints) -> NDArray[np.int32]:
        """Iteration of each time; OUTSIDE for times in none."""
        if self.how == ONE:  # all of the profile, what was launched before its first op, too
            return np.zeros(len(times), np.int32)
        if not len(self.start):
            return np.full(len(times), OUTSIDE, np.int32)
        made = np.full(len(times), OUTSIDE, np.int32)
        for begin in range(0, len(times), CHUNK):
            some = times[begin : begin + CHUNK]
            at = np.searchsorted(self.start, some, side="right") - 1
            inside = (at >= 0) & (some <= self.end[at])
            made[begin : begin + CHUNK][inside] = at[inside]
        return made

    def holding(self, start: Ints, end: Ints) -> NDArray[np.int32]:
        """Iteration of each range: of one that crosses an end, the iteration that holds most of it.

        A range that lies mostly outside of both, or around a whole iteration, counts to where it begins.
        """
        made = self.of(start)
        crossing = np.flatnonzero(made != self.of(end)) if len(self.start) else np.zeros(0, np.int64)
        start, end = start[crossing], end[crossing]
        first = np.searchsorted(self.end, start)  # that it touches
        last = np.searchsorted(self.start, end, side="right") - 1
        near = np.flatnonzero((last - first >= 0) & (last - first <= 1))
        first, last, start, end = first[near], last[near], start[near], end[near]
        in_first = np.minimum(end, self.end[first]) - np.maximum(start, self.start[first])
        in_last = np.where(last > first, end - self.start[last], 0)
        most = np.maximum(in_first, in_last) >= end - start - in_first - in_last
        made[crossing[near[most]]] = np.where(in_last > in_first, last, first)[most]
        return made


def borders(trace: Trace) -> Borders:
    """What the profile itself tells."""
    return _by_steps(trace) or _by_names(trace) or _whole_span(trace)


def by_key_op(trace: Trace, key_op: str, calls: Ints) -> Borders:
    """Each call of the key op begins an iteration. It is a type of op, an annotation, or the name of one row of ops.

    `calls`: ranges of the rows of ops with this name. UsageError: the key op is not in the profile.
    """
    wanted = [index for index, name in enumerate(trace.names) if name == key_op]
    rows: Ints = np.flatnonzero(np.isin(trace.ops.name, wanted) & (trace.ops.kind != OpKind.PYTHON))
    if not len(rows):
        rows = calls
    if not len(rows):
        raise UsageError(
            f"the key op {key_op} is not in {trace.file}",
            "--key-op takes the type of an op, its whole name, or an annotation; `trace report` lists them",
        )
    rows = _apart(trace, rows)
    start = trace.ops.start[rows].astype(np.int64)
    end = np.append(start[1:] - 1, max(_last_moment(trace), int(start[-1])))
    names = [f"{key_op} {number}" for number in range(len(rows))]
    # The profile's own iterations are no work with another key op either: what launched what does not change by it.
    own = _by_steps(trace) or _by_names(trace)
    return Borders(names, start, end, f"key op {key_op}", own.rows if own else np.zeros(0, np.int64))


def _by_steps(trace: Trace) -> Borders | None:
    steps = [index for index, name in enumerate(trace.names) if STEP.match(name)]
    rows = np.flatnonzero(np.isin(trace.ops.name, steps) & (trace.ops.kind != OpKind.PYTHON))
    if not len(rows):
        return None
    # Those of other threads, and those inside of others, are no work of the program either.
    return replace(_ranges(trace, _apart(trace, rows), "ProfilerStep"), rows=rows)


def _by_names(trace: Trace) -> Borders | None:
    """A name that repeats, or that differs by its number alone, around most API calls."""
    best: tuple[bool, int, float] = (False, 0, 0.0)
    made = None
    times = np.sort(trace.calls.start)
    for base, family in _families(trace):
        rows = _apart(trace, family)
        if len(rows) < 2 or not len(times):
            continue
        inside = np.searchsorted(times, trace.ops.end[rows], "right") - np.searchsorted(times, trace.ops.start[rows])
        cover = float(inside.sum()) / len(times)
        likely = bool(LIKELY.search(base))
        if cover < (LIKELY_COVER if likely else OTHER_COVER):
            continue
        # Of several, a name that says so; then the outermost, which is there less often; then what covers more.
        rank = (likely, -len(rows), cover)
        if made is None or rank > best:
            best, made = rank, _ranges(trace, rows, f"annotation {base}")
    return made


def _families(trace: Trace) -> list[tuple[str, Ints]]:
    """Names without their numbers, and the annotations of each; those with the most time, not more than FAMILIES."""
    annotations = np.flatnonzero(trace.ops.kind == OpKind.ANNOTATION)
    names, of_name = np.unique(trace.ops.name[annotations], return_inverse=True)
    bases: dict[str, int] = {}
    of_base = np.zeros(len(names), np.int64)
    for at, index in enumerate(names):
        match = NUMBERED.match(trace.names[index][:LONGEST])
        of_base[at] = bases.setdefault(match["base"] if match else trace.names[index], len(bases))
    of = of_base[of_name]
    length = np.bincount(of, trace.ops.end[annotations] - trace.ops.start[annotations], len(bases))
    length[np.bincount(of, minlength=len(bases)) < 2] = -1
    most = np.argsort(-length, kind="stable")[:FAMILIES]
    texts = list(bases)
    return [(texts[base], annotations[of == base]) for base in most if length[base] >= 0]


def _whole_span(trace: Trace) -> Borders:
    ops = trace.ops
    own = ops.kind != OpKind.PYTHON
    for start, end in ((ops.start[own], ops.end[own]), (trace.calls.start, trace.calls.end), _gpu(trace)):
        if len(start):
            low, high = int(start.min()), int(end.max())
            break
    else:
        low = high = 0
    return Borders(["the whole profile"], np.array([low]), np.array([high]), ONE, np.zeros(0, np.int64))


def _gpu(trace: Trace) -> tuple[Ints, Ints]:
    return trace.gpu.start, trace.gpu.end


def _ranges(trace: Trace, rows: Ints, how: str) -> Borders:
    names = [trace.names[index] for index in trace.ops.name[rows]]
    start, end = trace.ops.start[rows].astype(np.int64), trace.ops.end[rows].astype(np.int64)
    # Rounded times may let one end after the next has begun.
    end[:-1] = np.maximum(np.minimum(end[:-1], start[1:] - 1), start[:-1])
    return Borders(names, start, end, how, rows)


def _apart(trace: Trace, rows: Ints) -> Ints:
    """Of the thread that has most of them, those that lie in no other one, in the order of time."""
    if not len(rows):
        return np.asarray(rows, np.int64)
    threads = trace.ops.thread[rows]
    rows = rows[threads == np.bincount(threads).argmax()]
    start, end = trace.ops.start[rows], trace.ops.end[rows]
    order = np.lexsort((-end, start))
    rows, start, end = rows[order], start[order], end[order]
    reached = np.maximum.accumulate(end)
    keep = np.concatenate(([True], (end[1:] > reached[:-1]) & (start[1:] > start[:-1])))
    return np.asarray(rows[keep], np.int64)


def _last_moment(trace: Trace) -> int:
    return max((int(each.max()) for each in (trace.ops.end, trace.calls.end) if len(each)), default=0)
