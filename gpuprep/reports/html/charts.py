"""The charts and thumbnails of the page, each drawn twice: for a desktop's width and for a phone's."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from markupsafe import Markup

from gpuprep import catalogue
from gpuprep.performance import roofline
from gpuprep.performance.attribution import Attribution
from gpuprep.performance.clock_events import IDLE, named
from gpuprep.records import Missing, OptStr, RunRecord, Status
from gpuprep.records.evidence.bandwidth import Bandwidth
from gpuprep.records.evidence.gemm import Gemm as GemmProbe
from gpuprep.records.evidence.gemm import GemmGpu
from gpuprep.records.evidence.shared import Telemetry
from gpuprep.records.evidence.transcode import Output
from gpuprep.reports import figures, measured
from gpuprep.reports.html.svg import NARROW, WIDE, Scale, decades, el, line, mark, path, picture, spread, text, ticks
from gpuprep.reports.measured import Convolution, Gemm
from gpuprep.reports.readings import answer, entries, figure, known

# An image of the record itself, never an address: the page must not fetch anything.
IMAGE = re.compile(r"data:image/(?:jpeg|png|webp);base64,[A-Za-z0-9+/]+={0,2}")
Drawing = dict[str, Any]


def _both(draw: Callable[..., Markup | None], *arguments: object) -> Drawing:
    return {"wide": draw(*arguments, WIDE), "narrow": draw(*arguments, NARROW)}


def rooflines(record: RunRecord) -> list[Drawing]:
    """One for each model of GPU; several of a model share a plot."""
    models: dict[str, list[Gemm]] = {}
    for row in measured.gemms(record):
        models.setdefault(row.gpu.kind, []).append(row)
    drawings = []
    for kind, rows in models.items():
        gpu = rows[0].gpu.facts
        if gpu is None:
            continue
        read = [
            known(row.gb_per_s)
            for row in measured.bandwidths(record)
            if row.gpu.kind == kind and row.crosses == "memory"
        ]
        memory = max((value for value in read if value), default=None)
        made = [convolution for convolution in measured.convolutions(record) if convolution.gpu.kind == kind]
        drawn = _both(_roofline, gpu, rows, made, memory)
        if drawn["wide"]:
            dtypes = dict.fromkeys(row.dtype for row in rows if row.attribution)
            marks = [(name, picture(16, 16, name, [mark(name, 8, 8, 5.5)])) for name in dtypes]
            drawings.append({**drawn, "name": gpu.name, "marks": marks, "convolutions": bool(made)})
    return drawings


def falls(record: RunRecord) -> list[dict[str, Any]]:
    """Waterfalls, a group a GPU: `cards` of the best product of each type, `others` of the rest, slow ones first."""
    rows = measured.gemms(record)
    telling = measured.telling(rows)
    fastest = measured.fastest(telling, lambda row: (row.gpu.label, row.type))
    groups: dict[str, dict[str, Any]] = {}
    for row in rows:
        for why, lasting in ((row.attribution, False), (row.lasting, True)):
            if why:
                group = groups.setdefault(row.gpu.label, {"label": row.gpu.label, "cards": [], "others": []})
                best = not lasting and fastest.get((row.gpu.label, row.type)) is row
                card = {"row": row, "why": why, "lasting": lasting, "chart": _waterfall(why)}
                group["cards" if best else "others"].append(card)
    for group in groups.values():
        group["others"].sort(
            key=lambda card: not (card["lasting"] or any(card["row"] is product for product in telling))
        )
    return list(groups.values())


def timelines(record: RunRecord) -> list[Drawing]:
    """The longest load of each GPU, then its memory transfers."""
    longest: dict[str, tuple[str, Telemetry]] = {}
    for row in measured.gemms(record):
        if _lasted(row.telemetry) > _lasted(longest.get(row.gpu.label, ("", Telemetry()))[1]):
            longest[row.gpu.label] = (f"{row.title} {row.shape}", row.telemetry)
    moved = {
        measured.gpu_of(gpu).label: ("memory and link transfers", gpu.telemetry or Telemetry())
        for gpu in entries(answer(record, Bandwidth, "bandwidth").gpus)
    }
    of = {measured.gpu_of(gpu).label: gpu for gpu in entries(answer(record, GemmProbe, "gemm").gpus)}
    drawings = []
    for label, (what, telemetry) in [*longest.items(), *moved.items()]:
        around = of.get(label, GemmGpu())
        lines = {
            "graphics_clock_mhz": known(around.max_graphics_clock_mhz),
            "power_watts": known(around.power_limit_watts),
        }
        title = f"{label} during {what}, {_lasted(telemetry):.0f} s"
        drawn = _both(_timeline, telemetry, lines, title)
        if drawn["wide"]:
            drawings.append({**drawn, "title": title})
    return drawings


def _lasted(telemetry: Telemetry) -> float:
    seconds = [at for at in telemetry.seconds if at is not None]
    return max(seconds) - min(seconds) if seconds else 0.0


def transcodes(record: RunRecord) -> list[dict[str, Any]]:
    return [
        {
            "case": case,
            "skipped": case.status is Status.SKIP,
            # A command that did not complete has no picture to show.
            "outputs": [_output(output) for output in case.measured.outputs] if case.outcome == "completed" else [],
        }
        for case in measured.transcodes(record)
    ]


def _output(output: Output) -> dict[str, Any]:
    images = ((output.first_frame, "first"), (output.last_frame, "last"))
    frames = [(image, f"{which} frame of {output.name}") for image, which in images if IMAGE.fullmatch(image)]
    size = [figure(output.width, 0), figure(output.height, 0)]
    rate = output.bit_rate_kbps
    parts = [output.name, _text(output.codec), "×".join(size) if "–" not in size else ""]
    parts += [f"{figure(rate, 0)} kbit/s" if known(rate) is not None else "", _text(output.audio), output.error]
    return {"frames": frames, "words": ", ".join(part for part in parts if part)}


def _text(reading: OptStr) -> str:
    return reading if isinstance(reading, str) else ""


# ---------------------------------------------------------------- operations a second over operations a byte


MARGIN = 82  # for the names of the roofs


@dataclass(frozen=True)
class Roof:
    """Data types that calculate equally fast: at boost, and at the mean clock of their products."""

    dtypes: tuple[str, ...]
    tflops: float
    measured_tflops: float | None
    clock_mhz: float | None


def _roofline(
    gpu: catalogue.Board,
    gemms: Sequence[Gemm],
    convolutions: Sequence[Convolution],
    memory_gb_per_s: float | None,
    width: int,
) -> Markup | None:
    """`memory_gb_per_s` is the best that was measured. None: the catalogue lacks the peaks, or nothing was measured."""
    roofs, memory = _roofs(gpu, gemms), roofline.bandwidth(gpu)
    points = [(row.attribution.intensity, row) for row in gemms if row.attribution]
    if not roofs or isinstance(memory, Missing) or not points:
        return None
    hollow = [
        (convolution.intensity, known(convolution.measured.tflops), convolution.measured)
        for convolution in convolutions
    ]
    made = [(at, speed, case) for at, speed, case in hollow if at and speed and at >= 1.0]
    narrow = width < 500
    height = 340 if narrow else 460
    low = 10.0 ** math.floor(math.log10(min(1.0, *(at for at, _ in points))))
    high = 10.0 ** math.ceil(math.log10(max(*(at for at, _ in points), *(at for at, *_ in made), 1.0) * 1.2))
    bottom = (
        min(low * memory / 1e3, *(known(row.tflops) or 1.0 for _, row in points), *(speed for _, speed, _ in made))
        / 1.6
    )
    x = Scale(low, high, 38 if narrow else 52, width - MARGIN, log=True)
    y = Scale(bottom, roofs[0].tflops * 1.6, height - 40, 18, log=True)
    roofs = [roof for roof in roofs if roof.tflops > bottom]
    parts = _axes(x, y, narrow)
    ridge = roofline.ridge(roofs[0].tflops, memory)
    parts.append(_slope(x, y, low, min(ridge, high), memory, "roof memory", f"Memory, catalogue: {memory:.0f} GB/s"))
    turn = math.degrees(math.atan2(y(low * 10 * memory / 1e3) - y(low * memory / 1e3), x(low * 10) - x(low)))
    at = low * (2.2 if narrow else 1.6)
    parts.append(
        text(
            x(at), y(at * memory / 1e3) - 7, f"memory {memory:.0f} GB/s", "label",
            transform=f"rotate({turn:.1f} {x(at):.1f} {y(at * memory / 1e3) - 7:.1f})",
        )
    )  # fmt: skip
    if memory_gb_per_s:
        words = f"Memory, measured: {memory_gb_per_s:.0f} GB/s"
        parts.append(
            _slope(x, y, low, min(roofs[0].tflops * 1e3 / memory_gb_per_s, high), memory_gb_per_s, "roof seen", words)
        )
    places = spread([y(roof.tflops) for roof in roofs], 34, y.end, y.start - 16)
    for roof, place in zip(roofs, places, strict=True):
        parts += _ceiling(x, y, roof, memory, high)
        parts.append(text(x.end + 8, place - 1, ", ".join(roof.dtypes).upper(), "label strong"))
        parts.append(text(x.end + 8, place + 15, figure(roof.tflops), "tick"))
    for at, speed, case in made:
        words = f"Convolution {case.dtype.upper()} {case.layout} {case.shape}: {figure(speed)} TFLOPS"
        parts.append(mark(case.dtype, x(at), y(speed), 5.5, words, "hollow"))
    for at, row in points:
        parts.append(mark(row.dtype, x(at), y(max(known(row.tflops) or bottom, bottom)), 6.0, _product(row)))
    title = f"Roofline of the {gpu.name}: speed of each matrix product under what memory and units allow"
    return picture(width, height, title, parts)


def _roofs(gpu: catalogue.Board, gemms: Sequence[Gemm]) -> list[Roof]:
    groups: dict[int, list[roofline.Roof]] = {}
    for roof in roofline.roofs(gpu):
        groups.setdefault(round(roof.tflops), []).append(roof)
    roofs = []
    for group in groups.values():
        dtypes = tuple(peak.dtype for peak in group)
        read = [known(row.measured.graphics_clock_mhz) for row in gemms if row.dtype in dtypes]
        clocks = [clock for clock in read if clock]
        mean = sum(clocks) / len(clocks) if clocks else None
        seen = group[0].tflops * mean / group[0].clock_mhz if mean else None
        roofs.append(Roof(dtypes, group[0].tflops, seen, mean))
    return roofs


def _slope(x: Scale, y: Scale, start: float, end: float, gb_per_s: float, class_: str, words: str) -> Markup:
    ends = [(x(at), y(at * gb_per_s / 1e3)) for at in (start, end)]
    return path(ends, class_, el("title", words))


def _ceiling(x: Scale, y: Scale, roof: Roof, memory: float, high: float) -> list[Markup]:
    names = ", ".join(name.upper() for name in roof.dtypes)
    first = f"t-{roof.dtypes[0]}"
    start = max(x.low, roofline.ridge(roof.tflops, memory))
    parts = []
    if start < high:
        parts.append(
            line(
                x(start), y(roof.tflops), x(high), y(roof.tflops), f"roof {first}",
                el("title", f"{names}: {figure(roof.tflops)} at boost clock"),
            )
        )  # fmt: skip
    if roof.measured_tflops and roof.measured_tflops < 0.995 * roof.tflops:
        start = max(x.low, roofline.ridge(roof.measured_tflops, memory))
        height = y(roof.measured_tflops)
        words = f"{names}: {figure(roof.measured_tflops)} at the {roof.clock_mhz:.0f} MHz measured"
        if start < high:
            parts.append(line(x(start), height, x(high), height, f"roof seen {first}", el("title", words)))
    return parts


def _axes(x: Scale, y: Scale, narrow: bool) -> list[Markup]:
    parts = []
    for value in decades(x.low, x.high):
        parts.append(line(x(value), y.start, x(value), y.end, "grid"))
        parts.append(
            text(x(value), y.start + 16, f"{value:g}" if value < 1e4 else f"{value / 1e3:g}k", "tick", "middle")
        )
    for value in decades(y.low, y.high):
        parts.append(line(x.start, y(value), x.end, y(value), "grid"))
        parts.append(text(x.start - 6, y(value) + 4, f"{value:g}", "tick", "end"))
    parts.append(line(x.start, y.start, x.end, y.start, "axis"))
    words = "operations a byte of memory traffic"
    parts.append(text((x.start + x.end) / 2, y.start + 34, words, "tick", "middle"))
    parts.append(text(2, 10, "TFLOPS" if narrow else "TFLOPS (TOPS for INT8)", "tick"))
    return parts


def _product(row: Gemm) -> str:
    return (
        f"{row.gpu.label} {row.title} {row.shape}: {figure(row.tflops)} TFLOPS at "
        f"{figure(row.measured.graphics_clock_mhz, 0)} MHz, {figures.percent(row.percent)} of peak"
    )


# ---------------------------------------------------------------- clock, power and temperature over time


MOST_POINTS = 150
Points = list[tuple[float, float]]


def _timeline(telemetry: Telemetry, limits: dict[str, float | None], title: str, width: int) -> Markup | None:
    """`limits` is a line in the panel of that column. None: there are not two readings to draw."""
    seconds = telemetry.seconds
    panels = (  # column of the telemetry, title, class of style.css, readings
        ("graphics_clock_mhz", "SM clock, MHz", "clock", telemetry.graphics_clock_mhz),
        ("power_watts", "Power, W", "power", telemetry.power_watts),
        ("temperature_c", "Temperature, °C", "heat", telemetry.temperature_c),
    )
    columns = [(key, words, class_, _points(seconds, column)) for key, words, class_, column in panels]
    columns = [column for column in columns if len(column[3]) > 1]
    if not columns:
        return None
    last = max(points[-1][0] for *_, points in columns)
    first = min(0.0, *(points[0][0] for *_, points in columns))
    if last <= first:
        return None
    x = Scale(first, last, 40, width - 6)
    panel = 84 if width < 500 else 104
    parts: list[Markup] = []
    top = 0.0
    for key, words, class_, points in columns:
        parts += _panel(points, limits.get(key), Scale(first, last, 40, width - 6), top, panel, words, class_)
        top += panel + 12
    reasons = _reasons(seconds, telemetry.event_reasons)
    if any(words for *_, words in reasons):
        parts.append(text(40, top + 8, "NVML's reasons for the clock", "tick"))
        parts += _strip(reasons, x, top + 14)
        top += 44
    for value in ticks(first, last, 4 if width < 500 else 8):
        parts.append(text(x(value), top + 10, f"{value:g} s", "tick", "end" if value > last * 0.97 else "middle"))
    return picture(width, top + 16, title, parts)


def _points(seconds: Sequence[float | None], values: Sequence[float | None]) -> Points:
    read = [(at, value) for at, value in zip(seconds, values) if at is not None and value is not None]  # noqa: B905
    read.sort()
    size = max(1, -(-len(read) // MOST_POINTS))
    groups = [read[start : start + size] for start in range(0, len(read), size)]
    return [(sum(at for at, _ in g) / len(g), sum(value for _, value in g) / len(g)) for g in groups]


def _panel(
    points: Points, limit: float | None, x: Scale, top: float, height: float, words: str, class_: str
) -> list[Markup]:
    values = [value for _, value in points] + ([limit] if limit else [])
    low, high = min(values), max(values)
    # Noise must not look like a fall: the panel spans at least a fifth of the highest reading.
    room = max((high - low) * 0.12, (0.2 * abs(high) - (high - low)) / 2, 1.0)
    y = Scale(max(0.0, low - room) if low >= 0 else low - room, high + room, top + height, top + 18)
    parts = [text(x.start, top + 11, words, "label strong")]
    for value in ticks(y.low, y.high, 3):
        parts.append(line(x.start, y(value), x.end, y(value), "grid"))
        parts.append(text(x.start - 6, y(value) + 4, f"{value:g}", "tick", "end"))
    if limit:
        parts.append(line(x.start, y(limit), x.end, y(limit), "limit", el("title", f"limit {figure(limit, 0)}")))
        parts.append(text(x.end, y(limit) - 4, f"limit {figure(limit, 0)}", "tick", "end"))
    drawn = [(x(at), y(value)) for at, value in points]
    parts.append(path([(drawn[0][0], y.start), *drawn, (drawn[-1][0], y.start)], f"area s-{class_}"))
    ends = f"{words}: {figure(min(v for _, v in points), 0)} to {figure(max(v for _, v in points), 0)}"
    parts.append(path(drawn, f"line s-{class_}", el("title", ends)))
    return parts


def _reasons(seconds: Sequence[float | None], masks: Sequence[float | None]) -> list[tuple[float, float, str]]:
    """Stretches of one set of reasons: from, to, words."""
    read = [(at, int(mask)) for at, mask in zip(seconds, masks) if at is not None and mask is not None and mask >= 0]  # noqa: B905
    stretches = []
    for words, group in groupby(read, key=lambda one: ", ".join(reason.name for reason in named(one[1] & ~IDLE))):
        moments = [at for at, _ in group]
        stretches.append((moments[0], moments[-1], words))
    return [
        (start, stretches[i + 1][0] if i + 1 < len(stretches) else end, words)
        for i, (start, end, words) in enumerate(stretches)
    ]


def _strip(stretches: Sequence[tuple[float, float, str]], x: Scale, top: float) -> list[Markup]:
    parts = [el("rect", x=x.start, y=top, width=x.end - x.start, height=18, rx=3, class_="strip")]
    for start, end, words in stretches:
        if not words:
            continue
        left, right = x(start), max(x(end), x(start) + 2)
        title = el("title", f"{words}, {start:.1f} to {end:.1f} s")
        parts.append(el("rect", title, x=left, y=top, width=right - left, height=18, rx=3, class_="strip held"))
        if right - left > 7 * len(words):
            parts.append(text(left + 6, top + 13, words, "onheld"))
    return parts


# ---------------------------------------------------------------- from the peak, cause by cause


NAMES = {"clock": "clock", "bound": "memory", "tile": "tiles", "wave": "last wave",
         "alignment": "alignment", "kernel": "kernel"}  # fmt: skip
WIDTH, ROW, LABEL, VALUE = 300, 22, 66, 48
WORTH_A_BAR = 0.004  # of the peak


def _waterfall(why: Attribution) -> Markup:
    rows = [("peak", 0.0, why.peak_tflops, "peak", f"Peak: {why.formula}")]
    left = why.peak_tflops
    for factor in why.factors:
        after = left - factor.lost_tflops
        if abs(factor.lost_tflops) >= WORTH_A_BAR * why.peak_tflops:
            class_ = f"loss l-{factor.name}" if factor.lost_tflops > 0 else "gain"
            rows.append(
                (NAMES.get(factor.name, factor.name), after, left, class_, f"{factor.words}: ×{factor.value:.3f}")
            )
        left = after
    rows.append(("measured", 0.0, why.achieved_tflops, "achieved", "What was measured"))
    widest = max(max(start, end) for _, start, end, _, _ in rows)
    x = Scale(0.0, widest, LABEL + 8, WIDTH - VALUE)
    parts = []
    for number, (name, start, end, class_, words) in enumerate(rows):
        top = number * ROW
        lost = class_.startswith(("loss", "gain"))
        value = f"{'+' if class_ == 'gain' else '−' if lost else ''}{figure(abs(end - start))}"
        low, high = min(start, end), max(start, end)
        parts += [
            text(LABEL, top + 15, name, "label" if lost else "label strong", "end"),
            el("rect", el("title", words), x=x(low), y=top + 4, width=max(1.5, x(high) - x(low)), height=ROW - 7,
               rx=2, class_=class_),
            text(WIDTH, top + 15, value, "label" if lost else "label strong", "end"),
        ]  # fmt: skip
        if number + 1 < len(rows):
            at = x(min(start, end) if lost else end)
            parts.append(el("line", x1=at, x2=at, y1=top + ROW - 3, y2=top + ROW + 4, class_="grid"))
    title = f"Where the speed of {why.dtype.upper()} {why.m} by {why.n} by {why.k} went: {why.words}"
    return picture(WIDTH, len(rows) * ROW, title, parts)
