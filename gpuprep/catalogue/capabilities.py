"""What every GPU of one compute capability can do: capabilities.yml.

kernel("9.0", "tensor_bf16")     what cuBLAS's kernels of this unit reach on healthy boards: a Kernel, or None
precisions("9.0")                the data types of its units: a Precisions, or None
engines("9.0")                   the generation of its video engines: {"decode": "turing"}
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from gpuprep.catalogue import datafile

# All data types that a board's page lists, the widest first.
DTYPES = ("fp64", "fp32", "tf32", "bf16", "fp16", "fp8", "fp6", "fp4", "int8", "int4", "int1")


@dataclass(frozen=True)
class Kernel:
    """Shares of the peak at the clock, 0 to 1, of large aligned products."""

    sound: float
    least: float
    source: str

    def expected(self, seconds: float) -> float:
        """What a healthy board reaches with a product that takes `seconds` without its launch."""
        return self.sound * seconds / (seconds + overhead_seconds())


@dataclass(frozen=True)
class Precisions:
    tensor: frozenset[str]  # of the Tensor Cores
    cuda: frozenset[str]  # of the CUDA cores
    unverified: bool  # inferred from the family, not read in a source


@cache
def kernel(compute_capability: str, unit: str) -> Kernel | None:
    entry = _of(compute_capability).get("kernels", {}).get(unit)
    return Kernel(entry["sound"] / 100, entry["least"] / 100, entry["source"]) if entry else None


def precisions(compute_capability: str) -> Precisions | None:
    """None: no source names this capability."""
    entry = _of(compute_capability).get("precisions")
    if entry is None:
        return None
    return Precisions(frozenset(entry["tensor"]), frozenset(entry["cuda"]), entry.get("unverified", False))


def engines(compute_capability: str) -> Mapping[str, str]:
    """By "encode" and "decode"; a kind whose rates nobody read is left out. The rates are in codecs.yml."""
    generations: dict[str, str] = _of(compute_capability).get("engines", {})
    return generations


def overhead_seconds() -> float:
    """What each product waits for its launch."""
    return float(_data()["overhead_microseconds"]) / 1e6


def _of(compute_capability: str) -> dict[str, Any]:
    entry: dict[str, Any] = _data()["capabilities"].get(compute_capability, {})
    return entry


@cache
def _data() -> dict[str, Any]:
    return datafile.read(Path(__file__).parent / "capabilities.yml")
