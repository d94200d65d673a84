"""The bars of the first screen: the best product of each type, memory and links, streams of video; floors on them.

Of several GPUs of one board a bar shows the lowest, which is the one to look at.

A floor is read from the finding that judged the figure. A finding says it in words ("≥ 55 % of 1071 TFLOPS at 1980 MHz
(profile h200)") that the record keeps, so the floor is that of the day of the run, also after the profile was changed.
Unknown words give no floor.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

from gpuprep.agent.video.throughputplan import LARGER
from gpuprep.checks.floors import apart
from gpuprep.checks.judges.throughput.capacity import STREAM_FPS
from gpuprep.performance.attribution import Attribution
from gpuprep.records import Finding, RunRecord, Status
from gpuprep.records.findings import PROBLEMS, findings_of
from gpuprep.reports import figures, glance, measured
from gpuprep.reports.columns import ALIKE_PERCENT
from gpuprep.reports.html.charts import NAMES, WORTH_A_BAR
from gpuprep.reports.measured import Bandwidth, Gemm, Series
from gpuprep.reports.readings import figure, known

_T = TypeVar("_T", Gemm, Bandwidth, Series)
HD = (1920, 1080)
SIZES = {"1920×1080": "1080p30", "3840×2160": "4K30"}  # as people call streams of 30 frames a second


@dataclass(frozen=True)
class Lost:
    """A part of a bar that is missing, from `start` to `end` per cent of it."""

    class_: str  # of style.css
    start: float
    end: float
    words: str


@dataclass(frozen=True)
class Bar:
    name: str
    detail: str
    value: str
    unit: str
    percent: float | None  # of the whole bar; None: the peak is not known
    floor: float | None = None  # the same
    comparison: str = ""  # "77 % of peak, floor 55 %"
    below: bool = False  # whether the check did not pass the figure
    losses: tuple[Lost, ...] = ()


@dataclass(frozen=True)
class Bars:
    title: str
    rows: tuple[Bar, ...]
    causes: tuple[tuple[str, str], ...] = ()  # class and word of the losses, for the legend
    note: str = ""


def products(record: RunRecord) -> Bars:
    """The fastest product of each data type, as a share of its peak, with what the rest was lost to."""
    floors = Floors(findings_of(record))
    long: dict[tuple[str, str], float] = {}
    for gemm in measured.gemms(record):
        key = (gemm.gpu.label, gemm.type)
        long[key] = max(long.get(key, 0.0), known(gemm.sustained_tflops) or 0.0)
    best = measured.fastest(measured.gemms(record), lambda row: (row.gpu.label, row.type)).values()
    pairs = _lowest(best, lambda row: (row.gpu.kind, row.type), _tflops)
    rows = [_product(row, floors, long[row.gpu.label, row.type], _which(row, of, _tflops)) for row, of in pairs]
    seen = {lost.class_: NAMES.get(lost.class_.removeprefix("l-"), "") for row in rows for lost in row.losses}
    return Bars("Best product of each type", tuple(rows), tuple(seen.items()), _note(pairs))


def memory(record: RunRecord) -> Bars:
    floors = Floors(findings_of(record))
    read = [row for row in measured.bandwidths(record) if row.crosses != "peer" and known(row.gb_per_s) is not None]
    pairs = _lowest(read, lambda row: (row.gpu.kind, row.what), _gb_per_s)
    rows = [_moved(row, floors.of_bandwidth(row), _which(row, of, _gb_per_s)) for row, of in pairs]
    return Bars("Memory and links", tuple(rows), note=_note(pairs))


def streams(record: RunRecord) -> list[Bars]:
    """Whole streams of 30 frames a second, a chart a size of picture; all bars of a chart have one scale."""
    floors = Floors(findings_of(record))
    every = measured.throughputs(record)
    charts = []
    for size in dict.fromkeys(series.size for series in every if series.best):
        ran = [series for series in every if series.best and series.size == size]
        pairs = _lowest(ran, lambda series: (series.gpu.kind, series.name), _fps)
        limits = {id(row): _limit(row, floors) for row, _ in pairs}
        top = max([_fps(row) or 0.0 for row, _ in pairs] + [limit.value for limit in limits.values() if limit])
        rows = tuple(_streams(row, of, limits[id(row)], top) for row, of in pairs)
        note = ". ".join(filter(None, (f"One stream is {size or 'a video'} at {STREAM_FPS} fps", _note(pairs))))
        charts.append(Bars(f"Video: streams of {named(size)}", rows, note=note))
    return charts


def named(size: str) -> str:
    """ "1080p30" of "1920×1080"."""
    return SIZES.get(size, f"{size} at {STREAM_FPS} fps".strip())


def _lowest(
    rows: Iterable[_T], key: Callable[[_T], tuple[str, str]], value: Callable[[_T], float | None]
) -> list[tuple[_T, list[_T]]]:
    """The lowest of the rows with one key, and all of them."""
    groups: dict[tuple[str, str], list[_T]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    return [(min(of, key=lambda row: value(row) or 0.0), of) for of in groups.values()]


def _which(row: _T, of: list[_T], value: Callable[[_T], float | None]) -> str:
    """ "GPU 7, the lowest of 8" where several GPUs differ."""
    lowest, highest = value(row) or 0.0, max(value(other) or 0.0 for other in of)
    similar = highest <= 0 or 100 * lowest / highest > ALIKE_PERCENT
    return "" if similar else f"{row.gpu.label}, the lowest of {len(of)}"


def _note(pairs: list[tuple[_T, list[_T]]]) -> str:
    most = max((len({row.gpu.label for row in of}) for _, of in pairs), default=1)
    return f"Of {most} GPUs the lowest" if most > 1 else ""


def _product(row: Gemm, floors: Floors, lasting: float, which: str) -> Bar:
    """`lasting`: what the type reached in a long run, which may be of another shape; 0 where there was none."""
    speed, why, floor = known(row.tflops) or 0.0, row.attribution, floors.of_gemm(row)
    shape = row.shape.replace("×", "×\u200b")
    parts = [shape, which, f"long run {figure(lasting)}" if lasting > 0 else ""]
    whole = max(why.peak_tflops, speed) if why else None
    comparisons = [f"{_percent(why.percent_of_peak)} of {figure(why.peak_tflops)}"] if why else []
    return Bar(
        name=row.title,
        detail=", ".join(filter(None, parts)),
        value=figure(speed),
        unit=row.unit,
        percent=_share(speed, whole),
        floor=_share(floor.value, whole) if floor else None,
        comparison=", ".join([*comparisons, *_floor(floor, whole)]),
        below=_is_below(floor),
        losses=_losses(why, whole) if why and whole else (),
    )


def _losses(why: Attribution, whole: float) -> tuple[Lost, ...]:
    """From the peak down to what was measured; factors that made it faster than the model are left out."""
    losses, end = [], why.peak_tflops
    for factor in why.factors:
        start = end - factor.lost_tflops
        low = max(start, why.achieved_tflops)
        if factor.lost_tflops >= WORTH_A_BAR * why.peak_tflops and low < end:
            words = f"{factor.words}: −{figure(factor.lost_tflops)}"
            losses.append(Lost(f"l-{factor.name}", 100 * low / whole, 100 * min(end, why.peak_tflops) / whole, words))
        end = start
    return tuple(losses)


def _moved(row: Bandwidth, floor: Floor | None, which: str) -> Bar:
    speed, peak = known(row.gb_per_s) or 0.0, row.peak_gb_per_s
    whole = max(peak, speed) if peak else None
    parts = [f"{_percent(row.percent)} of {figure(peak)}"] if row.percent is not None else []
    return Bar(
        name=row.what,
        detail=which,
        value=figure(speed),
        unit="GB/s",
        percent=_share(speed, whole),
        floor=_share(floor.value, whole) if floor else None,
        comparison=", ".join([*parts, *_floor(floor, whole)]),
        below=_is_below(floor),
    )


def _limit(row: Series, floors: Floors) -> Floor | None:
    """In frames of this size; the check counts in pictures of 1080p."""
    floor = floors.of_series(row.subject)
    width, _, height = row.size.partition("×")
    if floor is None or not (width.isdigit() and height.isdigit() and int(width) and int(height)):
        return floor
    return Floor(floor.value * HD[0] * HD[1] / (int(width) * int(height)), floor.status)


def _streams(row: Series, of: list[Series], floor: Floor | None, top: float) -> Bar:
    fps, sessions = _fps(row) or 0.0, row.best.sessions if row.best else 0
    shown, least = apart(fps, floor.value if floor else fps, 0)
    parts = [f"{shown} fps with {sessions} session{'' if sessions == 1 else 's'}"]
    parts += [f"floor\u00a0{least}\u00a0fps"] if floor else []
    return Bar(
        name=row.name.replace(LARGER, ""),  # the chart's title has the size
        detail=_which(row, of, _fps),
        value=str(glance.streams(fps)),
        unit="streams",
        percent=_share(fps, top),
        floor=_share(floor.value, top) if floor else None,
        comparison=", ".join(parts),
        below=_is_below(floor),
    )


def _tflops(row: Gemm) -> float | None:
    return known(row.tflops)


def _gb_per_s(row: Bandwidth) -> float | None:
    return known(row.gb_per_s)


def _fps(row: Series) -> float | None:
    return row.best.fps if row.best else None


def _percent(share: float) -> str:
    return figures.percent(share).replace(" ", "\u00a0")


def _floor(floor: Floor | None, whole: float | None) -> list[str]:
    return [f"floor\u00a0{floor.percent}\u00a0%"] if floor and floor.percent and whole else []


def _is_below(floor: Floor | None) -> bool:
    return floor is not None and floor.status in PROBLEMS and floor.status is not Status.UNKNOWN


def _share(value: float, whole: float | None) -> float | None:
    """Per cent of the bar, from 0 to 100."""
    return min(100.0, max(0.0, 100.0 * value / whole)) if whole and whole > 0 else None


# ---------------------------------------------------------------- floors


NUMBER = r"(\d{1,9}(?:\.\d{1,6})?)"
SHARE = re.compile(rf"≥ ?{NUMBER} % of {NUMBER} (?:TFLOPS|TOPS|GB/s)\b")
RATE = re.compile(rf"at least {NUMBER} % [^%]{{0,200}}?of {NUMBER} fps\b")
SOUND = re.compile(rf", and {NUMBER} fps, ")  # below it a series is reported as slow
MOST_LETTERS = 500  # characters of a finding that are searched


@dataclass(frozen=True)
class Floor:
    value: float  # in the unit of the figure
    status: Status  # the check's result for the figure
    percent: str = ""  # of the peak, as the finding says it


class Floors:
    """The floors of one record, by subject and property of a finding."""

    def __init__(self, findings: Iterable[Finding]) -> None:
        self._by_key: dict[tuple[str, str], Floor] = {}
        for finding in findings:
            if (value := _read(finding.expected)) is not None:
                share = SHARE.search(finding.expected[:MOST_LETTERS])
                floor = Floor(value, finding.status, share[1] if share else "")
                self._by_key.setdefault((finding.subject, finding.property), floor)

    def of_gemm(self, row: Gemm, *, lasting: bool = False) -> Floor | None:
        sums = f"_accumulate_{row.accumulate}" if "+" in row.type else ""
        return self._by_key.get((f"gpu {row.gpu.index}", f"gemm_{row.dtype}{sums}{'_sustained' if lasting else ''}"))

    def of_bandwidth(self, row: Bandwidth) -> Floor | None:
        name = row.what.replace("device ", "memory_") if row.crosses == "memory" else row.what.replace(" ", "_")
        return self._by_key.get((f"gpu {row.gpu.index}", name))

    def of_series(self, subject: str) -> Floor | None:
        """Frames a second, in pictures of 1080p."""
        return self._by_key.get((subject, "fps"))


def _read(expected: str) -> float | None:
    """The floor that these words of a finding name; None where they name none."""
    words = expected[:MOST_LETTERS]
    if match := SHARE.search(words):
        return float(match[1]) / 100 * float(match[2])
    if match := RATE.search(words):
        share = float(match[1]) / 100 * float(match[2])
        healthy = SOUND.search(words)
        return max(share, float(healthy[1])) if healthy else share
    return None
