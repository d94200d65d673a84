"""How many streams does a GPU carry, what is the limit, and what does the catalogue expect? By measured figures.

    rows(values, boards)    a Row for each series that was measured or tried

A stream is 30 pictures per second: streams = floor(frames per second / 30), for the number of sessions with the highest
speed. Nothing is estimated: a series that was not measured has `streams` None and the reason in `why`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gpuprep.agent.video.ffmpegerrors import cause
from gpuprep.agent.video.throughputplan import HARDER, KINDS, LARGER, PRESETS
from gpuprep.catalogue import Board
from gpuprep.catalogue.codecs import engine_rate
from gpuprep.checks.links import carries
from gpuprep.records import Missing
from gpuprep.records.evidence import Figure
from gpuprep.records.evidence.throughput import Latency, Pcie, Quality, Series, Step, Throughput, ThroughputGpu

STREAM_FPS = 30  # of one stream: broadcast and most cameras
FULL = 90.0  # per cent of the time an engine was at work: NVML's reading never reaches 100 for long
LINK_FULL = 80.0  # per cent of what generation and width carry: copies reach no more
MEMORY_FULL = 95.0
BELOW = 0.9  # of the catalogue's streams: fewer are reported
SIDES = {"decode": ("decode",), "encode": ("encode",), "transcode": ("decode", "encode")}
ENGINES = ("NVDEC", "NVENC")
UNKNOWN = "UNKNOWN"


@dataclass(frozen=True)
class Reading:
    """Utilisation of one part in per cent. `percent` None: not read, `why` has the reason."""

    part: str  # "NVDEC", "NVENC", "SM", "memory", "PCIe", "CPU"
    percent: float | None
    full: float
    why: str = ""


@dataclass(frozen=True)
class Row:
    """Result for one kind of work."""

    gpu: int | None
    kind: str
    codec: str
    preset: str
    size: str  # "1080p", "4K"
    fps: float | None
    sessions: int | None
    streams: int | None  # None: not measured, `why` says why
    limit: str  # the part that was full, or UNKNOWN
    evidence: tuple[Reading, ...]
    expected: int | None  # streams by the catalogue; None: it has no figure
    below: bool  # far below the catalogue's figure
    why: str
    can: bool  # False: this GPU cannot do it at all, in the driver's own words
    latency: Latency | None = None
    quality: Quality | None = None

    @property
    def name(self) -> str:
        return " ".join(part for part in (self.kind, self.codec, self.preset) if part)

    @property
    def limit_words(self) -> str:
        """ "NVDEC (98 %)", or all readings if nothing was full."""
        if self.streams is None:
            return ""
        full = next((load for load in self.evidence if load.part == self.limit), None)
        if full is not None and full.percent is not None:
            return f"{self.limit} ({full.percent:.0f} %)"
        if self.limit != UNKNOWN:
            return self.limit
        read = [f"{load.part} {load.percent:.0f} %" for load in self.evidence if load.percent is not None]
        return f"{UNKNOWN}: none was full ({', '.join(read)})" if read else f"{UNKNOWN}: NVML gave no reading"


def rows(values: Throughput, boards: Mapping[int | None, Board | None]) -> list[Row]:
    """The rows of all series, sorted by GPU, kind, codec, preset and size. `boards`: by index of the GPU."""
    listed = [gpu for gpu in (values.gpus or ((values.gpu,) if values.gpu else ())) if isinstance(gpu, ThroughputGpu)]
    by_index = {gpu.index: gpu for gpu in listed}
    table = []
    for series in values.series:
        named = series.gpu if isinstance(series.gpu, ThroughputGpu) else values.gpu
        index = named.index if named else None
        gpu = by_index.get(index, ThroughputGpu())
        first = listed[0].index if listed else None
        table.append(_row(values if index == first else Throughput(), series, gpu, index, boards.get(index)))
    place = {kind: number for number, kind in enumerate(KINDS)}
    codecs = {codec: number for number, codec in enumerate(dict.fromkeys(row.codec for row in table))}
    return sorted(
        table,
        key=lambda row: (
            row.gpu or 0, place.get(row.kind, len(place)), codecs[row.codec], row.preset not in PRESETS,
            PRESETS.index(row.preset) if row.preset in PRESETS else 0, row.size == "4K",
        ),
    )  # fmt: skip


def _row(values: Throughput, series: Series, gpu: ThroughputGpu, index: int | None, board: Board | None) -> Row:
    best = max(
        (step for step in series.steps if _number(step.fps)), key=lambda step: _number(step.fps) or 0.0, default=None
    )
    fps = _number(best.fps) if best else None
    large = series.codec.endswith(LARGER)
    codec = series.codec.removesuffix(LARGER)
    limit, evidence = _limit(series, best, gpu) if best else ("", ())
    streams = None if fps is None else int(fps // STREAM_FPS)
    expected = catalogue_streams(series.kind, series.codec, series.preset, board)
    known = cause(series.decisive_line)
    denied = known is not None and bool(known.denies) and fps is None
    why = "" if fps is not None else _why(series)
    return Row(
        gpu=index,
        kind=series.kind or "?",
        codec=codec,
        preset=series.preset,
        size="4K" if large else "1080p",
        fps=fps,
        sessions=best.sessions if best else None,
        streams=streams,
        limit=limit,
        evidence=evidence,
        expected=expected,
        below=streams is not None and expected is not None and streams < math.floor(BELOW * expected),
        why=f"{known.meaning} ({why})" if denied and known else why,
        can=not denied,
        latency=_same(values.latency, series),
        quality=None if large else next(
            (measured for measured in values.quality if series.kind in ("encode", "software") and (measured.codec,
            measured.preset)
             == (codec, series.preset) and measured.encoder.endswith("_nvenc") == (series.kind == "encode")), None),
    )  # fmt: skip


def _same(every: Sequence[Latency], series: Series) -> Latency | None:
    key = (series.kind, series.codec, series.preset)
    return next((series for series in every if (series.kind, series.codec, series.preset) == key), None)


def _why(series: Series) -> str:
    words = {
        "no_time": "the time limit was reached before it began",
        "not_built": "this FFmpeg has no such part",
        "not_run": "it was not run",
    }
    return series.decisive_line or words.get(series.outcome, "no session delivered a picture")


def _limit(series: Series, best: Step, gpu: ThroughputGpu) -> tuple[str, tuple[Reading, ...]]:
    """(the part that was full, all readings). Priority: what ended sessions early, then the video engines, then other
    parts.
    """
    died = best.died_because if isinstance(best.died, int) and best.died else ""
    died = died or next((step.died_because for step in series.steps if step.died_because), "")
    evidence = _evidence(series, best, gpu)
    if died and (known := cause(died)) is not None and "session" in known.meaning:
        return "sessions (the driver takes no more, or the GPU's memory is full)", evidence
    full = [load for load in evidence if load.percent is not None and load.percent >= load.full]
    if not full:
        return UNKNOWN, evidence
    # NVML reports busy SMs while any kernel runs: on a real H100, seven NVDEC at 97 % came with "SM 99 %".
    engines = [load for load in full if load.part in ENGINES]
    return max(engines or full, key=lambda load: (load.percent or 0.0) / load.full).part, evidence


def _evidence(series: Series, best: Step, gpu: ThroughputGpu) -> tuple[Reading, ...]:
    readings = [_reading("NVDEC", best.decoder_utilization_percent)]
    if series.kind not in ("decode", "download", "software"):
        readings.append(_reading("NVENC", best.encoder_utilization_percent))
    readings.append(_reading("SM", best.gpu_utilization_percent))
    readings.append(_share("memory", best.memory_used_mib, gpu.memory_total_mib, MEMORY_FULL))
    link = _link_mb_per_s(gpu)
    crossing = [_number(best.pcie_to_gpu_mb_per_s), _number(best.pcie_from_gpu_mb_per_s)]
    most = max((rate for rate in crossing if rate is not None), default=None)
    worth: Figure = best.pcie_from_gpu_mb_per_s if most is None else most
    readings.append(_share("PCIe", worth, link, LINK_FULL))
    readings.append(_reading("CPU", best.cpu_percent))
    return tuple(readings)


def _reading(part: str, value: Figure, full: float = FULL) -> Reading:
    number = _number(value)
    return Reading(part, number, full, _reason(value) if number is None else "")


def _share(part: str, value: Figure, whole: Figure, full: float) -> Reading:
    amount, all_of_it = _number(value), _number(whole)
    if amount is None or not all_of_it:
        return Reading(part, None, full, _reason(value) or _reason(whole) or "not recorded")
    return Reading(part, 100 * amount / all_of_it, full)


def _link_mb_per_s(gpu: ThroughputGpu) -> Figure:
    link = gpu.pcie if isinstance(gpu.pcie, Pcie) else Pcie()
    gb_per_s = carries(link.max_generation, link.max_width)
    return 1000 * gb_per_s if gb_per_s else Missing("not_recorded", "the link's generation and width")


def _number(value: Figure | int | None) -> float | None:
    """The value if it is a finite number of at least 0, else None."""
    if value is None or isinstance(value, Missing) or not math.isfinite(value) or value < 0:
        return None
    return float(value)


def _reason(value: Figure | None) -> str:
    return f"{value.reason.replace('_', ' ')}: {value.detail}".rstrip(": ") if isinstance(value, Missing) else ""


def catalogue_streams(kind: str, codec: str, preset: str, board: Board | None) -> int | None:
    """Streams by NVIDIA's rate x engines at the board's highest video clock; None if a figure is missing."""
    if board is None or board.video_mhz is None or codec in HARDER or kind not in SIDES:
        return None
    most = []
    for side in SIDES[kind]:
        source = "h264" if side == "decode" and kind == "transcode" else codec.removesuffix(LARGER)
        count = board.model.nvdec_engines if side == "decode" else board.model.nvenc_engines
        rate = engine_rate(board.model.compute_capability, side, source, preset or None)
        if rate is None or not count:
            return None
        most.append(count * rate.at(board.video_mhz))
    return math.floor(min(most) / (4 if codec.endswith(LARGER) else 1) / STREAM_FPS)
