"""Where does an iteration begin and end? ProfilerStep#N, a key op, a name that repeats, kernels that repeat, or one
iteration for all."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from gpuprep.errors import UsageError
from gpuprep.trace.columns import NONE, GpuKind, Ints, OpKind, Trace
from gpuprep.trace.model.intervals import CHUNK, Sweep
from gpuprep.trace.profile import OUTSIDE, REPEATED

STEP = re.compile(r"ProfilerStep\s?#?\d+\Z")
# A name with a number at its end, and what stands before it: "iteration 12", "step_3", "train/batch#7".
NUMBERED = re.compile(r"(?P<base>.*?[^\W\d_])[\s_#:=\[(/.-]*\d+[\])]?\Z", re.DOTALL)
LIKELY = re.compile(r"(?:\b|_)(?:iter|iteration|step|train_step|training_step|batch|minibatch)s?\Z", re.IGNORECASE)
# Of all API calls, what must lie inside the ranges of a name that repeats before they are taken for iterations.
LIKELY_COVER, OTHER_COVER = 0.5, 0.9
ONE = "one"
FEWEST = 3  # steps
LEAST_LAUNCHES, MOST_LAUNCHES, MOST_TOKENS = 12, 1_000_000, 2_000  # that are looked at; tokens are kinds of launches
TOGETHER = (1, 8, 64)
ALIKE, COVER = 0.8, 0.5  # of the launches in the steps, those in equal ones; of all launches, those in the steps
STRANGE = 0.02  # of a step: kernels behind the last one that are in none
WAIT = re.compile(r"Synchronize\Z")
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
    # The profile's own iterations are no work with another key op either: a key op does not change which op launched
    # which kernel.
    own = _by_steps(trace) or _by_names(trace)
    return Borders(names, start, end, f"key op {key_op}", own.rows if own else np.zeros(0, np.int64))


def _by_steps(trace: Trace) -> Borders | None:
    steps = [index for index, name in enumerate(trace.names) if STEP.match(name)]
    rows = np.flatnonzero(np.isin(trace.ops.name, steps) & (trace.ops.kind != OpKind.PYTHON))
    if not len(rows):
        return None
    # Those of other threads, and those inside of others, are no work of the program either.
    return replace(_ranges(trace, _apart(trace, rows), "ProfilerStep"), rows=rows)


def by_repetition(trace: Trace, call_of: Ints, ranges: Sweep) -> Borders | None:
    """Steps without names: the same kernels are launched in the same order, at least FEWEST times.

    A kernel that is there once a step cuts the launches into equal parts. Where several do, the shortest parts that
    are all equal are the steps: the layers of a model are not, as something stands before the first and behind the
    last. Else, as a step may do more from time to time, the longest parts of which most are equal. First steps that
    differ are left out. `call_of`: of each GPU event its row of Trace.calls. `ranges`: all of the profile.
    """
    calls, tokens, kernel = _launched(trace, call_of)
    if not LEAST_LAUNCHES <= len(tokens) <= MOST_LAUNCHES:
        return None
    begins = _begins(trace, calls, ranges)
    if np.count_nonzero(begins >= 0) < FEWEST:
        return None
    start, end = (each[calls].astype(np.int64) for each in (trace.calls.start, trace.calls.end))
    last = np.maximum.accumulate(end)
    gap = start - np.append(start[0], last[:-1])
    sums, inverse = _hashes(tokens)
    best: tuple[bool, int] = (False, 0)
    found: Borders | None = None
    # if no kernel occurs once in a step, a sequence of several does
    for together in filter(len(tokens).__gt__, TOGETHER):
        for places in _places((sums[together:] - sums[:-together]) * inverse[: len(sums) - together]):
            part = (sums[places[1:]] - sums[places[:-1]]) * inverse[places[:-1]]
            _, of, often = np.unique(part, return_inverse=True, return_counts=True)
            alike = np.flatnonzero(of == np.argmax(often))
            size = int(places[alike[0] + 1] - places[alike[0]])
            places = places[alike[0] : alike[-1] + 2]  # to the end of the last equal one
            covered = int(places[-1] - places[0])
            share = len(alike) * size / covered
            rank = (share >= 1.0, len(alike) if share >= 1.0 else -len(alike))
            few = share < ALIKE or len(alike) < ALIKE * (len(places) - 1) or covered < COVER * len(tokens)
            if few or size < 2 or (found is not None and rank <= best):
                continue
            steps = _cut(gap, tokens, kernel, begins, places, size)
            if steps is not None:
                # Work of the program after its last step is not part of the step.
                borders = np.append(np.where(begins < 0, start, begins)[steps[:-1]], last[steps[-1] - 1] + 1)
                names = [f"step {number}" for number in range(len(borders) - 1)]
                found = Borders(names, borders[:-1], borders[1:] - 1, REPEATED, np.zeros(0, np.int64))
                best = rank
        if found is not None:
            return found
    return None


def _places(values: Ints) -> Iterator[Ints]:
    """Of each value that is there FEWEST times or more where it is, the rarest first."""
    order = np.argsort(values, kind="stable")
    first = np.flatnonzero(np.append(True, values[order][1:] != values[order][:-1]))
    many = np.diff(np.append(first, len(values)))
    rare = np.argsort(many, kind="stable")
    for one in rare[many[rare] >= FEWEST][:MOST_TOKENS].tolist():
        yield order[first[one] : first[one] + many[one]]


def _launched(trace: Trace, call_of: Ints) -> tuple[Ints, Ints, NDArray[np.bool_]]:
    """(rows of Trace.calls in the order of time, what each launches first or that it waits, whether it is a kernel)"""
    gpu, calls = trace.gpu, trace.calls
    event = np.full(len(calls.start), -1, np.int64)
    late = np.argsort(-gpu.start, kind="stable")
    late = late[call_of[late] >= 0]
    event[call_of[late]] = late  # the earliest comes last
    waits = np.array([bool(WAIT.search(name[-LONGEST:])) for name in trace.names], bool)[calls.name]
    rows = np.flatnonzero((event >= 0) | waits)
    rows = rows[np.argsort(calls.start[rows], kind="stable")]
    event = event[rows]
    launched = event >= 0
    event[~launched] = 0
    tokens = np.where(launched, gpu.name[event], len(trace.names) + calls.name[rows]) if len(gpu.name) else event
    return rows, tokens, launched & (gpu.kind[event] == GpuKind.KERNEL) if len(gpu.name) else launched


def _hashes(tokens: Ints) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Sums with which two parts a:b are equal if (sums[b] - sums[a]) x inverse[a] is; all modulo 2^64."""
    base, size = 0x9E3779B97F4A7C15, len(tokens)
    random = np.random.default_rng(1).integers(0, 2**63, int(tokens.max()) + 1, np.uint64)
    power = np.cumprod(np.full(size, base, np.uint64))
    inverse = np.cumprod(np.full(size, pow(base, -1, 2**64), np.uint64))
    sums = np.concatenate((np.zeros(1, np.uint64), np.cumsum(random[tokens] * power, dtype=np.uint64)))
    return sums, np.asarray(inverse, np.uint64)


