"""How slow may a part of a board be before PASS ends? One row of what the modules verdict_table_* find."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import NamedTuple, TypeVar

T = TypeVar("T")


class Row(NamedTuple):
    board: str  # its key
    what: str  # "memory copy", "peers", "decode h264"
    percent: int  # of a healthy board's speed: the highest that is no PASS
    status: str
    reason: str  # the finding that ends PASS
    known: bool = True  # somebody measured healthy boards of this kind; else of a guess


def end_of_pass(judged: Callable[[int], T], passes: Callable[[T], bool], guess: int = 86) -> tuple[int, T]:
    """(the highest per cent that is no PASS, what was found there). A slower record is never judged better."""
    found = cache(judged)
    low, high, step = guess, guess, 1
    while passes(found(low)):
        high, low, step = low, low - step, 2 * step
        assert low > 0, "PASS at any speed"
    step = 1
    while high == low or not passes(found(high)):
        low, high, step = high, min(high + step, 100), 2 * step
        assert low < 100, "a healthy one does not pass"
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if passes(found(middle)) else (middle, high)
    return low, found(low)
