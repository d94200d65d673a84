"""The same collective in several ranks, and clocks that agree on when it ended."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gpuprep.trace.columns import NONE
from gpuprep.trace.ranks import kinds
from gpuprep.trace.ranks.condensing import OneRank

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
        together = np.array([kind.name in kinds.TOGETHER for kind in rank.kinds] or [False])
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
            # Both clocks must be real ones to be believed.
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
