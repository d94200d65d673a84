"""Sets of times, against sets of whole numbers."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gpuprep.trace.advice import intervals

SPANS = st.lists(st.tuples(st.integers(0, 60), st.integers(-2, 12)), max_size=12)


def made(spans: list[tuple[int, int]]) -> intervals.Intervals:
    starts = np.array([start for start, _ in spans], np.int64)
    return intervals.union(starts, starts + np.array([length for _, length in spans], np.int64))


def moments(of: intervals.Intervals) -> set[int]:
    return {moment for start, end in of.tolist() for moment in range(start, end)}


def of(spans: list[tuple[int, int]]) -> set[int]:
    return {moment for start, length in spans for moment in range(start, start + length)}


@given(SPANS)
def test_union_is_each_moment_once_and_its_parts_are_apart(spans: list[tuple[int, int]]) -> None:
    found = made(spans)
    assert moments(found) == of(spans)
    assert intervals.length(found) == len(of(spans))
    assert (found[1:, 0] > found[:-1, 1]).all()


@given(SPANS, SPANS)
def test_both_and_without(one: list[tuple[int, int]], other: list[tuple[int, int]]) -> None:
    assert moments(intervals.both(made(one), made(other))) == of(one) & of(other)
    assert moments(intervals.without(made(one), made(other))) == of(one) - of(other)


@given(SPANS, st.integers(-5, 70), st.integers(0, 40))
def test_gaps_and_what_is_inside_are_the_whole(spans: list[tuple[int, int]], start: int, length: int) -> None:
    end = start + length
    gaps, inside = intervals.gaps(made(spans), start, end), intervals.clipped(made(spans), start, end)
    assert moments(gaps) | moments(inside) == set(range(start, end))
    assert not moments(gaps) & moments(inside)


@given(SPANS, st.integers(-5, 80), st.integers(0, 40))
def test_covered_between_two_moments(spans: list[tuple[int, int]], start: int, length: int) -> None:
    found = intervals.Covered(made(spans)).between(np.array([start]), np.array([start + length]))
    assert found[0] == len(of(spans) & set(range(start, start + length)))
