"""Which data types the units of an architecture calculate with: precisions.yml."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from gpuprep.catalogue import datafile

# All that a board's page lists, the widest first.
DTYPES = ("fp64", "fp32", "tf32", "bf16", "fp16", "fp8", "fp6", "fp4", "int8", "int4", "int1")


@dataclass(frozen=True)
class Precisions:
    tensor: frozenset[str]  # of the Tensor Cores
    cuda: frozenset[str]  # of the CUDA cores
    unverified: bool  # inferred from the family, not read in a source


def precisions(compute_capability: str) -> Precisions | None:
    """None: no source names this capability."""
    entry = _data().get(compute_capability)
    if entry is None:
        return None
    return Precisions(frozenset(entry["tensor"]), frozenset(entry["cuda"]), entry.get("unverified", False))


@cache
def _data() -> dict[str, Any]:
    return datafile.read(Path(__file__).parent / "precisions.yml")
