"""What several ranks show together: who waits for whom, how long, and how fast the collectives are."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from gpuprep.trace.columns import NONE
from gpuprep.trace.document import Note
from gpuprep.trace.profile import Profile
from gpuprep.trace.ranks import condensing
from gpuprep.trace.ranks.condensing import Kind, OneRank, ranks_of
from gpuprep.trace.ranks.document import (
    SCHEMA_VERSION,
    CollectiveLine,
    RankLine,
    RanksDocument,
    RankStep,
    Straggler,
)

# Ends of a collective lie this far apart on one host, too. Clocks that differ by less are left as they are.
AGREE_NS = 100_000


@dataclass
class Matched:
    """Collectives that several ranks entered together: one row each, one column a rank; -1 where a rank has it not."""

    call: NDArray[np.int64]  # (rows, ranks), row of OneRank.calls
    complete: NDArray[np.bool_]  # in every rank that has this group
    columns: list[OneRank]

    def times(self, which: str, offsets: NDArray[np.int64]) -> NDArray[np.int64]:
        """`start` or `end` by aligned clocks; where a rank has it not, 0."""
        aligned = np.zeros(self.call.shape, np.int64)
        for column, rank in enumerate(self.columns):
            row = self.call[:, column]
            there = row >= 0
            aligned[there, column] = getattr(rank.calls, which)[row[there]] - offsets[column]
        return aligned


def match(ranks: list[OneRank]) -> Matched:
    """By the group's own number where the profiles have it, else by the order in a group and step.

    A group runs its collectives in the same order in all of its ranks, so the n-th of a name is the same one.
    """
    groups: dict[tuple[str, str], int] = {}
    steps: dict[str, int] = {}
    keys, owners, rows = [], [], []
    members: dict[int, set[int]] = {}
    for column, rank in enumerate(ranks):
        together = np.array([kind.name in condensing.TOGETHER for kind in rank.kinds] or [False])
        of_kind = np.array(
            [groups.setdefault((kind.name, kind.group), len(groups)) for kind in rank.kinds] or [0], np.int64
        )
        of_step = np.array([steps.setdefault(name, len(steps)) for name in rank.steps] + [NONE], np.int64)
        chosen = np.flatnonzero(together[rank.calls.kind])
        group, step = of_kind[rank.calls.kind[chosen]], of_step[rank.calls.step[chosen]]
        sequence = rank.calls.sequence[chosen]
        step = np.where(sequence >= 0, NONE, step)
        keys.append(np.column_stack((group, step, sequence, _occurrence(group, step, sequence))))
        owners.append(np.full(len(chosen), column))
        rows.append(chosen)
        for number in np.unique(group).tolist():
            members.setdefault(number, set()).add(column)
    key = np.concatenate(keys) if keys else np.zeros((0, 4), np.int64)
    place, first = _coded(*key.T)
    distinct = key[first]
    call = np.full((len(distinct), len(ranks)), NONE, np.int64)
    if len(key):
        call[place, np.concatenate(owners)] = np.concatenate(rows)
    wanted = np.zeros(len(groups) + 1, np.int64)
    for group_number, having in members.items():
        wanted[group_number] = len(having)
    count = (call >= 0).sum(axis=1)
    complete = (count > 1) & (count == wanted[distinct[:, 0]]) if len(distinct) else np.zeros(0, bool)
    return Matched(call, complete, ranks)


def _coded(*columns: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """A number for each different row, and one row of each number. np.unique with an axis takes ten times as long."""
    code = np.zeros(len(columns[0]), np.int64)
    first = np.zeros(0, np.int64)
    for column in columns:
        values, value = np.unique(column, return_inverse=True)
        # Neither factor is more than the number of rows.
        _, first, code = np.unique(code * max(1, len(values)) + value, return_index=True, return_inverse=True)
    return code, first


def _occurrence(*columns: NDArray[np.int64]) -> NDArray[np.int64]:
    """How many equal ones stand before each: 0, 1, 2 …"""
    of, _ = _coded(*columns)
    counts = np.zeros(len(of), np.int64)
    if not len(of):
        return counts
    order = np.argsort(of, kind="stable")
    sorted_ = of[order]
    begins = np.concatenate(([True], sorted_[1:] != sorted_[:-1]))
    begin = np.maximum.accumulate(np.where(begins, np.arange(len(of)), 0))
    counts[order] = np.arange(len(of)) - begin
    return counts


@dataclass(frozen=True)
class Clocks:
    offsets: NDArray[np.int64]  # ns, one a rank
    aligned: NDArray[np.bool_]  # ranks that can be compared with the first one
    words: str
    error_ns: float | None


def align(matched: Matched) -> Clocks:
    """Offsets against the first rank, by the median of how much later each rank's collectives end."""
    ranks = matched.columns
    offsets = np.zeros(len(ranks), np.int64)
    aligned = np.zeros(len(ranks), bool)
    aligned[:1] = True
    call = matched.call[matched.complete]
    ends = Matched(call, np.ones(len(call), bool), ranks).times("end", offsets)
    there = call >= 0
    moved = 0
    spread: list[NDArray[np.int64]] = []
    known = list(range(min(1, len(ranks))))
    waiting = set(range(1, len(ranks)))
    while known:  # from rank to rank: those of other groups are reached over one that is in both
        other = known.pop(0)
        for column in sorted(waiting):
            both = there[:, column] & there[:, other]
            if not both.any():
                continue
            later = ends[both, column] - (ends[both, other] - offsets[other])
            middle = int(np.median(later))
            scatter = float(np.median(np.abs(later - middle)))
            # Only real clocks of both ranks are trusted.
            own = ranks[column].has_clock and ranks[0].has_clock and abs(middle) <= max(AGREE_NS, 3 * scatter)
            offsets[column] = 0 if own else middle
            moved += not own
            aligned[column] = True
            spread.append(np.abs(later - offsets[column]))
            known.append(column)
        waiting -= set(known)
    error = float(np.median(np.concatenate(spread))) if spread else None
    if len(ranks) < 2:
        words = "one rank: nothing to align"
    elif waiting and not spread:
        words = "not aligned: no collective is in two of the profiles"
    else:
        words = "the ranks' own clocks agree" if not moved else f"aligned by the ends of collectives: {moved} moved"
        words += f"; {len(waiting)} could not be aligned" if waiting else ""
    return Clocks(offsets, aligned, words, error)


