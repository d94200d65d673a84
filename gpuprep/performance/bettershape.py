"""Shapes near a matrix product that a board calculates faster, larger or smaller, as predict.py has them.

near(prediction)    at most one larger and one smaller shape, each with what it gives
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import product as combinations

from gpuprep.performance import gemm_shapes, predict
from gpuprep.performance.gemm_shapes import Shape
from gpuprep.performance.predict import Prediction
from gpuprep.records import Missing

WORTH = 1.05  # a smaller gain is not named
LEAST_WORK = 0.7  # of the operations, a smaller shape keeps at least
MOST_WORK = 1.5


@dataclass(frozen=True)
class Better:
    shape: Shape
    direction: str  # "larger" | "smaller"
    prediction: Prediction
    gain: float  # its TFLOPS / those of the asked shape
    time_ratio: float  # its time / that of the asked shape: below 1, even padded data are done sooner


def near(asked: Prediction) -> tuple[Better, ...]:
    """Nothing for a convolution, whose dimensions depend on each other, nor for the products of an attention."""
    if asked.operation.kind != "product":
        return ()
    operation = asked.operation
    needed, best = gemm_shapes.alignment(asked.dtype, asked.board.model.compute_capability)
    by_direction: dict[str, Better] = {}
    rows, columns = asked.tiled.tile_m, asked.tiled.tile_n
    choices = (
        _steps(operation.m, needed, best, rows),
        _steps(operation.n, needed, best, columns),
        _steps(operation.k, needed, best, best),
    )
    for shape in combinations(*choices):
        sizes = list(zip(shape, (operation.m, operation.n, operation.k), strict=True))
        if all(a == b for a, b in sizes):
            continue
        larger, smaller = all(a >= b for a, b in sizes), all(a <= b for a, b in sizes)
        work = math.prod(shape) / (operation.m * operation.n * operation.k)
        if not (larger or smaller) or not LEAST_WORK <= work <= MOST_WORK:
            continue
        there = predict.predict(asked.board, replace(operation, m=shape[0], n=shape[1], k=shape[2]), asked.dtype)
        if isinstance(there, Missing):
            continue
        better = Better(
            shape, "larger" if larger else "smaller", there, there.tflops / asked.tflops, there.seconds / asked.seconds
        )
        known = by_direction.get(better.direction)
        if min(better.gain, _by_formula(asked, there)) < WORTH or (larger and better.time_ratio >= 1):
            continue
        if known is None or _worth(better) > _worth(known):
            by_direction[better.direction] = better
    return tuple(by_direction.values())


def _by_formula(asked: Prediction, there: Prediction) -> float:
    """The gain by the formula alone: a shape that is faster only by a quirk of the library is no advice."""
    return there.operation.operations / asked.operation.operations * asked.formula_seconds / there.formula_seconds


def _worth(better: Better) -> float:
    """A larger shape is worth the time that it saves, a smaller one its speed; both less if much is changed."""
    gain = 1 / better.time_ratio if better.direction == "larger" else better.gain
    distance = abs(math.log(better.gain * better.time_ratio))  # of the operations
    return math.log(gain) - 0.1 * distance


def _steps(size: int, needed: int, best: int, tile: int) -> tuple[int, ...]:
    """This size, and the multiples just below and above it of what counts: 16 bytes, 128 bytes, the tile."""
    sizes = {size}
    for multiple in {needed, best, tile}:
        down, up = size // multiple * multiple, math.ceil(size / multiple) * multiple
        sizes |= {up, down} if down else {up}
    return tuple(sorted(sizes))


def tile_words(prediction: Prediction) -> str:
    """ "33x17 tiles of 128x256, split in 2 along k" """
    tiled, operation = prediction.tiled, prediction.operation
    rows, columns = math.ceil(operation.m / tiled.tile_m), math.ceil(operation.n / tiled.tile_n)
    many = f"{operation.batch} x " if operation.batch > 1 else ""
    split = f", split in {tiled.split_k} along k" if tiled.split_k > 1 else ""
    return f"{many}{rows}x{columns} of {tiled.tile_m}x{tiled.tile_n}{split}: {tiled.tiles} in all"
