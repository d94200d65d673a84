"""What the video engines of a GPU can do: video.yml."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from gpuprep.catalogue import datafile


def capabilities(model: str) -> frozenset[str] | None:
    """ "nvenc.h264.b_frames", "nvdec.vp9" … of a model's key ("t4"). None: the catalogue does not know the model."""
    engines = _data()["models"].get(model)
    if engines is None:
        return None
    return frozenset(f"{kind}.{name}" for kind in ("nvenc", "nvdec") for name in _data()[kind][engines[kind]])


def is_verified(model: str, capability: str) -> bool:
    """Whether a source says it about exactly this chip; otherwise it was inferred from a related chip."""
    inferred = _data()["unverified"].get(model, [])
    return capability not in inferred and capability.partition(".")[0] not in inferred


def most_b_frames(model: str, codec: str) -> int | None:
    """B-frames in a row that NVENC of a model makes; None: not known."""
    limit: int | None = _data()["most_b_frames"].get(_data()["models"][model]["nvenc"], {}).get(codec)
    return limit


def encoded_sizes(codec: str) -> tuple[int, int, int, int] | None:
    """Least width and height, most width and height of pictures that NVENC encodes; None: not known."""
    limits = _data()["sizes"].get(codec)
    return None if limits is None else (limits[0], limits[1], limits[2], limits[3])


@cache
def _data() -> dict[str, Any]:
    return datafile.read(Path(__file__).parent / "video.yml")