# A rank is a straggler if the others wait for it longest in more than half of the steps, and for this part of a step.
MOST_STEPS, LEAST_PART = 0.5, 0.05
_MOST_MISSING = 4096


def summary(profiles: Sequence[Profile], job: str = "") -> RanksDocument:
    """All profiles of a job at once. `job` is the folder's name."""
    return join([rank for profile in profiles for rank in ranks_of(profile)], job)


def join(members: Sequence[OneRank], job: str = "") -> RanksDocument:
    """Ranks in any order. Ranks of another job, and duplicates, are left out and reported."""
    notes: list[Note] = []
    ranks, world_size = _one_job(members, notes)
    common = _common_steps(ranks, notes)
    matched = match(ranks)
    clocks = align(matched)
    if unknown := sum(rank.unknown for rank in ranks):
        text = f"{_count(unknown, 'collective')} without the op that tells its group and size"
        notes.append(Note("collectives_without_op", unknown, text))
    if len(ranks) > 1 and (alone := int((~matched.complete).sum())):
        text = f"{_count(alone, 'collective')} not in every rank of the group: it is not known which rank waited there"
        notes.append(Note("collectives_not_matched", alone, text))
    waits = _Waits(matched, clocks, ranks, common)
    steps = _steps(ranks, common, waits)
    backends = Counter(rank.backend for rank in ranks if rank.backend)
    present = {rank.rank for rank in ranks}
    return RanksDocument(
        schema_version=SCHEMA_VERSION,
        job=job,
        backend=backends.most_common(1)[0][0] if backends else "",
        world_size=world_size if world_size > 0 else None,
        ranks=tuple(_line(rank, place, common, clocks, waits) for place, rank in enumerate(ranks)),
        missing=tuple(number for number in range(min(world_size, _MOST_MISSING)) if number not in present),
        clocks=clocks.words,
        clock_error_us=None if clocks.error_ns is None else clocks.error_ns / 1000,
        steps=steps,
        collectives=_collectives(ranks, matched, clocks),
        stragglers=_stragglers(ranks, steps, waits, clocks),
        notes=tuple(notes),
    )


