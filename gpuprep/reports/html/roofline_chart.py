"""The roofline plot: operations a second over operations a byte, both logarithmic, with every probe on it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from gpuprep import catalogue
from gpuprep.performance import roofline
from gpuprep.records import Missing
from gpuprep.reports import figures
from gpuprep.reports.html.svg import Scale, decades, el, line, mark, path, picture, spread, text
from gpuprep.reports.readings import figure, known
from gpuprep.reports.rows import Convolution, Gemm

MARGIN = 82  # for the names of the roofs


@dataclass(frozen=True)
class Roof:
    """Data types that calculate equally fast: at boost, and at the mean clock of their products."""

    dtypes: tuple[str, ...]
    tflops: float
    measured_tflops: float | None
    clock_mhz: float | None


def draw(
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
        parts.append(mark(row.dtype, x(at), y(max(known(row.tflops) or bottom, bottom)), 6.0, _words(row)))
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


def _words(row: Gemm) -> str:
    return (
        f"{row.gpu.label} {row.title} {row.shape}: {figure(row.tflops)} TFLOPS at "
        f"{figure(row.measured.graphics_clock_mhz, 0)} MHz, {figures.percent(row.percent)} of peak"
    )
