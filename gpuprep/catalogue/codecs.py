"""Rates of the video engines: what codecs.yml says of one GPU."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

# Presets between two of NVIDIA's table are judged by the slower one: a sound GPU reaches at least that.
SLOWER = {"p2": "p3", "p4": "p5", "p6": "p7"}


@dataclass(frozen=True)
class EngineRate:
    """`fps` of one engine at `reference_mhz`, by the table of `generation`."""

    fps: float
    reference_mhz: int
    generation: str
    share: float = 1.0  # what of it comes through FFmpeg

    def at(self, video_clock_mhz: float) -> float:
        """fps of one engine through FFmpeg at another video clock."""
        return self.share * self.fps * video_clock_mhz / self.reference_mhz


def engine_rate(compute_capability: str, kind: str, codec: str, preset: str | None = None) -> EngineRate | None:
    """`kind` "decode" or "encode" (then with a preset). None: NVIDIA publishes no figure that we know."""
    generation = _data()["engines"].get(compute_capability, {}).get(kind)
    if generation is None:
        return None
    table = _data()[kind][generation]
    fps = table.get(codec)
    if isinstance(fps, dict):
        fps = fps.get(SLOWER.get(str(preset), preset))
    if fps is None:
        return None
    return EngineRate(float(fps), table["reference_mhz"], generation, _data()["through_ffmpeg"].get(codec, 1.0))


@cache
def _data() -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load((Path(__file__).parent / "codecs.yml").read_text(encoding="utf-8"))
    return document
