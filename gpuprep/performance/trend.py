"""Is a host getting slower, night after night? Figures of its runs ─► a trend per figure. Stdlib only.

A trend is DOWN only if both are true: the Mann-Kendall test finds a fall whose probability by chance is below `p`, and
the fall, by the Theil-Sen line, is more than `percent` over the window. One bad night changes neither, whatever it
measured; a slow decay changes both. A sudden loss is no trend: the comparison with the baseline finds it.

Mann-Kendall: S = number of pairs of nights in which the later is faster, less those in which it is slower. Two-sided p,
exact for figures without ties (the share of orders of n figures with such an S), else by the normal distribution,
    var S = (n(n-1)(2n+5) - sum over ties of t(t-1)(2t+5)) / 18,    z = (|S| - 1) / sqrt(var S)
H. B. Mann, Econometrica 13 (1945) 245; M. G. Kendall, Rank Correlation Methods, 1975; R. O. Gilbert, Statistical
Methods for Environmental Pollution Monitoring, 1987, section 16.4.
Theil-Sen: the median of the slopes of all pairs of nights; P. K. Sen, J. Am. Stat. Assoc. 63 (1968) 1379.
Both by hand: hosts get this room, too, and have no SciPy. Tests compare with SciPy.
"""

from __future__ import annotations

import enum
import math
import statistics
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta, timezone
from functools import lru_cache
from itertools import combinations
from typing import NamedTuple

from gpuprep.records import Source
from gpuprep.records.moments import moment

P = 0.01
PERCENT = 5.0  # as history_warn_percent of the shipped profiles
FEWEST_NIGHTS = 8
QUICK = "quick"  # among the versions of a short measurement
# Up to here the exact distribution; beyond, the normal one is as good (Kendall: from 10 on).
EXACT_NIGHTS = 60


class Direction(str, enum.Enum):
    DOWN = "DOWN"  # slower, surely and by more than the limit
    STEADY = "STEADY"  # anything else: no fall, or none that counts
    UNKNOWN = "UNKNOWN"  # too few nights to say


@dataclass(frozen=True)
class Measurement:
    """One figure of one run."""

    started_at: str  # UTC, ISO 8601
    run_id: str
    gpu_uuid: str
    probe: str
    versions: str  # what it depends on besides the GPU
    figure: str  # "fp16 8192x8192x8192 TN"
    value: float  # more is better
    source: Source


@dataclass(frozen=True)
class Trend:
    """One figure of one GPU over the window. Floats are None if there are too few nights."""

    gpu_uuid: str
    probe: str
    versions: str
    figure: str
    source: Source
    direction: Direction
    nights: int  # in which it was measured
    first: str  # date of the first of them, UTC
    last: str
    newest: float  # the figure of the last night
    percent_per_week: float | None  # slope of the line, of its value on the first night
    loss_percent: float | None  # by which the line falls from the first night to the last; negative: it rises
    p: float | None  # of the Mann-Kendall test, two-sided
    superseded: bool = False  # by other versions, or no longer measured: shown, and does not count


class Key(NamedTuple):
    """What must be the same for figures to be compared."""

    gpu_uuid: str
    probe: str
    versions: str
    figure: str
    source: Source


@dataclass(frozen=True)
class Line:
    per_day: float
    at_zero: float

    def at(self, day: float) -> float:
        return self.at_zero + self.per_day * day


def trends(measured: Iterable[Measurement], *, nights: int = 30, percent: float = PERCENT, p: float = P) -> list[Trend]:
    """A trend for each GPU, probe, figure and versions that the last `nights` nights hold: DOWN first, then UNKNOWN.

    The window ends with the newest figure. Measured and simulated figures are separate series, and so are figures of
    different versions, because they cannot be compared. Several runs in a night count as one, with their median.

    A series is superseded if its versions are not those of the newest night of its GPU and probe (quick or not does not
    matter), or if its probe has since measured in FEWEST_NIGHTS nights without this figure. These series come last.
    """
    perhaps = [(night(measurement.started_at), measurement) for measurement in measured]
    dated = [(day, measurement) for day, measurement in perhaps if day is not None]
    if not dated:
        return []
    newest = max(day for day, _ in dated)
    oldest = newest - min(timedelta(days=nights - 1), newest - date.min)
    series: dict[Key, dict[date, list[float]]] = {}
    for day, measurement in dated:
        if day >= oldest:
            key = Key(
                measurement.gpu_uuid, measurement.probe, measurement.versions, measurement.figure, measurement.source
            )
            series.setdefault(key, {}).setdefault(day, []).append(measurement.value)
    series_trends = [
        _trend(key, sorted((day, statistics.median(values)) for day, values in by_night.items()), percent, p)
        for key, by_night in series.items()
    ]
    old = _superseded({key: set(by_night) for key, by_night in series.items()})
    series_trends = [replace(trend, superseded=key in old) for key, trend in zip(series, series_trends, strict=True)]
    rank = {Direction.DOWN: 0, Direction.UNKNOWN: 1, Direction.STEADY: 2}
    return sorted(
        series_trends,
        key=lambda trend: (
            trend.superseded,
            rank[trend.direction],
            -(trend.loss_percent or 0.0),
            trend.gpu_uuid,
            trend.figure,
        ),
    )


def begin(newest: str, nights: int) -> str:
    """When the first of the last `nights` nights began, the last being that of `newest`; both UTC, ISO 8601."""
    last = night(newest) or datetime.now(timezone.utc).date()
    return f"{last - min(timedelta(days=nights - 1), last - date.min)}T12:00:00+00:00"


