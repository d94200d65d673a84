"""Rates of the video engines: what codecs.yml says of one GPU."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from gpuprep.catalogue import datafile
from gpuprep.catalogue.capabilities import engines

# Presets between two of NVIDIA's table are judged by the slower one: a healthy GPU reaches at least that.
SLOWER = {"p2": "p3", "p4": "p5", "p6": "p7"}
FASTER = {"p2": "p1", "p4": "p3", "p6": "p5"}


@dataclass(frozen=True)
class EngineRate:
    """`fps` of one engine at `reference_mhz`, by the table of `generation`."""

    fps: float
    reference_mhz: int
    generation: str
    share: float = 1.0  # what of it comes through FFmpeg
    own_clip: float | None = None  # what of it gpuprep's own clip reaches on healthy boards; None: not measured
    most_fps: float = 0.0  # at the same clock: no clip and no tuning gives more

    def at(self, video_clock_mhz: float) -> float:
        """fps of one engine through FFmpeg at another video clock."""
        return self.share * self.fps * video_clock_mhz / self.reference_mhz

    def most_at(self, video_clock_mhz: float) -> float:
        """fps above which a measurement of one engine cannot be true."""
        return self.most_fps * video_clock_mhz / self.reference_mhz


def engine_rate(compute_capability: str, kind: str, codec: str, preset: str | None = None) -> EngineRate | None:
    """`kind` "decode" or "encode" (then with a preset). None: no figure of NVIDIA with its clock was read."""
    data = _data()
    generation = engines(compute_capability).get(kind)
    if generation is None:
        return None
    table, own = data[kind][generation], data["harder"].get(codec, codec)
    fps, clock = _of(table.get(own), SLOWER.get(str(preset), preset)), table.get("reference_mhz")
    if fps is None or clock is None:
        return None
    fastest = [fps]
    if kind == "encode":
        quick = FASTER.get(str(preset), preset)
        others = (_of(rows.get(own), quick) for rows in (table, data["low_latency"][generation]))
        fastest += [other for other in others if other is not None]
    return EngineRate(
        fps, clock, generation, data["through_ffmpeg"].get(codec, 1.0),
        data["own_clips"].get(compute_capability, {}).get(codec) if kind == "decode" else None,
        data["most"] * max(fastest),
    )  # fmt: skip


def most_engines(kind: str) -> int:
    """Of one kind on any board: the limit where the number of a board is not known."""
    count: int = _data()["most_engines"][kind]
    return count


def _of(row: Any, preset: str | None) -> float | None:
    """A cell of a table: by preset where the table has presets."""
    fps = row.get(preset) if isinstance(row, dict) else row
    return None if fps is None else float(fps)


@cache
def _data() -> dict[str, Any]:
    return datafile.read(Path(__file__).parent / "codecs.yml")
