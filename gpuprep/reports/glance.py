"""The few figures that people look for first: best speed of each data type, memory, streams of video. Never judges."""

from __future__ import annotations

from gpuprep import catalogue
from gpuprep.checks.judges.gemm.clock import NO_REASON
from gpuprep.checks.judges.throughput.capacity import STREAM_FPS
from gpuprep.records import RunRecord
from gpuprep.reports import measured
from gpuprep.reports.measured import Bandwidth, Gemm, Series
from gpuprep.reports.readings import figure, known

Pairs = list[tuple[str, str]]


def lines(record: RunRecord) -> Pairs:
    """A name and its figures, of one GPU; with several, columns.py has them side by side."""
    return [*_instance(record), *_products(record), *_memory(record), *_video(record)]


def streams(fps: float) -> int:
    """Whole streams of 30 frames per second."""
    return int(fps // STREAM_FPS)


def _instance(record: RunRecord) -> Pairs:
    """Which part of a GPU that MIG cuts was measured."""
    gpus = [row.gpu for row in measured.gemms(record)] + [row.gpu for row in measured.bandwidths(record)]
    names = dict.fromkeys(gpu.name for gpu in gpus if catalogue.INSTANCE.search(gpu.name))
    return [("of an instance", ", ".join(names))] if names else []


def _products(record: RunRecord) -> Pairs:
    rows = list(measured.fastest(measured.gemms(record), lambda row: row.type).values())
    floats = ", ".join(f"{row.type} {figure(row.tflops)}" for row in rows if row.dtype != "int8")
    whole = ", ".join(f"{row.type} {figure(row.tflops)}" for row in rows if row.dtype == "int8")
    pairs = [(unit, speeds) for unit, speeds in (("best TFLOPS", floats), ("best TOPS", whole)) if speeds]
    return pairs + _slowed(rows)


def _slowed(rows: list[Gemm]) -> Pairs:
    """What lowered the clock in the product that lost most speed by it; in the long run if there was one."""
    clocks = [(why.factor("clock"), row) for row in rows if (why := row.lasting or row.attribution)]
    lowest, row = min(clocks, key=lambda one: one[0].value, default=(None, None))
    if lowest is None or row is None or lowest.value >= NO_REASON:
        return []
    return [("slowed by", f"{lowest.words} in {row.type}")]


def _memory(record: RunRecord) -> Pairs:
    rows = [row for row in measured.bandwidths(record) if row.crosses != "peer" and known(row.gb_per_s) is not None]
    shown = ", ".join(f"{_short(row)} {figure(row.gb_per_s)}" for row in rows if row.what != "device triad")
    return [("GB/s", shown)] if shown else []


def _short(row: Bandwidth) -> str:
    return row.what.removeprefix("device ") if row.crosses == "memory" else row.what


def _video(record: RunRecord) -> Pairs:
    if record.command == "capacity":  # its tables stand right below
        return []
    by_kind: dict[tuple[str, str], list[Series]] = {}
    for row in measured.throughputs(record):
        if row.best:
            by_kind.setdefault((row.kind, row.size), []).append(row)
    pairs = []
    for (kind, size), rows in by_kind.items():
        series = [_series(row, place) for place, row in enumerate(rows)]
        pairs.append((kind, f"{', '.join(series)}{f' ({size})' if size else ''}"))
    return pairs


def _series(row: Series, place: int) -> str:
    """ "h264 4993 fps = 166 streams of 30 fps"; the next ones shorter."""
    fps = row.best.fps if row.best else 0.0
    name = " ".join(part for part in (row.codec, row.preset) if part)
    if not place:
        return f"{name} {fps:.0f} fps = {streams(fps)} streams of {STREAM_FPS} fps"
    return f"{name} {fps:.0f} = {streams(fps)}"