def verdict(series: Sequence[Trend]) -> Direction:
    """DOWN if a figure is DOWN; UNKNOWN if there are no figures, or a probe of a GPU is unknown; else STEADY.

    Superseded series do not count: they say nothing about the host with its present versions.
    """
    current = [trend for trend in series if not trend.superseded]
    if any(trend.direction is Direction.DOWN for trend in current):
        return Direction.DOWN
    asked = {(trend.gpu_uuid, trend.probe, trend.source) for trend in current}
    judged = {
        (trend.gpu_uuid, trend.probe, trend.source) for trend in current if trend.direction is not Direction.UNKNOWN
    }
    return Direction.STEADY if asked and asked == judged else Direction.UNKNOWN


def night(started_at: str) -> date | None:
    """The night that a run belongs to: from noon to noon UTC, named after its first day. None: no moment."""
    began = moment(started_at.replace("Z", "+00:00"))
    try:
        return (began - timedelta(hours=12)).date() if began else None
    except OverflowError:  # of the year 1
        return None


def mann_kendall(values: Sequence[float]) -> float:
    """Two-sided p of the Mann-Kendall test of `values` in the order of time; 1 for fewer than two values."""
    n, s = len(values), score(values)
    if n < 2:
        return 1.0
    if len(set(values)) == n and n <= EXACT_NIGHTS:
        return _exact(n, s)
    spread = variance(values)
    if spread == 0 or s == 0:
        return 1.0
    return math.erfc((abs(s) - 1) / math.sqrt(2 * spread))


def score(values: Sequence[float]) -> int:
    """S of Mann-Kendall."""
    return sum((later > earlier) - (later < earlier) for earlier, later in combinations(values, 2))


def variance(values: Sequence[float]) -> float:
    """Variance of S if the order is pure chance."""
    n = len(values)
    ties = [values.count(value) for value in set(values)]
    return (n * (n - 1) * (2 * n + 5) - sum(t * (t - 1) * (2 * t + 5) for t in ties)) / 18


def theil_sen(days: Sequence[float], values: Sequence[float]) -> Line:
    """The line through the medians with the median slope; at least two different days."""
    slopes = [
        (later - earlier) / (day - before)
        for (before, earlier), (day, later) in combinations(zip(days, values, strict=True), 2)
        if day != before
    ]
    slope = statistics.median(slopes)
    return Line(slope, statistics.median(values) - slope * statistics.median(days))


def _superseded(series: Mapping[Key, Collection[date]]) -> set[Key]:
    """One missing figure, or a full run among quick ones, does not supersede a series."""
    nights: dict[tuple[str, str, Source], set[date]] = {}
    for key, of in series.items():
        nights.setdefault((key.gpu_uuid, key.probe, key.source), set()).update(of)
    newest = {
        (key.gpu_uuid, key.probe, key.source, _installed(key.versions))
        for key, of in series.items()
        if max(of) == max(nights[key.gpu_uuid, key.probe, key.source])
    }
    return {
        key
        for key, of in series.items()
        if (key.gpu_uuid, key.probe, key.source, _installed(key.versions)) not in newest
        or sum(night > max(of) for night in nights[key.gpu_uuid, key.probe, key.source]) >= FEWEST_NIGHTS
    }


def _installed(versions: str) -> str:
    """The versions without "quick": "gpuprep 0.1.0, cublasLt 13.1.0, quick" ► "gpuprep 0.1.0, cublasLt 13.1.0"."""
    return ", ".join(version for version in versions.split(", ") if version != QUICK)


def _trend(key: Key, series: Sequence[tuple[date, float]], percent: float, p: float) -> Trend:
    first, last = series[0][0], series[-1][0]
    values = [value for _, value in series]
    dated = (len(series), first.isoformat(), last.isoformat(), values[-1])
    if len(series) < FEWEST_NIGHTS:
        return Trend(*key, Direction.UNKNOWN, *dated, None, None, None)
    days = [float((day - first).days) for day, _ in series]
    line = theil_sen(days, values)
    start = line.at(0.0)
    if start <= 0:  # figures are above zero: a line that crosses zero is no trend
        start = values[0]
    if not (start > 0 and math.isfinite(start) and math.isfinite(line.per_day)):  # no machine measures such figures
        return Trend(*key, Direction.UNKNOWN, *dated, None, None, None)
    loss = 100.0 * (start - line.at(days[-1])) / start
    chance = mann_kendall(values)
    down = loss > percent and score(values) < 0 and chance < p
    direction = Direction.DOWN if down else Direction.STEADY
    return Trend(*key, direction, *dated, 700.0 * line.per_day / start, loss, chance)


def _exact(n: int, s: int) -> float:
    """The share of the n! orders of n different figures whose |S| is at least this one.

    An order with k inversions has S = n(n-1)/2 - 2k. Orders with k inversions of n figures: those of n - 1 figures with
    k, k - 1, ... k - (n - 1), because the last figure can stand before any number of the others.
    """
    pairs = n * (n - 1) // 2
    far = sum(count for k, count in enumerate(_inversions(n)) if abs(pairs - 2 * k) >= abs(s))
    return far / math.factorial(n)


@lru_cache(maxsize=8)
def _inversions(n: int) -> tuple[int, ...]:
    """How many orders of n figures have 0, 1, 2 ... inversions."""
    counts = [1]
    for size in range(2, n + 1):
        longer = [0] * (len(counts) + size - 1)
        for k, count in enumerate(counts):
            for more in range(size):
                longer[k + more] += count
        counts = longer
    return tuple(counts)
