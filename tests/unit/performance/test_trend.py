"""Trends: the statistics against SciPy's, the limits, and what must never be called a trend."""

from __future__ import annotations

import dataclasses
import math
import random
from collections.abc import Sequence
from datetime import date, datetime, timedelta, timezone
from types import ModuleType
from typing import Any

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from gpuprep import records
from gpuprep.performance import trend

pytestmark = pytest.mark.xdist_group("scipy")
FIRST = datetime(2026, 10, 1, 2, 30, tzinfo=timezone.utc)
# Whole steps make ties, as rounded figures do.
FIGURES = st.one_of(st.integers(1, 8).map(float), st.floats(1.0, 1000.0))
SERIES = st.lists(FIGURES, min_size=3, max_size=40)


def stats() -> ModuleType:
    """SciPy's, loaded in the one worker that needs it: that takes seconds."""
    from scipy import stats as theirs

    return theirs


def measured(values: Sequence[float], **changes: Any) -> list[trend.Measurement]:
    """One figure a night."""
    one = trend.Measurement("", "", "GPU-0", "gemm", "gpuprep 0.1.0, quick", "fp16", 0.0, records.Source.MEASURED)
    return [
        dataclasses.replace(
            one, started_at=(FIRST + timedelta(days=day)).isoformat(), run_id=f"r{day}", value=value, **changes
        )
        for day, value in enumerate(values)
    ]


def only(found: list[trend.Trend]) -> trend.Trend:
    (one,) = found
    return one


@given(SERIES)
@example([1.0, 1.0, 1.0])
@example([3.0, 2.0, 1.0])
def test_score_and_variance_are_those_of_kendalls_tau(values: list[float]) -> None:
    """SciPy's p without ties' correction of continuity is erfc(|S| / sqrt(2 var S)); ours takes 1 from |S|."""
    spread = trend.variance(values)
    theirs = stats().kendalltau(range(len(values)), values, method="asymptotic", variant="b").pvalue
    if math.isnan(theirs):  # all figures are the same
        assert (trend.score(values), spread, trend.mann_kendall(values)) == (0, 0.0, 1.0)
        return
    score = trend.score(values)
    assert math.erfc(abs(score) / math.sqrt(2 * spread)) == pytest.approx(theirs, rel=1e-9, abs=1e-12)


@given(st.lists(st.floats(1.0, 1000.0), min_size=2, max_size=trend.EXACT_NIGHTS, unique=True))
def test_p_without_ties_is_exact(values: list[float]) -> None:
    theirs = stats().kendalltau(range(len(values)), values, method="exact").pvalue
    assert trend.mann_kendall(values) == pytest.approx(theirs, rel=1e-9, abs=1e-15)


@given(st.lists(st.integers(1, 6).map(float), min_size=3, max_size=40))
def test_p_with_ties_is_that_of_the_normal_distribution_and_more_careful(values: list[float]) -> None:
    assume(1 < len(set(values)) < len(values))
    score, spread = trend.score(values), trend.variance(values)
    z = max(0, abs(score) - 1) / math.sqrt(spread)
    assert trend.mann_kendall(values) == pytest.approx(2 * stats().norm.sf(z), rel=1e-9)
    plain = stats().kendalltau(range(len(values)), values, method="asymptotic").pvalue
    assert trend.mann_kendall(values) >= plain - 1e-12


@given(st.lists(st.tuples(st.integers(0, 60), FIGURES), min_size=2, max_size=40, unique_by=lambda point: point[0]))
def test_the_line_is_theil_and_sens(points: list[tuple[int, float]]) -> None:
    days, values = [float(day) for day, _ in points], [value for _, value in points]
    slope, intercept, _, _ = stats().theilslopes(values, days)
    line = trend.theil_sen(days, values)
    assert line.per_day == pytest.approx(slope, rel=1e-9, abs=1e-9)
    assert line.at_zero == pytest.approx(intercept, rel=1e-9, abs=1e-6)


@given(st.lists(FIGURES, min_size=8, max_size=40), st.floats(0.5, 20.0))
def test_down_is_a_fall_that_is_sure_and_counts(values: list[float], percent: float) -> None:
    """By SciPy's figures alone: no border of ours."""
    found = only(trend.trends(measured(values), nights=60, percent=percent))
    nights = range(len(values))
    slope, intercept, _, _ = stats().theilslopes(values, nights)
    assume(intercept > 0)
    loss = -100 * slope * (len(values) - 1) / intercept
    assume(abs(loss - percent) > 1e-6)
    tau = stats().kendalltau(nights, values, method="exact" if len(set(values)) == len(values) else "asymptotic")
    if loss <= percent or tau.statistic >= 0 or tau.pvalue >= trend.P:
        assert found.direction is trend.Direction.STEADY
    elif trend.mann_kendall(values) < trend.P:
        assert found.direction is trend.Direction.DOWN
    assert found.loss_percent == pytest.approx(loss, rel=1e-6, abs=1e-6)