def _one_job(ranks: Sequence[OneRank], notes: list[Note]) -> tuple[list[OneRank], int]:
    """The ranks of the job that has most files, sorted; a duplicate rank counts once."""
    jobs: dict[int, list[OneRank]] = defaultdict(list)
    for rank in sorted(ranks, key=lambda rank: (rank.file, rank.device)):
        jobs[rank.world_size].append(rank)
    if not jobs:
        return [], 0
    # Files that tell of a job before files that do not.
    size, chosen = max(jobs.items(), key=lambda item: (item[0] != NONE and len(item[1]) > 1, len(item[1]), item[0]))
    for other, strangers in sorted(jobs.items()):
        if other != size:
            for stranger in strangers:
                job_size = f"of {other} ranks" if other != NONE else "that does not tell its ranks"
                notes.append(Note("other_job", 1, f"{stranger.file}: of a job {job_size}; left out"))
    known = [rank for rank in chosen if rank.rank != NONE]
    free = iter(sorted(set(range(len(chosen))) - {rank.rank for rank in known}))
    numbered = known + [replace(unnumbered, rank=next(free)) for unnumbered in chosen if unnumbered.rank == NONE]
    if guessed := sum(rank.guessed for rank in numbered):
        text = f"{_count(guessed, 'profile')} without a rank: it was taken from the file's name, or from the order"
        notes.append(Note("rank_guessed", guessed, text))
    return _each_once(sorted(numbered, key=lambda rank: (rank.rank, rank.file)), notes), size


def _each_once(ranks: list[OneRank], notes: list[Note]) -> list[OneRank]:
    by_rank: dict[int, list[OneRank]] = defaultdict(list)
    for rank in ranks:
        by_rank[rank.rank].append(rank)
    names = Counter(name for rank in ranks for name in set(rank.steps))
    middle = np.median([rank.start[0] for rank in ranks if len(rank.start)] or [0])
    kept = []
    for number, same in sorted(by_rank.items()):
        # Prefer the file whose steps most other ranks have, then the one that started at the same time as they did.
        best = max(same, key=lambda rank: (sum(names[name] for name in set(rank.steps)), -_apart(rank, float(middle))))
        kept.append(best)
        for rank in same:
            if rank is not best:
                notes.append(Note("rank_twice", 1, f"{rank.file}: rank {number} is also in {best.file}; left out"))
    return kept


def _apart(rank: OneRank, middle: float) -> float:
    return abs(float(rank.start[0]) - middle) if len(rank.start) else float("inf")


def _common_steps(ranks: list[OneRank], notes: list[Note]) -> list[str]:
    if not ranks:
        return []
    steps = [set(rank.steps) for rank in ranks]
    everywhere, every = set.intersection(*steps), set.union(*steps)
    common = [name for name in ranks[0].steps if name in everywhere]
    if left := len(every) - len(common):
        notes.append(Note("steps_not_common", left, f"{_count(left, 'step')} not in every rank; not compared"))
    return common


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


class _Waits:
    """Per collective that all ranks of its group have: how long each waited in it, and who came last by how much."""

    def __init__(self, matched: Matched, clocks: Clocks, ranks: list[OneRank], common: list[str]) -> None:
        rows = matched.complete & ((matched.call < 0) | clocks.aligned).all(axis=1)
        self.known = bool(rows.any())
        self.call = matched.call[rows]
        there = self.call >= 0
        kept = Matched(self.call, matched.complete[rows], ranks)
        start, end = kept.times("start", clocks.offsets), kept.times("end", clocks.offsets)
        low = np.iinfo(np.int64).min
        entered = np.sort(np.where(there, start, low), axis=1)
        last = entered[:, -1] if self.known else np.zeros(0, np.int64)
        self.waited = np.where(there, np.clip(last[:, None] - start, 0, end - start), 0)
        self.last = np.where(there, start, low).argmax(axis=1) if self.known else np.zeros(0, np.int64)
        self.late = (last - entered[:, -2]) if self.known else np.zeros(0, np.int64)
        self.step = self._steps(ranks, common)

    def _steps(self, ranks: list[OneRank], common: list[str]) -> NDArray[np.int64]:
        """Index of the common steps; -1 outside of them. The step of the first rank that has the collective."""
        number = {name: place for place, name in enumerate(common)}
        steps = np.full(len(self.call), NONE, np.int64)
        for column, rank in enumerate(ranks):
            of = np.array([number.get(name, NONE) for name in rank.steps] + [NONE], np.int64)
            take = (steps < 0) & (self.call[:, column] >= 0)
            steps[take] = of[rank.calls.step[self.call[take, column]]]
        return steps

    def late_by_step(self, column: int, steps: int) -> NDArray[np.float64]:
        mine = (self.last == column) & (self.step >= 0)
        return np.bincount(self.step[mine], self.late[mine], minlength=steps)[:steps].astype(np.float64)


