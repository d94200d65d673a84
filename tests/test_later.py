"""A call in a thread of its own (agent/later.py)."""

from __future__ import annotations

import threading

import pytest

from gpuprep.agent.later import Later


def test_two_calls_go_on_side_by_side() -> None:
    both = threading.Barrier(2, timeout=10)  # breaks, and raises, if one waits for the other
    first, second = Later(both.wait), Later(both.wait)
    assert {first.result(), second.result()} == {0, 1}


def test_the_result_can_be_asked_for_again() -> None:
    later = Later(int, "7")
    assert (later.result(), later.result()) == (7, 7)


def test_what_the_call_raises_is_raised_where_the_result_is_asked_for() -> None:
    later = Later(int, "seven")
    with pytest.raises(ValueError, match="seven"):
        later.result()
