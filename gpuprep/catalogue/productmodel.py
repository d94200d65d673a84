"""What a library's matrix products reach, by data type and alignment: productmodel.yml, fitted to measured products."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from gpuprep.catalogue import datafile


@dataclass(frozen=True)
class Kernels:
    """The kernels for one data type and alignment. Cycles are those of one SM, clocks shares of the boost clock."""

    tiles: tuple[tuple[int, int], ...]  # rows and columns of the result that a block calculates
    splits: tuple[int, ...]  # into how many parts the library cuts k
    sm_share: float  # of the SMs that get tiles smaller than 256x128: their clusters of blocks leave some without
    efficiency: float  # of the units' rate, in the inner loop
    load: float  # cycles for each byte of a tile's rows and columns, each step of k
    start: float  # cycles before the first and after the last step
    store: float  # cycles for each element of a tile that is written
    step: float  # cycles that one step of k takes at least, whatever the tile
    step_sides: float  # and more, for a tile whose rows and columns together are 256
    step_bytes: int  # k is rounded up to so many bytes
    resident: int  # elements of results that an SM holds at once, if tiles are small
    overlap: bool  # whether loading hides behind calculating, and the longer of both counts
    split: float  # cycles more where k is cut
    split_store: float  # cycles more for each element of a part's result, shared by all SMs
    rows_16: float  # share of time more where rows are a multiple of 16 bytes, and not of 32
    rows_32: float  # the same of 32 bytes, and not of 64
    launch_us: float  # microseconds before and between kernels
    memory: float  # share of the memory's bandwidth that is reached
    written: float  # bytes that are read in the time of one that is written
    sharpness: float  # how sharply the slower of memory and math decides: the exponent of their norm
    clock_idle: float  # the clock is clock_idle - clock_math x (units at work)^2 - clock_memory x (bandwidth in use)
    clock_math: float
    clock_memory: float


@dataclass(frozen=True)
class Measured:
    """Where the figures come from."""

    board: str  # a key of the catalogue's boards
    words: str  # "H100 SXM5 80 GB, cuBLAS 13.1.0"
    frameworks: str  # where products were timed as a framework gets them
    short_us: float  # the errors of shorter products stand apart: their start weighs most


@cache
def measured() -> Measured:
    return Measured(**_data()["measured"])


@cache
def kernels(dtype: str, alignment: int) -> Kernels | None:
    """`alignment`: of how many bytes the matrices' rows are multiples, at most 16. None: no such type was measured."""
    classes: Mapping[int, dict[str, Any]] = _data()["kernels"].get(dtype, {})
    fitting = [least for least in classes if least <= alignment]
    if not fitting:
        return None
    entry = dict(classes[max(fitting)])
    tiles = tuple(_tile(words) for words in str(entry.pop("tiles")).split())
    splits = tuple(int(parts) for parts in str(entry.pop("splits")).split())
    clock = _data()["clock"][dtype][max(fitting)]
    exact: dict[str, Any] = {name: entry.pop(name) for name in ("step_bytes", "resident", "overlap")}
    figures: dict[str, Any] = {name: float(value) for name, value in entry.items()}
    return Kernels(
        tiles=tiles, splits=splits, clock_idle=clock[0], clock_math=clock[1], clock_memory=clock[2], **exact, **figures
    )


@cache
def tiles_of(architecture: str) -> tuple[tuple[int, int], ...] | None:
    """Tiles of an architecture whose kernels were not measured; None: those of the measured one."""
    words = _data()["tiles"].get(architecture)
    return None if words is None else tuple(map(_tile, words.split()))


def unmeasured_percent(short: bool) -> float:
    """The error that is stated without a measurement: on another board, or (`short`) for a short product."""
    return float(_data()["unmeasured_percent"]["short" if short else "board"])


def unmeasured_words() -> str:
    """What the band of another board rests on."""
    return str(_data()["unmeasured_percent"]["words"])


def attention_share(architecture: str) -> tuple[float, str] | None:
    """(share of the roof that a fused kernel reaches, its source); None: no source."""
    entry = _data()["attention"].get(architecture)
    return None if entry is None else (float(entry["share"]), str(entry["source"]))


def _tile(words: str) -> tuple[int, int]:
    rows, _, columns = words.partition("x")
    return int(rows), int(columns)


@cache
def _data() -> dict[str, Any]:
    return datafile.read(Path(__file__).parent / "productmodel.yml")


# ---------------------------------------------------------------- learned corrections

# Decision trees trained with measured products: they correct the formula of productmodel.yml. learned/*.json.gz.
#
# tests/support/fitshapes.py writes these files. `performance/learned.py` says what the features are.


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
