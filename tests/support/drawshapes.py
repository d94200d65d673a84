"""Random shapes of matrix products, for `measureshapes.py`: aligned, odd, small and skinny ones.

python tests/support/drawshapes.py SEED COUNT > shapes.csv            COUNT shapes a data type, the kinds in equal parts
python tests/support/drawshapes.py SEED COUNT --seconds 1e-5,3e-4     only those that are expected to take so long
"""

from __future__ import annotations

import argparse
import csv
import math
import random
import sys
from collections.abc import Iterator
from typing import NamedTuple

from gpuprep.catalogue import boards, productmodel
from gpuprep.performance import learned, predict
from gpuprep.performance.operations import Operation
from gpuprep.performance.roofline import INPUT_BYTES, OUTPUT_BYTES
from gpuprep.records import Missing

TYPES = ("bf16", "fp16", "tf32", "fp32", "fp64", "int8", "fp8")
KINDS = ("aligned", "odd", "small", "skinny")
MULTIPLES = (8, 16, 32, 64, 64, 128, 0)  # of which a size is one; 0: a power of two
MOST_BYTES = 2**30  # of one matrix: several sets of them must fit into the memory


class Drawn(NamedTuple):
    dtype: str
    kind: str
    m: int
    n: int
    k: int


def shapes(chance: random.Random, dtype: str) -> Iterator[Drawn]:
    """Without end; the kinds take turns. Sizes are spread evenly over their logarithms."""
    while True:
        for kind in KINDS:
            found = None
            while found is None:
                found = _fitting(dtype, kind, *_sizes(chance, kind))
            yield found


def _sizes(chance: random.Random, kind: str) -> list[int]:
    steps = [chance.choice(MULTIPLES) for _ in range(3)]
    if kind == "odd" or chance.random() < 0.25:
        steps = [1, 1, 1]
    if kind == "odd" and chance.random() < 0.3:
        steps = [1, chance.choice((8, 64)), chance.choice((2, 8, 64))]
    low, high = {"small": (16, 1024), "skinny": (256, 16384)}.get(kind, (64, 16384))
    found = [_size(chance, low, high, step) for step in steps]
    if kind == "skinny":
        found[chance.randrange(3)] = _size(chance, 1, 128, chance.choice((1, 8, 16)))
    return found


def _size(chance: random.Random, low: int, high: int, step: int) -> int:
    size = math.exp(chance.uniform(math.log(low), math.log(high)))
    if step == 0:
        return int(2 ** round(math.log2(size)))
    return max(step, round(size / step) * step)


def _fitting(dtype: str, kind: str, m: int, n: int, k: int) -> Drawn | None:
    """As the library takes it; None where it is too large."""
    if dtype == "fp8":
        k, m = max(16, k // 16 * 16), m if m == 1 else max(2, m // 2 * 2)
    if dtype == "int8":
        k = max(4, k // 4 * 4)
    if max(m * k, n * k) * INPUT_BYTES[dtype] > MOST_BYTES or m * n * OUTPUT_BYTES[dtype] > MOST_BYTES:
        return None
    return Drawn(dtype, kind, m, n, k)


def main() -> None:
    parser = argparse.ArgumentParser(description="Random shapes of matrix products, as CSV.")
    parser.add_argument("seed", type=int)
    parser.add_argument("count", type=int)
    parser.add_argument("--seconds", default="0,6e-3", help="least and most that the model expects")
    asked = parser.parse_args()
    least, most = (float(one) for one in asked.seconds.split(","))
    board = boards()[productmodel.measured().board]
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(Drawn._fields)
    for dtype in TYPES:
        left = asked.count
        for one in shapes(random.Random(f"{asked.seed} {dtype}"), dtype):
            found = predict.predict(board, Operation("product", "", one.m, one.n, one.k, rows=learned.LAYOUT), dtype)
            if isinstance(found, Missing) or not least <= found.seconds <= most:
                continue
            writer.writerow(one)
            left -= 1
            if not left:
                break


if __name__ == "__main__":
    main()