def _line(rank: OneRank, column: int, common: list[str], clocks: Clocks, waits: _Waits) -> RankLine:
    place = {name: number for number, name in enumerate(rank.steps)}
    chosen = [place[name] for name in common]
    there = waits.call[:, column] >= 0 if waits.known else np.zeros(0, bool)
    inside = there & (waits.step >= 0) if waits.known else there

    def mean(of: NDArray[np.int64]) -> float | None:
        return float(of[chosen].mean()) / 1000 if chosen else None

    step, busy, collective, exposed = mean(rank.wall), mean(rank.busy), mean(rank.collective), mean(rank.exposed)
    on_gpu = rank.device != NONE
    known = waits.known and bool(there.any()) and bool(chosen)
    return RankLine(
        rank=rank.rank,
        file=rank.file,
        device=rank.device if on_gpu else None,
        gpu=rank.gpu,
        steps=len(chosen),
        step_us=step,
        busy_us=busy if on_gpu else None,
        busy_percent=100 * busy / step if on_gpu and busy is not None and step else None,
        compute_us=mean(rank.compute) if on_gpu else None,
        collective_us=collective,
        exposed_us=exposed,
        overlapped_us=None if collective is None or exposed is None else collective - exposed,
        waiting_us=float(waits.waited[inside, column].sum()) / 1000 / len(chosen) if known else None,
        late_us=float(waits.late_by_step(column, len(common)).mean()) / 1000 if known else None,
        last_percent=100 * float((waits.last[inside] == column).mean()) if known and inside.any() else None,
        clock_offset_us=float(clocks.offsets[column]) / 1000,
    )


def _steps(ranks: list[OneRank], common: list[str], waits: _Waits) -> tuple[RankStep, ...]:
    late = np.array([waits.late_by_step(column, len(common)) for column in range(len(ranks))])
    places = [{name: place for place, name in enumerate(rank.steps)} for rank in ranks]
    steps = []
    for number, name in enumerate(common):
        rows = [place[name] for place in places]
        worst = int(late[:, number].argmax())
        steps.append(
            RankStep(
                name=name,
                wall_us=_each(ranks, rows, "wall"),
                busy_us=_each(ranks, rows, "busy"),
                exposed_us=_each(ranks, rows, "exposed"),
                late_us=tuple((late[:, number] / 1000).tolist()) if waits.known else (None,) * len(ranks),
                last_rank=ranks[worst].rank if late[worst, number] > 0 else None,
            )
        )
    return tuple(steps)


def _each(ranks: list[OneRank], rows: list[int], which: str) -> tuple[float, ...]:
    return tuple(float(getattr(rank, which)[row]) / 1000 for rank, row in zip(ranks, rows, strict=True))


