"""Aggregate throughput over the number of sessions: where the lines turn flat, the engines are full."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from gpuprep.reports.html.svg import Scale, el, line, path, picture, spread, text, ticks
from gpuprep.reports.readings import figure
from gpuprep.reports.rows import Series

COLORS = 7  # series-0 … of style.css


def draw(every: Sequence[Series], width: int) -> Markup | None:
    """None where no series has a figure."""
    shown = [(number % COLORS, series) for number, series in enumerate(every) if series.steps]
    if not shown:
        return None
    narrow = width < 500
    longest = max(len(series.name) for _, series in shown)
    most = max(step.sessions for _, series in shown for step in series.steps)
    fastest = max(step.fps for _, series in shown for step in series.steps)
    if fastest <= 0 or most < 1:
        return None
    height = 250 if narrow else 320
    right = min(width * 0.4, longest * (6.2 if narrow else 6.8) + 14)
    x = Scale(0.0, float(most), 46, width - right)
    y = Scale(0.0, fastest * 1.05, height - 40, 20)
    parts = [text(2, 11, "frames a second, all sessions together", "tick")]
    for value in ticks(0, y.high, 4):
        parts.append(line(x.start, y(value), x.end, y(value), "grid"))
        parts.append(text(x.start - 6, y(value) + 4, f"{value:g}", "tick", "end"))
    for value in ticks(0, most, 4 if narrow else 8):
        if value == int(value):
            parts.append(text(x(value), y.start + 16, f"{value:g}", "tick", "middle"))
    parts.append(text((x.start + x.end) / 2, y.start + 34, "sessions", "tick", "middle"))
    for count in sorted({series.engines for _, series in shown if series.engines}):
        if count <= most:
            title = el("title", f"{count} sessions keep all engines at work")
            parts.append(line(x(count), y.start, x(count), y.end + 14, "limit", title))
            parts.append(text(x(count), y.end + 10, f"{count} fill the engines", "tick", "middle"))
    ends = spread([y(max(series.steps, key=_by).fps) for _, series in shown], 15, y.end, y.start)
    for (color, series), end in zip(shown, ends, strict=True):
        steps = sorted(series.steps, key=_by)
        points = [(x(step.sessions), y(step.fps)) for step in steps]
        parts.append(path(points, f"line series-{color}", el("title", series.name)))
        for (left, top), step in zip(points, steps, strict=True):
            words = f"{series.name}, {step.sessions} sessions: {figure(step.fps, 0)} fps"
            parts.append(el("circle", el("title", words), cx=left, cy=top, r=3.5, class_=f"dot series-{color}"))
        parts.append(path([points[-1], (x.end + 4, end), (x.end + 9, end)], f"leader series-{color}"))
        parts.append(text(x.end + 12, end + 4, series.name, "label"))
    parts.append(line(x.start, y.start, x.end, y.start, "axis"))
    return picture(width, height, "Frames a second of all sessions together, over the number of sessions", parts)


def _by(step: object) -> int:
    return getattr(step, "sessions", 0)
