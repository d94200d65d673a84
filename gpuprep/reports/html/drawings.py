"""The charts and thumbnails of the page, each drawn twice: for a desktop's width and for a phone's."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from markupsafe import Markup

from gpuprep.records import OptStr, RunRecord, Status
from gpuprep.records.evidence.bandwidth import Bandwidth
from gpuprep.records.evidence.gemm import Gemm as GemmProbe
from gpuprep.records.evidence.gemm import GemmGpu
from gpuprep.records.evidence.shared import Telemetry
from gpuprep.records.evidence.transcode import Output
from gpuprep.reports import measured
from gpuprep.reports.html import roofline_chart, timeline_chart, waterfall_chart
from gpuprep.reports.html.svg import NARROW, WIDE, mark, picture
from gpuprep.reports.readings import answer, entries, figure, known
from gpuprep.reports.rows import Gemm

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
        drawn = _both(roofline_chart.draw, gpu, rows, made, memory)
        if drawn["wide"]:
            dtypes = dict.fromkeys(row.dtype for row in rows if row.attribution)
            marks = [(name, picture(16, 16, name, [mark(name, 8, 8, 5.5)])) for name in dtypes]
            drawings.append({**drawn, "name": gpu.name, "marks": marks, "convolutions": bool(made)})
    return drawings


def falls(record: RunRecord) -> list[dict[str, Any]]:
    """Waterfalls, a group a GPU: `cards` of the best product of each type, `others` of the rest, slow ones first."""
    rows = measured.gemms(record)
    telling = measured.telling(rows)
    fastest: dict[tuple[str, str], Gemm] = {}
    for row in telling:
        known_best = fastest.setdefault((row.gpu.label, row.type), row)
        if (known(row.tflops) or 0.0) > (known(known_best.tflops) or 0.0):
            fastest[row.gpu.label, row.type] = row
    groups: dict[str, dict[str, Any]] = {}
    for row in rows:
        for why, lasting in ((row.attribution, False), (row.lasting, True)):
            if why:
                group = groups.setdefault(row.gpu.label, {"label": row.gpu.label, "cards": [], "others": []})
                best = not lasting and fastest.get((row.gpu.label, row.type)) is row
                card = {"row": row, "why": why, "lasting": lasting, "chart": waterfall_chart.draw(why)}
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
        drawn = _both(timeline_chart.draw, telemetry, lines, title)
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
            # A command that did not complete has made nothing to look at.
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
