"""The loss waterfall of one matrix product: from the peak, cause by cause, down to what was measured."""

from __future__ import annotations

from markupsafe import Markup

from gpuprep.performance.attribution import Attribution
from gpuprep.reports.html.svg import Scale, el, picture, text
from gpuprep.reports.readings import figure

NAMES = {"clock": "clock", "bound": "memory", "tile": "tiles", "wave": "last wave",
         "alignment": "alignment", "kernel": "kernel"}  # fmt: skip
WIDTH, ROW, LABEL, VALUE = 300, 22, 66, 48
WORTH_A_BAR = 0.004  # of the peak


def draw(why: Attribution) -> Markup:
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
