"""Limits of a healthy GPU, and how each board's memory is protected: health.yml.

limit("retired_pages")      more than this is a fault
plausible("pages")          a reading outside of this is no reading
repairs(model)              "rows", "pages" or "" (nobody knows)
contains(model)             whether an uncorrectable error ends only the programs that met it
ecc(model)                  "enabled" | "disabled" | "none" | "" as its boards ship
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from gpuprep.catalogue import datafile
from gpuprep.catalogue.boards import Model


@dataclass(frozen=True)
class Plausible:
    least: float
    most: float


def limit(name: str) -> float:
    return float(_data()["limits"][name]["value"])


def plausible(name: str) -> Plausible:
    return Plausible(**_data()["plausible"][name])


def repairs(model: Model | None) -> str:
    """How a defective place of the memory is replaced: "rows" (spare rows), "pages" (given up), "" where unknown."""
    if model is None or ecc(model) == "none" or model.key in _data()["undocumented"]:
        return ""
    return next((how for how, architectures in _data()["repairs"].items() if model.architecture in architectures), "")


def contains(model: Model | None) -> bool:
    return model is not None and model.key in _data()["contains"]


def ecc(model: Model | None) -> str:
    if model is None:
        return ""
    return next((mode for mode, models in _data()["ecc"].items() if model.key in models), "")


def free_clocks(model: Model) -> bool:
    """Whether its boards' highest clock is far above the boost clock."""
    return model.key in _data()["free_clocks"]


@cache
def _data() -> dict[str, Any]:
    return datafile.read(Path(__file__).parent / "health.yml")
