"""What is known of one board: precisions and roofs, memory, links, power, video engines and streams.

    sheet(board)    `not_known` is what the catalogue lacks, `unverified` what was not read in a source

Roofs are SMs x FMA per clock and SM x 2 x clock (roofline.py). Streams are frames a second of NVIDIA's tables (Video
Codec SDK 13.0, application notes of NVENC and NVDEC), of one engine at its reference clock, scaled to the board's video
clock and engines, over the frames a second of a stream.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from gpuprep.catalogue import Board, boards, clouds, codecs, video
from gpuprep.catalogue.capabilities import DTYPES, precisions
from gpuprep.performance import roofline
from gpuprep.performance.roofline import Roof
from gpuprep.records import Missing

STREAM = (1920, 1080, 30)  # width, height and frames a second of a stream that is counted
DECODED = ("h264", "hevc", "hevc10", "vp9", "av1")
ENCODED = ("h264", "hevc", "av1")
PRESETS = ("p1", "p3", "p5", "p7")  # from the fastest to the best
# What a codec of the rates is called among the capabilities of an engine.
CAPABILITY = {"hevc10": "hevc.10bit"}
# What is named as not known if a sheet lacks it.
WANTED = {
    "sms": "the number of SMs", "boost_mhz": "the boost clock", "memory_gb_per_s": "the memory's bandwidth",
    "memory_mib": "the memory's size", "l2_mib": "the size of the L2 cache", "power_watts": "the power limit",
    "pcie_generation": "the PCIe link", "nvlink": "whether it has NVLinks", "video_mhz": "the highest video clock",
    "temperatures_c": "the temperatures at which it slows down",
}  # fmt: skip


@dataclass(frozen=True)
class PrecisionRow:
    """One data type. `tensor` and `cuda`: whether such units calculate with it; None: no source says."""

    dtype: str
    tensor: bool | None
    cuda: bool | None
    roof: Roof | None  # at the boost clock; None: no units, or no rate in the catalogue
    ridge: float | None  # operations a byte above which memory is no limit
    floor_percent: float | None  # of the roof, what a healthy board must reach
    words: str  # "" or why there is no roof


@dataclass(frozen=True)
class StreamRow:
    """Streams of STREAM that all engines of the board can decode or encode at a time; None: not known."""

    kind: str  # "decode" | "encode"
    codec: str
    preset: str | None
    fps: float | None  # of all engines
    streams: int | None
    words: str  # "1 engine x 771 fps x 1470 of 1860 MHz", or why it is not known


@dataclass(frozen=True)
class Sheet:
    board: Board
    siblings: tuple[str, ...]  # keys of the other boards of this model
    precisions: tuple[PrecisionRow, ...]
    nvenc: tuple[str, ...] | None  # what the encoders can do: "hevc.10bit"; None: not known
    nvdec: tuple[str, ...] | None
    streams: tuple[StreamRow, ...]
    pcie_gb_per_s: float | None  # one direction, after line coding
    images: tuple[str, ...]  # which images of systems do not start on which cloud machines with it
    not_known: tuple[str, ...]
    unverified: tuple[str, ...]


def sheet(board: Board) -> Sheet:
    missing = [words for name, words in WANTED.items() if getattr(board, name) is None]
    if board.model.nvenc_engines is None:
        missing.append("how many video encoders it has")
    if board.model.nvdec_engines is None:
        missing.append("how many video decoders it has")
    able = video.capabilities(board.model.key)
    if able is None:
        missing.append("what its video engines can do")
    return Sheet(
        board=board,
        siblings=tuple(
            key for key, other in boards().items() if other.model.key == board.model.key and key != board.key
        ),
        precisions=tuple(_precision(board, dtype) for dtype in DTYPES),
        nvenc=_of(able, "nvenc."),
        nvdec=_of(able, "nvdec."),
        streams=_streams(board, able),
        pcie_gb_per_s=pcie_gb_per_s(board),
        images=clouds.images(board.key),
        not_known=tuple(missing),
        unverified=(*board.unverified, *board.model.unverified),
    )


def _of(able: frozenset[str] | None, kind: str) -> tuple[str, ...] | None:
    return None if able is None else tuple(sorted(name.removeprefix(kind) for name in able if name.startswith(kind)))


def _precision(board: Board, dtype: str) -> PrecisionRow:
    rates = board.model.fma_per_clock_per_sm
    known = precisions(board.model.compute_capability)
    tensor = f"tensor_{dtype}" in rates or (dtype in known.tensor if known else None)
    cuda = dtype in rates or (dtype in known.cuda if known else None)
    if known is None and rates:  # no table names this architecture: what has no rate is not known
        tensor, cuda = tensor or None, cuda or None
    roof = roofline.roof(board, dtype)
    memory = roofline.bandwidth(board)
    if isinstance(roof, Missing):
        words = (
            "no units: emulated or not available" if tensor is False and cuda is False else "no rate in the catalogue"
        )
        return PrecisionRow(dtype, tensor, cuda, None, None, None, words)
    ridge = None if isinstance(memory, Missing) else roofline.ridge(roof.tflops, memory)
    floor = board.floors.get("fp64_tensor" if roof.unit == "tensor_fp64" else dtype)
    return PrecisionRow(dtype, tensor, cuda, roof, ridge, floor.percent if floor else None, "")


def _streams(board: Board, able: frozenset[str] | None) -> tuple[StreamRow, ...]:
    rows = [_stream(board, able, "decode", codec, None) for codec in DECODED]
    rows += [_stream(board, able, "encode", codec, preset) for codec in ENCODED for preset in PRESETS]
    return tuple(row for row in rows if row is not None)


def _stream(board: Board, able: frozenset[str] | None, kind: str, codec: str, preset: str | None) -> StreamRow | None:
    """None: the engines cannot do it at all."""
    model = board.model
    engines = model.nvdec_engines if kind == "decode" else model.nvenc_engines
    side = "nvdec" if kind == "decode" else "nvenc"
    if engines == 0 or (able is not None and f"{side}.{CAPABILITY.get(codec, codec)}" not in able):
        return None
    rate = codecs.engine_rate(model.compute_capability, kind, codec, preset)

    def unknown(why: str) -> StreamRow:
        return StreamRow(kind, codec, preset, None, None, why)

    if able is None:
        return unknown("what its engines can do is not known")
    if engines is None:
        return unknown("the number of its engines is not known")
    if rate is None:
        return unknown("NVIDIA's table has no such rate")
    if board.video_mhz is None:
        return unknown("its video clock is not known")
    fps = rate.fps * engines * board.video_mhz / rate.reference_mhz
    plural = "engine" if engines == 1 else "engines"
    words = f"{engines} {plural} x {rate.fps:g} fps x {board.video_mhz} of {rate.reference_mhz} MHz"
    return StreamRow(kind, codec, preset, fps, math.floor(fps / STREAM[2]), words)


def pcie_gb_per_s(board: Board) -> float | None:
    """GB/s of one direction: lanes x giga-transfers a second x 128/130 (8/10 before generation 3) / 8."""
    transfers = {1: 2.5 * 0.8, 2: 5 * 0.8, 3: 8 * 128 / 130, 4: 16 * 128 / 130, 5: 32 * 128 / 130, 6: 64 * 242 / 256}
    if board.pcie_generation not in transfers or not board.pcie_width:
        return None
    return transfers[board.pcie_generation] * board.pcie_width / 8
