"""What cuBLAS's kernels reach on healthy boards: kernels.yml.

kernel("9.0", "tensor_bf16")     the Kernel of a compute capability and unit, or None
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from gpuprep.catalogue import datafile


@dataclass(frozen=True)
class Kernel:
    """Shares of the peak at the clock, 0 to 1, of large aligned products."""

    sound: float
    least: float
    source: str

    def expected(self, seconds: float) -> float:
        """What a healthy board reaches with a product that takes `seconds` without its launch."""
        return self.sound * seconds / (seconds + overhead_seconds())


@cache
def kernel(compute_capability: str, unit: str) -> Kernel | None:
    entry = _data()["kernels"].get(compute_capability, {}).get(unit)
    return Kernel(entry["sound"] / 100, entry["least"] / 100, entry["source"]) if entry else None


def overhead_seconds() -> float:
    """What each product waits for its launch."""
    return float(_data()["overhead_microseconds"]) / 1e6


@cache
def _data() -> dict[str, Any]:
    return datafile.read(Path(__file__).parent / "kernels.yml")