def slide(nights: int, a_night: float, noise: float = 0.0, seed: int = 0) -> list[float]:
    random_ = random.Random(seed)
    return [280.0 * (1 - a_night / 100) ** n * (1 + random_.gauss(0, noise / 100)) for n in range(nights)]


@pytest.mark.parametrize("noise", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("seed", range(5))
def test_a_slow_slide_is_found(noise: float, seed: int) -> None:
    """0.3 % a night: no night is 5 % below the last, and in a month 8 % are gone."""
    found = only(trend.trends(measured(slide(30, 0.3, noise, seed))))
    assert found.direction is trend.Direction.DOWN
    assert found.percent_per_week == pytest.approx(-2.0, abs=0.4)
    assert found.loss_percent == pytest.approx(8.3, abs=1.5)


@given(st.integers(0, 29), st.floats(0.001, 10_000.0), st.integers(0, 3))
def test_one_night_is_no_trend_whatever_it_measured(night: int, value: float, seed: int) -> None:
    values = slide(30, 0.0, 0.5, seed)
    assert only(trend.trends(measured(values))).direction is trend.Direction.STEADY
    values[night] = value
    assert only(trend.trends(measured(values))).direction is trend.Direction.STEADY


@given(st.lists(st.floats(270.0, 280.0), min_size=8, max_size=40))
def test_noise_within_the_limit_is_no_trend(values: list[float]) -> None:
    found = only(trend.trends(measured(values), nights=60))
    assert found.direction is trend.Direction.STEADY


def test_noise_of_a_normal_host_raises_no_alarm_in_a_thousand_windows() -> None:
    random_ = random.Random(7)
    windows = [[280.0 * (1 + random_.gauss(0, 0.02)) for _ in range(30)] for _ in range(1000)]
    found = [only(trend.trends(measured(values))).direction for values in windows]
    assert found.count(trend.Direction.DOWN) == 0


def test_a_rise_is_none() -> None:
    found = only(trend.trends(measured(slide(30, -1.0))))
    assert found.direction is trend.Direction.STEADY
    assert found.loss_percent is not None
    assert found.loss_percent < 0


def test_seven_nights_are_too_few_and_eight_are_not() -> None:
    assert only(trend.trends(measured(slide(7, 3.0)))).direction is trend.Direction.UNKNOWN
    assert only(trend.trends(measured(slide(8, 3.0)))).direction is trend.Direction.DOWN


def test_runs_of_one_night_count_once_with_their_median() -> None:
    """Seven nights stay seven, and nights before and after midnight UTC are one."""
    values = slide(7, 3.0)
    again = [dataclasses.replace(one, run_id=f"{one.run_id}b") for one in measured(values)]
    assert only(trend.trends([*measured(values), *again])).direction is trend.Direction.UNKNOWN
    one, *_ = measured([100.0])
    same = [
        dataclasses.replace(one, started_at=moment, value=value)
        for moment, value in (
            ("2026-10-01T12:00:00+00:00", 10.0), ("2026-10-01T23:59:00+00:00", 20.0), ("2026-10-02T11:59:59Z", 90.0),
        )
    ]  # fmt: skip
    found = only(trend.trends(same))
    assert (found.nights, found.newest, found.first) == (1, 20.0, "2026-10-01")


def test_only_the_last_nights_count() -> None:
    values = [*slide(30, 2.0), *[150.0] * 30]
    assert only(trend.trends(measured(values), nights=60)).direction is trend.Direction.DOWN
    found = only(trend.trends(measured(values), nights=30))
    assert (found.direction, found.nights) == (trend.Direction.STEADY, 30)
    assert trend.begin("2026-10-30T02:30:00+00:00", 30) == "2026-09-30T12:00:00+00:00"
    assert trend.night("2026-09-30T12:00:00+00:00") == date(2026, 9, 30)


def test_what_cannot_be_compared_is_kept_apart() -> None:
    """Half of the nights of each: together they would fall, apart there are too few."""
    values = slide(12, 3.0)
    apart: tuple[dict[str, Any], ...] = (
        {"versions": "0.2.0"},
        {"source": records.Source.SIMULATED},
        {"gpu_uuid": "GPU-1"},
    )
    for changed in apart:
        later = [dataclasses.replace(one, **changed) for one in measured(values)[6:]]
        found = trend.trends([*measured(values)[:6], *later])
        assert [one.direction for one in found] == [trend.Direction.UNKNOWN] * 2


def test_the_verdict_is_down_then_unknown_then_steady() -> None:
    steady, down = measured([100.0] * 10), measured(slide(10, 3.0), figure="bf16")
    few = measured([100.0] * 3, gpu_uuid="GPU-1")
    retired = measured([100.0] * 3, versions="gpuprep 0.0.9, quick")
    assert trend.verdict(trend.trends([*steady, *down, *few])) is trend.Direction.DOWN
    assert trend.verdict(trend.trends([*steady, *few])) is trend.Direction.UNKNOWN
    assert trend.verdict(trend.trends([*steady, *retired])) is trend.Direction.STEADY
    assert trend.verdict(trend.trends(steady)) is trend.Direction.STEADY
    assert trend.verdict(trend.trends([])) is trend.Direction.UNKNOWN
    assert [one.direction.value for one in trend.trends([*few, *steady, *down])] == ["DOWN", "UNKNOWN", "STEADY"]


# ---------------------------------------------------------------- superseded series

OLD, NEW = "gpuprep 1, cublasLt 13.1.0, quick", "gpuprep 2, cublasLt 13.1.0, quick"


def after(nights: int, values: Sequence[float], **changes: Any) -> list[trend.Measurement]:
    """`values` from the night on that so many came before."""
    return [
        dataclasses.replace(one, started_at=(FIRST + timedelta(days=nights + day)).isoformat())
        for day, one in enumerate(measured(values, **changes))
    ]


def told(found: Sequence[trend.Trend]) -> dict[str, tuple[str, bool]]:
    return {one.versions: (one.direction.value, one.superseded) for one in found}


def test_after_an_upgrade_the_old_series_is_no_verdict() -> None:
    falling = [100.0 - 8 * night for night in range(7)]  # to 52
    found = trend.trends([*measured([100.0] * 12, versions=OLD), *after(12, falling, versions=NEW)])
    assert told(found) == {OLD: ("STEADY", True), NEW: ("UNKNOWN", False)}
    assert found[-1].versions == OLD
    assert trend.verdict(found) is trend.Direction.UNKNOWN
    judged = trend.trends([*measured([100.0] * 12, versions=OLD), *after(12, [*falling, 50.0], versions=NEW)])
    assert trend.verdict(judged) is trend.Direction.DOWN


def test_a_fall_with_versions_that_were_replaced_ends_with_them() -> None:
    fell = measured(slide(12, 3.0), versions=OLD)
    assert trend.verdict(trend.trends(fell)) is trend.Direction.DOWN
    assert trend.verdict(trend.trends([*fell, *after(12, [200.0], versions=NEW)])) is trend.Direction.UNKNOWN
    replaced = trend.trends([*fell, *after(12, [200.0] * 8, versions=NEW)])
    assert told(replaced) == {OLD: ("DOWN", True), NEW: ("STEADY", False)}
    assert trend.verdict(replaced) is trend.Direction.STEADY


def test_other_gpus_probes_and_sources_supersede_nothing() -> None:
    fell = measured(slide(12, 3.0), versions=OLD)
    others: tuple[dict[str, Any], ...] = (
        {"gpu_uuid": "GPU-1"},
        {"probe": "bandwidth"},
        {"source": records.Source.SIMULATED},
    )
    for other in others:
        found = trend.trends([*fell, *after(12, [100.0] * 8, versions=NEW, **other)])
        assert not any(one.superseded for one in found)
        assert trend.verdict(found) is trend.Direction.DOWN


def test_one_validate_without_quick_hides_no_fall() -> None:
    fell = measured(slide(12, 3.0), versions=OLD)
    full = after(12, [280.0], versions="gpuprep 1, cublasLt 13.1.0")
    assert trend.verdict(trend.trends([*fell, *full])) is trend.Direction.DOWN


def test_a_figure_counts_until_its_probe_went_eight_nights_without_it() -> None:
    """A night in which one figure varied too much is no end of it; a product that the profile dropped is."""
    fell = measured(slide(12, 3.0), versions=OLD, figure="bf16")
    beside = measured([100.0] * 12, versions=OLD)
    for nights, end in ((1, trend.Direction.DOWN), (7, trend.Direction.DOWN), (8, trend.Direction.STEADY)):
        found = trend.trends([*fell, *beside, *after(12, [100.0] * nights, versions=OLD)])
        assert trend.verdict(found) is end
        assert [one.figure for one in found if one.superseded] == (["bf16"] if nights == 8 else [])
