"""Limits of a healthy GPU, and how its memory is repaired: health.yml.

limit("retired_pages")      more than this is a fault
plausible("pages")          a reading outside of this is no reading
repairs(model)              "rows", "pages" or "" (nobody knows)
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
    if model is None or model.ecc == "none" or not model.memory_repair_known:
        return ""
    return next((how for how, architectures in _data()["repairs"].items() if model.architecture in architectures), "")


@cache
def _data() -> dict[str, Any]:
    return datafile.read(Path(__file__).parent / "health.yml")
