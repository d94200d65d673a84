"""How many bytes a parameter of a model takes: modelmemory.yml, with the sources."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from gpuprep.catalogue import datafile


@dataclass(frozen=True)
class Precision:
    """Bytes a parameter, and of one activation. None: nobody trains like that, or no source says how much it takes."""

    name: str
    words: str
    weights: float | None
    gradients: float | None
    inference: float
    activation: float

    @property
    def pure(self) -> bool:
        """Nothing is kept in FP32."""
        return self.weights is not None and self.weights < 4


@dataclass(frozen=True)
class Optimizer:
    name: str
    words: str
    bytes: float
    pure: float


@dataclass(frozen=True)
class Activations:
    """Of a layer of a transformer: what is kept for the backward pass."""

    values: float  # numbers kept for each s b h
    masks: float  # bytes
    score_values: float  # for each a s^2 b
    score_masks: float
    full_values: float  # where all of a layer is calculated again


@cache
def precisions() -> Mapping[str, Precision]:
    return {
        name: Precision(
            name, row["words"], row.get("weights"), row.get("gradients"), float(row["inference"]), row["activation"]
        )
        for name, row in _data()["precisions"].items()
    }


@cache
def optimizers() -> Mapping[str, Optimizer]:
    return {name: Optimizer(name, **row) for name, row in _data()["optimizers"].items()}


@cache
def activations() -> Activations:
    return Activations(**_data()["activations"])


def context_bytes() -> float:
    """What CUDA takes for its own kernels in each process."""
    return float(_data()["context_bytes"])


@cache
def _data() -> dict[str, Any]:
    return datafile.read(Path(__file__).parent / "modelmemory.yml")
