"""Drawing: SVG elements with escaped words, scales and round ticks. Colours are classes of style.css."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

# Width in CSS pixels that a chart is drawn for: beside a desktop's margins, and on a phone of 390 pixels.
WIDE, NARROW = 1000, 326
# Each data type has a mark of its own, for readers who cannot see the colours: corners, and turn in degrees.
MARKS = {
    "fp64": (4, 45), "fp32": (0, 0), "tf32": (3, 0), "fp16": (4, 0), "bf16": (3, 180), "int8": (5, 0), "fp8": (6, 0),
}  # fmt: skip


def el(name: str, *children: str | Markup, **attributes: object) -> Markup:
    """One element. `_` in an attribute's name is `-`, `class_` is class; None leaves an attribute out."""
    # A page has thousands of these: joining escaped texts is many times as fast as Markup.format.
    shown = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(_short(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    inner = "".join(map(escape, children))
    return Markup(f"<{name}{shown}>{inner}</{name}>" if inner else f"<{name}{shown}/>")


def _short(value: object) -> object:
    return f"{value:.1f}".removesuffix(".0") if isinstance(value, float) else value


def picture(width: float, height: float, title: str, children: Sequence[Markup], class_: str = "") -> Markup:
    """A whole SVG that screen readers announce by its title."""
    return el(
        "svg",
        el("title", title),
        *children,
        viewBox=f"0 0 {width:g} {height:g}",
        role="img",
        aria_label=title,
        class_=f"chart {class_}".strip(),
        xmlns="http://www.w3.org/2000/svg",
    )


def text(x: float, y: float, words: str, class_: str = "", anchor: str = "start", **more: object) -> Markup:
    return el("text", words, x=x, y=y, class_=class_ or None, text_anchor=anchor, **more)


def path(points: Sequence[tuple[float, float]], class_: str, *children: Markup) -> Markup:
    drawn = "M" + "L".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return el("path", *children, d=drawn, class_=class_)


def line(x1: float, y1: float, x2: float, y2: float, class_: str, *children: Markup) -> Markup:
    return el("line", *children, x1=x1, y1=y1, x2=x2, y2=y2, class_=class_)


def mark(dtype: str, x: float, y: float, size: float, title: str = "", more: str = "") -> Markup:
    corners, turn = MARKS.get(dtype, (0, 0))
    words = [el("title", title)] if title else []
    class_ = f"mark t-{dtype if dtype in MARKS else 'other'} {more}".strip()
    if corners == 0:
        return el("circle", *words, cx=x, cy=y, r=size, class_=class_)
    radius = size * 1.25
    angles = [math.radians(turn - 90 + 360 * corner / corners) for corner in range(corners)]
    points = " ".join(f"{x + radius * math.cos(angle):.1f},{y + radius * math.sin(angle):.1f}" for angle in angles)
    return el("polygon", *words, points=points, class_=class_)


@dataclass(frozen=True)
class Scale:
    """Values from `low` to `high` onto pixels from `start` to `end`."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        if self.log:
            share = math.log(max(value, 1e-12) / self.low) / math.log(self.high / self.low)
        else:
            share = (value - self.low) / (self.high - self.low)
        return self.start + (self.end - self.start) * share


def ticks(low: float, high: float, about: int = 4) -> list[float]:
    """Round numbers from `low` to `high`, steps of 1, 2 or 5."""
    rough = (high - low) / max(1, about)
    unit = 10.0 ** math.floor(math.log10(rough))
    step = next((unit * factor for factor in (1, 2, 5, 10) if unit * factor >= rough), unit * 10)
    first = math.ceil(low / step - 1e-9)
    return [step * n for n in range(first, int(high / step + 1e-9) + 1)]


def decades(low: float, high: float) -> list[float]:
    return [10.0**n for n in range(math.ceil(math.log10(low) - 1e-9), math.floor(math.log10(high) + 1e-9) + 1)]


def spread(wanted: Sequence[float], apart: float, low: float, high: float) -> list[float]:
    """Places near the `wanted` ones, in the same order and at least `apart` where there is room."""
    order = sorted(range(len(wanted)), key=lambda i: wanted[i])
    placed = list(wanted)
    floor = low
    for i in order:
        placed[i] = max(placed[i], floor)
        floor = placed[i] + apart
    ceiling = high
    for i in reversed(order):
        placed[i] = min(placed[i], ceiling)
        ceiling = placed[i] - apart
    return placed
