"""Corrects the formula of predict.py by what was learned from measured products (catalogue/productmodel.py).

    ratio(features(kernels, product, "bf16", sms, rate, Formula(...), Way()), "bf16")    measured / expected time

A library chooses among hundreds of kernels by rules that are not published, and one more column may make it choose
another. No formula has these rules; decision trees trained with thousands of measured shapes have many of them. They
were trained on the logarithm of measured / expected time, and do not apply to larger sizes than those that were
measured.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from gpuprep.catalogue.productmodel import Kernels, group, trees
from gpuprep.performance import tiles
from gpuprep.performance.operations import LAYOUTS, Operation
from gpuprep.performance.roofline import INPUT_BYTES, OUTPUT_BYTES
from gpuprep.performance.tiles import Tiled

LARGEST = 16_384  # rows or columns that were measured
LAYOUT = LAYOUTS["tn"]  # of the measured matrices
# Tiles for which each product has a feature: how it fits them.
TILES = (
    (256, 128), (128, 256), (128, 128), (64, 64), (64, 256), (256, 64), (128, 64), (64, 128), (32, 32), (64, 32),
    (192, 128),
)  # fmt: skip
QUEUED = ((256, 64), (128, 128), (64, 64), (64, 256), (256, 128))
START, STORE = 600, 200  # of k: about what the start of a tile, and its end, take


@dataclass(frozen=True)
class Way:
    """How a product was measured: by the first algorithm that cuBLAS names, as frameworks take it, or the fastest of
    some; with operands that no cache holds, or with the same ones again.
    """

    first: bool = True
    warm: bool = False


@dataclass(frozen=True)
class Formula:
    """What the formula has of a product: microseconds."""

    microseconds: float
    calculating: float
    loading: float
    aligned: float  # the whole, were its rows multiples of 16 bytes
    tiled: Tiled


def known(operation: Operation) -> bool:
    """Such products were measured: single ones of this layout, not larger than these."""
    single = operation.kind == "product" and operation.batch == 1 and operation.aligned is None
    return single and operation.rows == LAYOUT and max(operation.m, operation.n, operation.k) <= LARGEST


def ratio(numbers: list[float], dtype: str) -> float:
    """Measured time / time by the formula, as learned; 1.0 where nothing was learned."""
    learned = trees(dtype)
    return 1.0 if learned is None else math.exp(learned.value(numbers))


def features(
    kernels: Kernels, operation: Operation, dtype: str, sms: int, rate: float, formula: Formula, way: Way
) -> list[float]:
    """Numbers of a product, in the order that the trees know."""
    m, n, k = operation.m, operation.n, operation.k
    inputs, output = INPUT_BYTES[dtype], OUTPUT_BYTES[dtype]
    log = math.log2
    numbers: list[float] = [log(m), log(n), log(k), log(m) + log(n), log(m) - log(n), log(m) + log(n) + log(k)]
    numbers += [log(m) - log(k), log(n) - log(k)]
    numbers += [math.gcd(k * inputs, 128), math.gcd(m * output, 128), math.gcd(n * output, 128)]
    numbers += [math.gcd(k * inputs, m * output, 16), math.gcd(m, 256), math.gcd(n, 256), math.gcd(k, 256)]
    numbers += [operation.intensity(dtype), k % 64, k % 128, m % 128, n % 128]
    numbers += [log(formula.microseconds), log(formula.calculating), log(formula.loading)]
    best = formula.tiled
    numbers += [best.tile_m, best.tile_n, best.split_k, best.rounds, log(formula.aligned / formula.microseconds)]
    whole, cut = [], []
    for tile in TILES:
        uncut, other = tiles.tiled(kernels, operation, dtype, sms, rate, tile)
        whole.append(uncut.cycles)
        cut.append(other.cycles)
    numbers += [log(cycles / min(whole)) for cycles in whole] + [log(cycles / min(cut)) for cycles in cut]
    numbers.append(log(min(whole) / min(cut)))
    for rows, columns in QUEUED:
        blocks = math.ceil(m / rows) * math.ceil(n / columns)
        queue = math.ceil(blocks / sms)
        area = rows * columns
        numbers += [queue, blocks, log(queue * (k + START) * area), log(blocks * area * (k + STORE))]
    numbers += [group(dtype)[1], way.first, way.warm]
    return numbers
