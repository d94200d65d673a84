"""What the video engines of a GPU can do: video.yml."""

from __future__ import annotations

from dataclasses import dataclass
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


def takes(model: str, option: str) -> bool | None:
    """Whether NVENC of a model does what an option asks for ("nvenc.h264.refs"); None for what is no such option."""
    codec, _, what = option.removeprefix("nvenc.").partition(".")
    if what not in ("refs", "interlaced", "lossless", "weighted_pred"):
        return None
    return f"{codec}.{what}" not in _data()["refused"].get(_data()["models"][model]["nvenc"], [])


@dataclass(frozen=True)
class Sizes:
    """The pictures that an encoder takes."""

    least: tuple[int, int]
    most: tuple[int, int]

    def fit(self, width: int | None, height: int | None) -> bool:
        """Whether such pictures may be encoded; None is a side that is not known."""
        sides = zip((width, height), self.least, self.most, strict=True)
        return all(side is None or least <= side <= most for side, least, most in sides)


def encoded_sizes(codec: str, model: str | None = None) -> list[Sizes]:
    """Of each generation of NVENC, or of a model's; [] if nobody read it."""
    engine = None if model is None else _data()["models"][model]["nvenc"]
    tables = [table for name, table in _data()["sizes"].items() if engine in (None, name)]
    return [Sizes(tuple(table[codec][:2]), tuple(table[codec][2:])) for table in tables if codec in table]


@cache
def _data() -> dict[str, Any]:
    return datafile.read(Path(__file__).parent / "video.yml")
