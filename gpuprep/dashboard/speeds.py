"""What a host measured in the last nights, in a few figures: the headline figures and those that fall."""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date

from gpuprep.performance import trend
from gpuprep.performance.trend import Direction, Measurement, Trend
from gpuprep.records import Source

NIGHTS = 30
SUSTAINED = " sustained"
# A headline is the best of the figures that fit: label, unit, probe, form of their names.
HEADLINES = (
    ("FP16/BF16", "TFLOPS", "gemm", re.compile(r"(?:fp16|bf16)(?:/\w+)? \d+x\d+x\d+\b(?!.*sustained)")),
    ("memory copy", "GB/s", "bandwidth", re.compile(r"device copy")),
    ("decode", "fps", "throughput", re.compile(r"decode\b.*")),
    ("encode", "fps", "throughput", re.compile(r"encode\b.*")),
    ("transcode", "fps", "throughput", re.compile(r"(?:transcode|scale|ladder)\b.*")),
)
Series = tuple[tuple[date, float], ...]


@dataclass(frozen=True)
class Headline:
    label: str  # "FP16/BF16"
    unit: str
    figure: str  # "fp16 8192x8192x8192 TN"
    gpu_uuid: str  # of several GPUs the slowest
    gpus: int
    nights: Series  # the median of each night, oldest first; at least one

    @property
    def newest(self) -> float:
        return self.nights[-1][1]


@dataclass(frozen=True)
class Falling:
    trend: Trend
    nights: Series


@dataclass(frozen=True)
class Speeds:
    """`direction`: of the whole host. `nights`: in how many something was measured."""

    direction: Direction
    nights: int
    figures: int
    headlines: tuple[Headline, ...]
    falling: tuple[Falling, ...]
    simulated: bool


NONE = Speeds(Direction.UNKNOWN, 0, 0, (), (), False)


def speeds(measured: Sequence[Measurement], *, nights: int = NIGHTS) -> Speeds:
    if not measured:
        return NONE
    trends = trend.trends(measured, nights=nights)
    dated = [(day, measurement) for measurement in measured if (day := trend.night(measurement.started_at)) is not None]
    falling = [
        Falling(trend, _series((day, each) for day, each in dated if _same(each, trend)))
        for trend in trends
        if trend.direction is Direction.DOWN and not trend.superseded
    ]
    return Speeds(
        trend.verdict(trends),
        len({day for day, _ in dated}),
        sum(not trend.superseded for trend in trends),
        tuple(filter(None, (_headline(dated, *each) for each in HEADLINES))),
        tuple(falling),
        any(measurement.source is Source.SIMULATED for measurement in measured),
    )


def _headline(
    dated: Sequence[tuple[date, Measurement]], label: str, unit: str, probe: str, form: re.Pattern[str]
) -> Headline | None:
    of: dict[str, dict[str, list[tuple[date, Measurement]]]] = {}
    for day, measurement in dated:
        if measurement.probe == probe and form.match(measurement.figure):
            of.setdefault(measurement.figure, {}).setdefault(measurement.gpu_uuid, []).append((day, measurement))
    # For each figure the slowest GPU, because a host is as fast as its slowest GPU; then the best figure.
    slowest = []
    for figure, by_gpu in of.items():
        series = {uuid: _series(listed) for uuid, listed in by_gpu.items()}
        uuid = min(series, key=lambda each: series[each][-1][1])
        slowest.append(Headline(label, unit, figure, uuid, len(series), series[uuid]))
    return max(slowest, key=lambda headline: (headline.nights[-1][0], headline.newest), default=None)


def _same(measurement: Measurement, of: Trend) -> bool:
    named = (measurement.gpu_uuid, measurement.probe, measurement.versions, measurement.figure, measurement.source)
    return named == (of.gpu_uuid, of.probe, of.versions, of.figure, of.source)


def _series(dated: Iterable[tuple[date, Measurement]]) -> Series:
    by_night: dict[date, list[float]] = {}
    for day, measurement in dated:
        by_night.setdefault(day, []).append(measurement.value)
    return tuple((day, statistics.median(values)) for day, values in sorted(by_night.items()))