def _begins(trace: Trace, rows: Ints, ranges: Sweep) -> Ints:
    """Of each of these calls when a step could begin with it: with the op around it; -1 where an op, a module or the
    optimizer is at work."""
    ops, calls = trace.ops, trace.calls
    optimizer = np.array([name.startswith("Optimizer.") for name in trace.names], bool)
    closed = ranges.only((ops.kind == OpKind.OP) | (ops.kind == OpKind.MODULE) | optimizer[ops.name])
    outer = np.zeros(len(ops.start), bool)
    outer[closed.rows[closed.above < 0]] = True
    around = ranges.only(outer).around(calls.start[rows], calls.thread[rows])
    start = calls.start[rows].astype(np.int64)
    begin = np.where(around >= 0, ops.start[around], start) if len(ops.start) else start
    before = np.concatenate(([np.iinfo(np.int64).min], np.maximum.accumulate(calls.end[rows].astype(np.int64))[:-1]))
    return np.where(begin >= before, begin, NONE)


def _cut(gap: Ints, tokens: Ints, kernel: NDArray[np.bool_], begins: Ints, places: Ints, size: int) -> Ints | None:
    """Where each step begins, and where the last one ends; None: these are no steps.

    Steps begin where most of them are whole, and there where the CPU does most between two launches (`gap`):
    there the loop of the program begins again.
    """
    first, phase = int(places[0]), np.arange(size)
    step = tokens[first : first + size]
    # Before the first place and behind the last there is more of a step, or all of it.
    left = _alike(tokens[max(0, first - size) : first][::-1], step[::-1])
    right = _alike(tokens[places[-1] : places[-1] + 2 * size], np.tile(step, 2))
    whole = (size - phase <= left).astype(int) + (phase <= right) + (phase + size <= right)
    some = places[:-1][np.diff(places) == size][: max(1, MOST_LAUNCHES // size), None] + phase
    possible = (begins[some] >= 0).all(axis=0)
    if not possible.any():
        return None
    chosen = possible & (whole == whole[possible].max())
    begin = int(np.argmax(np.where(chosen, np.median(gap[some], axis=0), -np.inf)))
    last = [places[-1] + begin + more for more in (0, size) if begin + more <= right]
    # Of a step that does more the begin is as far from its own place, or from the next one.
    cuts, other = np.minimum(places[:-1] + begin, places[1:] - 1), np.maximum(places[1:] - size + begin, places[:-1])
    cuts = np.where(gap[other] > gap[cuts], other, cuts)
    cuts = np.concatenate(([first - size + begin] if size - begin <= left else [], cuts, last)).astype(np.int64)
    # What is behind the last step is the begin of one more: else these are the layers of a model.
    strange = kernel[cuts[-1] :] & ~np.isin(tokens[cuts[-1] :], step)
    if len(cuts) <= FEWEST or strange.sum() > STRANGE * size:
        return None
    return cuts


def _alike(some: Ints, others: Ints) -> int:
    """The number of equal steps at the beginning."""
    same = some == others[: len(some)]
    return len(same) if same.all() else int(np.argmin(same))


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
