"""Clock, power and temperature over time, with NVML's reasons for a low clock beneath."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from markupsafe import Markup

from gpuprep.performance.clock_events import IDLE, named
from gpuprep.records.evidence.shared import Telemetry
from gpuprep.reports.html.svg import Scale, el, line, path, picture, text, ticks
from gpuprep.reports.readings import figure

MOST_POINTS = 150
Points = list[tuple[float, float]]


def draw(telemetry: Telemetry, limits: dict[str, float | None], title: str, width: int) -> Markup | None:
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
    # A tremble must not look like a fall: the panel spans a fifth of the highest reading at least.
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
    for words, group in groupby(read, key=lambda one: _reason_words(one[1])):
        moments = [at for at, _ in group]
        stretches.append((moments[0], moments[-1], words))
    return [
        (start, stretches[i + 1][0] if i + 1 < len(stretches) else end, words)
        for i, (start, end, words) in enumerate(stretches)
    ]


def _reason_words(mask: int) -> str:
    return ", ".join(reason.name for reason in named(mask & ~IDLE))


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
