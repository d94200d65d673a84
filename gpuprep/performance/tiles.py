"""How many cycles an SM takes for a matrix product, by the tiles into which the library cuts the result.

    fastest(kernels, product("4096x4096x4096"), "bf16", sms=132, rate=2048.0)     the best of all tiles and splits
    tiled(..., tile=(128, 128))                                                   one tile: whole, and best split

The formula is in predict.py.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from gpuprep.catalogue.productmodel import Kernels
from gpuprep.performance.operations import Operation
from gpuprep.performance.roofline import INPUT_BYTES

LEAST_STEPS = 32  # of k that each part has at least
BIG_TILE = 256 * 128
MOST_RESIDENT = 8  # tiles that share an SM
SIDES = 256  # rows and columns of the tile for which `step_sides` is given
PART_BYTES = 4  # of an element of a part's result
STORED = 32  # bytes that an SM stores in a cycle


@dataclass(frozen=True)
class Tiled:
    """The fastest way that the model has for one product."""

    tile_m: int
    tile_n: int
    split_k: int
    tiles: int  # of all products of a batch, and of all parts
    rounds: float  # tiles for each SM, were they shared evenly
    cycles: float

    @property
    def wave_fill(self) -> float:
        return self.rounds / math.ceil(self.rounds)


def fastest(kernels: Kernels, operation: Operation, dtype: str, sms: int, rate: float) -> Tiled:
    """`rate`: multiply-adds a cycle and SM."""
    tilings = (tiled(kernels, operation, dtype, sms, rate, tile)[-1] for tile in kernels.tiles)
    return min(tilings, key=lambda tiling: tiling.cycles)


def tiled(
    kernels: Kernels, operation: Operation, dtype: str, sms: int, rate: float, tile: tuple[int, int]
) -> tuple[Tiled, Tiled]:
    """(without cutting k, with the best cut) by this tile."""
    size = INPUT_BYTES[dtype]
    rows = math.gcd(operation.k * size, 128)
    slower = 1.0 + (kernels.rows_16 if rows == 16 else kernels.rows_32 if rows == 32 else 0.0)
    tile_m, tile_n = tile
    busy_sms = sms if tile_m * tile_n >= BIG_TILE else max(1, round(sms * kernels.sm_share))
    blocks = math.ceil(operation.m / tile_m) * math.ceil(operation.n / tile_n) * operation.batch
    calculate = tile_m * tile_n / (rate * kernels.efficiency)
    load = kernels.load * (tile_m + tile_n) * size
    each = slower * (max(calculate, load) if kernels.overlap else calculate + load)
    resident = min(MOST_RESIDENT, max(1, kernels.resident // (tile_m * tile_n)))
    least = kernels.step + kernels.step_sides * (tile_m + tile_n) / SIDES
    tilings: list[Tiled] = []
    for split in kernels.splits:
        if split > 1 and operation.k < LEAST_STEPS * split:
            break
        steps = up(math.ceil(operation.k / split), max(1, kernels.step_bytes // size))
        q = math.ceil(blocks * split / busy_sms)
        cycles = kernels.start + steps * max(q * each, math.ceil(q / resident) * least)
        cycles += q * kernels.store * tile_m * tile_n
        if split > 1:
            parts = operation.m * operation.n * operation.batch * split
            cycles += kernels.split + kernels.split_store * parts * PART_BYTES / (busy_sms * STORED)
        tilings.append(Tiled(tile_m, tile_n, split, blocks * split, blocks * split / busy_sms, cycles))
    return tilings[0], min(tilings, key=lambda tiling: tiling.cycles)


def up(size: int, multiple: int) -> int:
    return math.ceil(size / multiple) * multiple
