"""The frame rate of work on a GPU's video engines, shared among all that runs there now.

A session cannot exceed one engine; sessions share the engines evenly. Rates are of 1080p and grow with the clock.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

PRESETS = (1, 3, 5, 7)  # those that the table of sim/gpus.yml names; the even ones lie between
PIXELS_1080P = 1920 * 1080
EFFICIENCY = 0.97  # of the table, with every engine busy


@dataclass(frozen=True)
class Work:
    """The load of one session on the engines. `encode`: encoded frames per decoded frame; 0: it only decodes."""

    decode_codec: str = ""  # a key of the decode table, "" where nothing is decoded on the GPU
    encode_codec: str = ""
    preset: int = 4
    width: int = 1920
    height: int = 1080
    encode: float = 0.0
    delivered: float = 0.0  # pictures of the first output per decoded one; 0: as many as are encoded, or decoded


@dataclass(frozen=True)
class Rate:
    """`fps`: frames that leave the session a second; percent: its part of all the GPU's engines of a kind."""

    fps: float
    decoder_percent: float
    encoder_percent: float


def engine_fps(work: Work, video: Mapping[str, Any], clock_mhz: int) -> tuple[float, float]:
    """(decoded, encoded) frames a second that one engine of each kind makes of this work; 0 where it has none."""
    size = PIXELS_1080P / max(work.width * work.height, 1)
    decode, encode = video.get("decode", {}), video.get("encode", {})
    decoded = decode.get(work.decode_codec, 0) * clock_mhz / decode.get("reference_mhz", 1)
    rates = encode.get(work.encode_codec)
    encoded = _at_preset(rates, work.preset) * clock_mhz / encode["reference_mhz"] if rates else 0.0
    return decoded * size * EFFICIENCY, encoded * size * EFFICIENCY


def _at_preset(rates: Sequence[float], preset: int) -> float:
    below = max(index for index, number in enumerate(PRESETS) if number <= max(preset, 1))
    if PRESETS[below] >= preset or below + 1 == len(PRESETS):
        return rates[below]
    return (rates[below] + rates[below + 1]) / 2


def rate(work: Work, video: Mapping[str, Any], clock_mhz: int, decoding: int, encoding: int) -> Rate:
    """`decoding`, `encoding`: sessions on the GPU that use each kind of engine, this one among them."""
    decoded, encoded = engine_fps(work, video, clock_mhz)
    decoders, encoders = int(video.get("decoders", 0)), int(video.get("encoders", 0))
    limits = []
    if work.decode_codec:
        limits.append(decoded * min(1.0, decoders / max(decoding, 1)))
    if work.encode:
        limits.append(encoded * min(1.0, encoders / max(encoding, 1)) / work.encode)
    pictures = min(limits, default=0.0)
    return Rate(
        fps=pictures * (work.delivered or work.encode or 1.0),
        decoder_percent=100 * pictures / (decoded * decoders) if decoded and decoders else 0.0,
        encoder_percent=100 * pictures * work.encode / (encoded * encoders) if encoded and encoders else 0.0,
    )
