"""Decision trees trained with measured products: they correct the formula of productmodel.yml. learned/*.json.gz.

tests/support/fitshapes.py writes these files. `performance/learned.py` says what the features are.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from gpuprep.catalogue import datafile

FOLDER = Path(__file__).parent / "learned"
# Types that share their kernels share what was learned; the last feature tells them apart.
SHARED = {"bf16": ("half", 0), "fp16": ("half", 1)}


@dataclass(frozen=True)
class Band:
    """Errors for products that the fit did not have: nine in ten of `shapes` are within `percent`."""

    shapes: int
    percent: float
    within_10: float  # share of them within 10 %


@dataclass(frozen=True)
class Trees:
    """The sum of many trees. A node goes left where its feature is at most its threshold; below 0 a node is a leaf."""

    start: float
    trees: tuple[tuple[list[int], list[float], list[int], list[int], list[float]], ...]

    def value(self, features: Sequence[float]) -> float:
        total = self.start
        for feature, threshold, left, right, leaves in self.trees:
            node = 0
            while node >= 0:
                node = left[node] if features[feature[node]] <= threshold[node] else right[node]
            total += leaves[~node]
        return total


def group(dtype: str) -> tuple[str, int]:
    """(name of its file, its number in it)."""
    return SHARED.get(dtype, (dtype, 0))


@cache
def trees(dtype: str) -> Trees | None:
    """None: nothing was learned of this type."""
    path = FOLDER / f"{group(dtype)[0]}.json.gz"
    if not path.is_file():
        return None
    document = json.loads(gzip.decompress(path.read_bytes()))
    return Trees(float(document["start"]), tuple(tuple(tree) for tree in document["trees"]))


@cache
def band(dtype: str, kind: str) -> Band | None:
    """`kind`: "aligned", "misaligned", "skinny" or "short" (predict.kind_of). None without trees: a host has none."""
    if trees(dtype) is None:
        return None
    entry = errors().get(dtype, {}).get(kind)
    return None if entry is None else Band(**entry)


@cache
def errors() -> dict[str, Any]:
    return datafile.read(FOLDER / "errors.yml")
