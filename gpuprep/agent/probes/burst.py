"""Repeats a measurement until its spread is small, within a time limit."""

from __future__ import annotations

import statistics
from typing import Callable, List, NamedTuple

FEWEST = 8  # samples for a median
WILD_PERCENT = 30.0  # of the judge: a figure that varied more is no figure


class Rule(NamedTuple):
    """When a burst ends: not before `least_samples` and `least_seconds`. Seconds are device time of the work.

    The power cap acts 30 to 100 ms after a rest (seen on H100 and H200). So a burst that is not steady after
    `short_seconds` ends before that, and is repeated, up to `tries` times in total. Then FEWEST samples are enough:
    with thirty TF32 products of 3 ms the median was by chance before or under the cap, 410 or 365 TFLOPS on an H100.
    """

    least_samples: int = 30
    rel_stdev_percent: float = 1.0
    short_seconds: float = 0.045
    most_seconds: float = 0.8
    batch_seconds: float = 0.015
    tries: int = 3
    least_seconds: float = 0.0


class Burst(NamedTuple):
    milliseconds: float  # median
    rel_stdev_percent: float
    iterations: int
    number: int = 0  # of the tries


def best_burst(begin: Callable[[], None], time_some: Callable[[int], List[float]], rule: Rule) -> Burst:
    """The fastest of the bursts, which end with the first steady one; before each, `begin` lets the device rest.

    The fastest, because disturbances slow a burst down, and a burst that begins under a power cap would be steady.
    A burst that varied wildly is repeated once more than the rule says: one of about 100 INT8 bursts on an H100 did.
    """
    bursts: List[Burst] = []
    while True:
        begin()
        latest = burst(time_some, rule)._replace(number=len(bursts))
        bursts.append(latest)
        short = rule.least_samples * latest.milliseconds / 1000 <= 2 * rule.short_seconds
        enough = latest.rel_stdev_percent <= rule.rel_stdev_percent or not short or len(bursts) >= rule.tries
        if enough and (latest.rel_stdev_percent <= WILD_PERCENT or len(bursts) > rule.tries):
            return min([burst for burst in bursts if burst.rel_stdev_percent <= WILD_PERCENT] or bursts)


def burst(time_some: Callable[[int], List[float]], rule: Rule) -> Burst:
    """Measure one burst. `time_some(n)` does the work n times and returns n durations in milliseconds.

    As nvbench: it ends with enough samples whose relative standard deviation is small, or when the time is used up; the
    reported spread shows which.
    """
    samples = time_some(1)
    while True:
        seconds = sum(samples) / 1000
        spread = rel_stdev(samples)
        enough = len(samples) >= rule.least_samples and seconds >= rule.least_seconds
        steady, over = spread <= rule.rel_stdev_percent, seconds >= rule.short_seconds
        if (enough and steady) or (len(samples) >= FEWEST and over) or seconds >= rule.most_seconds:
            return Burst(statistics.median(samples), round(spread, 3), len(samples))
        samples += time_some(batch(samples, rule.batch_seconds))


def batch(samples: List[float], seconds: float) -> int:
    """How many more samples to take at once: about `seconds` of work, at least one."""
    typical = statistics.median(samples) / 1000
    return max(1, min(int(seconds / max(typical, 1e-6)), 10000))


def rel_stdev(samples: List[float]) -> float:
    """Standard deviation in per cent of the mean; 100 for one sample, whose spread is unknown."""
    if len(samples) < 2:
        return 100.0
    return 100 * statistics.stdev(samples) / statistics.fmean(samples)
