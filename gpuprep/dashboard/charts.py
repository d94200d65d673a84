"""The dashboard's drawings, made of the parts of the reports' drawings. Colours are classes of the two style sheets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from markupsafe import Markup

from gpuprep.dashboard.speeds import Series
from gpuprep.records import Status
from gpuprep.records.findings import PROBLEMS
from gpuprep.reports.html.svg import NARROW, WIDE, Scale, el, line, path, picture, text, ticks
from gpuprep.reports.readings import figure
from gpuprep.untrusted.plaintext import one_line

STACK = tuple(status.value for status in (Status.PASS, *reversed(PROBLEMS)))  # from the bottom
SPARK = (96, 22)
CELL = 9  # px of a check in a row of many


def both(draw: Callable[..., Markup], *arguments: Any) -> dict[str, Markup]:
    """For a desktop's width and for a phone's."""
    return {"wide": draw(*arguments, WIDE), "narrow": draw(*arguments, NARROW)}


def spark(series: Series, words: str) -> Markup:
    """A small line from the first night to the last, in the range of its values."""
    width, height = SPARK
    values = [value for _, value in series]
    low, high = min(values), max(values)
    # A range of less than a twentieth is noise: it is not drawn as mountains.
    spare = max(0.0, high * 0.05 - (high - low)) / 2
    at_y = Scale(low - spare, high + spare, height - 4.0, 4.0)
    at_x = _days(series, 3.0, width - 3.0)
    points = [(at_x(float(day.toordinal())), at_y(value)) for day, value in series]
    drawn = [path(points, "line series-0")] if len(points) > 1 else []
    last = points[-1]
    return _drawn(
        width, height, words, [*drawn, el("circle", cx=last[0], cy=last[1], r=2.5, class_="dot series-0")], "spark"
    )


def over_time(series: Series, unit: str, certified: float | None, words: str, width: int) -> Markup:
    """One figure by night, from zero, with what the host was certified with as a dashed line."""
    height, left, right, top, bottom = 190, 52, 16, 14, 28
    values = [value for _, value in series]
    top_value = max([*values, certified or 0.0]) * 1.08 or 1.0
    at_y = Scale(0.0, top_value, height - bottom, top)
    at_x = _days(series, left + 8.0, width - right - 4.0)
    drawn: list[Markup] = []
    for value in ticks(0.0, top_value):
        drawn.append(line(left, at_y(value), width - right, at_y(value), "grid"))
        drawn.append(text(left - 6, at_y(value) + 4, figure(value, None if value else 0), "tick", "end"))
    points = [(at_x(float(day.toordinal())), at_y(value)) for day, value in series]
    if certified:
        drawn.append(line(left, at_y(certified), width - right, at_y(certified), "limit"))
    if len(points) > 1:
        drawn.append(path(points, "line series-0"))
    for (day, value), (x, y) in zip(series, points, strict=True):
        drawn.append(
            el("circle", el("title", f"{day}: {figure(value)} {unit}"), cx=x, cy=y, r=3, class_="dot series-0")
        )
    drawn.append(text(left, height - 8, str(series[0][0]), "tick"))
    if len(series) > 1:
        drawn.append(text(width - right, height - 8, str(series[-1][0]), "tick", "end"))
    return _drawn(width, height, words, drawn)


def _drawn(width: float, height: float, words: str, children: Sequence[Markup], class_: str = "") -> Markup:
    """`words` may come from a host: escape them here, because templates do not escape drawings again."""
    return picture(width, height, one_line(words), children, class_)


def _days(series: Series, start: float, end: float) -> Scale:
    first, last = series[0][0].toordinal(), series[-1][0].toordinal()
    return Scale(float(first), float(max(last, first + 1)), start, end)


def stacked(nights: Sequence[tuple[str, Mapping[str, int]]], words: str, width: int) -> Markup:
    """A bar a night, oldest first: how many hosts ended how."""
    height, left, right, top, bottom = 210, 46, 10, 12, 28
    most = max((sum(counts.values()) for _, counts in nights), default=0) or 1
    at_y = Scale(0.0, float(most), height - bottom, top)
    room = (width - left - right) / max(1, len(nights))
    drawn: list[Markup] = []
    for value in ticks(0.0, float(most)):
        if value == int(value):
            drawn.append(line(left, at_y(value), width - right, at_y(value), "grid"))
            drawn.append(text(left - 6, at_y(value) + 4, f"{value:.0f}", "tick", "end"))
    for place, (day, counts) in enumerate(nights):
        below = 0
        counts_text = ", ".join(f"{counts[word]} {word}" for word in STACK if counts.get(word))
        for word in STACK:
            if count := counts.get(word, 0):
                high, low = at_y(float(below + count)), at_y(float(below))
                box = {"x": left + place * room + room * 0.12, "y": high, "width": room * 0.76, "height": low - high}
                drawn.append(el("rect", el("title", f"{day}: {counts_text}"), class_=f"v-{word}", **box))
                below += count
    every = max(1, round(70 / room))
    for place in range(0, len(nights), every):
        drawn.append(text(left + (place + 0.5) * room, height - 8, nights[place][0][5:], "tick", "middle"))
    return _drawn(width, height, words, drawn)


def checks(words: Sequence[str], description: str) -> Markup:
    """A row of cells, oldest first: how one check ended in each run; "" where it passed or was not made."""
    drawn = [
        el("rect", x=place * CELL + 0.5, y=2, width=CELL - 1, height=14, rx=1.5, class_=f"v-{word or 'none'}")
        for place, word in enumerate(words)
    ]
    return _drawn(max(1, len(words)) * CELL, 18, description, drawn, "checks")