def _stragglers(
    ranks: list[OneRank], steps: tuple[RankStep, ...], waits: _Waits, clocks: Clocks
) -> tuple[Straggler, ...]:
    """Only what is well above the error of the clocks counts."""
    if not steps or not waits.known:
        return ()
    stragglers = []
    length = float(np.mean([step.wall_us for step in steps]))
    for column, rank in enumerate(ranks):
        worst = sum(step.last_rank == rank.rank for step in steps)
        late = float(waits.late_by_step(column, len(steps)).mean()) / 1000
        mine = (waits.last == column) & (waits.step >= 0)
        typical = float(np.median(waits.late[mine])) if mine.any() else 0.0
        percent = 100 * late / length if length else 0.0
        if worst <= MOST_STEPS * len(steps) or percent < 100 * LEAST_PART or typical < 2 * (clocks.error_ns or 0):
            continue
        words = (
            f"Rank {rank.rank} enters collectives last: in {worst} of {len(steps)} steps the others waited longest for"
            f" it, {late / 1000:.2f} ms a step ({percent:.0f} % of it)."
        )
        stragglers.append(Straggler(rank.rank, worst, len(steps), late, percent, words))
    return tuple(sorted(stragglers, key=lambda straggler: -straggler.late_us))


def _collectives(ranks: list[OneRank], matched: Matched, clocks: Clocks) -> tuple[CollectiveLine, ...]:
    transfers = _transfers(ranks, matched, clocks)
    by_kind: dict[Kind, list[tuple[int, int]]] = defaultdict(list)
    for column, rank in enumerate(ranks):
        for number, kind in enumerate(rank.kinds):
            by_kind[kind].append((column, number))
    lines = [_collective(kind, ranks, where, transfers.get(kind, [])) for kind, where in by_kind.items()]
    return tuple(sorted(lines, key=lambda line: -line.total_us))


def _transfers(ranks: list[OneRank], matched: Matched, clocks: Clocks) -> dict[Kind, list[int]]:
    """ns from the last rank's start to the last end, by the kind in the first rank that has it."""
    rows = matched.complete & ((matched.call < 0) | clocks.aligned).all(axis=1)
    call = matched.call[rows]
    there = call >= 0
    kept = Matched(call, matched.complete[rows], ranks)
    low = np.iinfo(np.int64).min
    if not len(call):
        return {}
    start = np.where(there, kept.times("start", clocks.offsets), low).max(axis=1)
    end = np.where(there, kept.times("end", clocks.offsets), low).max(axis=1)
    ranks_there = there.sum(axis=1)
    first = there.argmax(axis=1)
    transfers: dict[Kind, list[int]] = defaultdict(list)
    for column in range(len(ranks)):
        chosen = np.flatnonzero(first == column)
        of = ranks[column].calls.kind[call[chosen, column]]
        for number in np.unique(of).tolist():
            kind = ranks[column].kinds[number]
            rows_of = chosen[of == number]
            # If a rank of a group has no profile, it is not known when the last rank entered.
            whole = rows_of if kind.group_size == NONE else rows_of[ranks_there[rows_of] == kind.group_size]
            transfers[kind] += np.maximum(end[whole] - start[whole], 0).tolist()
    return transfers


def _collective(
    kind: Kind, ranks: list[OneRank], where: Iterable[tuple[int, int]], transfers: list[int]
) -> CollectiveLine:
    lengths, exposed, calls = [], [], []
    for column, number in where:
        of = ranks[column].calls
        mine = of.kind == number
        lengths.append((of.end - of.start)[mine])
        exposed.append(of.exposed[mine])
        calls.append(int(mine.sum()))
    time, open_ = np.concatenate(lengths), np.concatenate(exposed)
    transfer = float(np.median(transfers)) if transfers else None
    factor = condensing.bus_factor(kind.name, kind.group_size if kind.group_size != NONE else 0)
    known = kind.bytes > 0 and factor is not None and transfer
    return CollectiveLine(
        name=kind.name,
        group=kind.group,
        group_size=kind.group_size if kind.group_size != NONE else None,
        dtype=kind.dtype,
        bytes=kind.bytes if kind.bytes != NONE else None,
        calls=max(calls),
        ranks=len(calls),
        matched=len(transfers),
        time_us=float(time.mean()) / 1000,
        exposed_us=float(open_.mean()) / 1000,
        overlapped_us=float((time - open_).mean()) / 1000,
        transfer_us=None if transfer is None else transfer / 1000,
        bus_gb_s=kind.bytes / transfer * (factor or 0) if known and transfer else None,  # bytes/ns = GB/s
        total_us=float(time.sum()) / 1000 / len(calls),
    )
