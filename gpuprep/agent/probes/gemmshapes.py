"""Shapes of the measured matrix products: those of the profile, or large aligned shapes."""

from __future__ import annotations

import math
from typing import Any, List, NamedTuple, Tuple

# m, n, k: squares, and one each that is flat in an output dimension and in k. All are multiples of 2048.
LARGE = ((8192, 8192, 8192), (4096, 4096, 4096), (16384, 8192, 4096), (8192, 4096, 8192))
SMALL = ((4096, 4096, 4096), (2048, 2048, 2048), (4096, 2048, 4096), (2048, 4096, 2048))
TINY = ((2048, 2048, 2048), (1024, 1024, 1024), (2048, 1024, 2048), (1024, 2048, 1024))
PILOT = (2048, 2048, 2048)
LONGEST_SECONDS = 0.04  # of one product: eight of them are a burst


class Shape(NamedTuple):
    m: int
    n: int
    k: int

    @property
    def operations(self) -> float:
        """Floating-point operations; a multiply and an add are two."""
        return 2.0 * self.m * self.n * self.k


def asked(shapes: Any, dtype: str) -> List[Shape]:
    """Shapes of arguments["shapes"]: [[m, n, k], ...] for every type, or {"bf16": [[m, n, k], ...]}; [] for none.

    Raises ValueError for any other form.
    """
    rows = shapes.get(dtype) or [] if isinstance(shapes, dict) else shapes or []
    parsed_shapes = []
    for row in rows:
        numbers = [row.get(key) for key in "mnk"] if isinstance(row, dict) else row if isinstance(row, list) else []
        if len(numbers) != 3 or not all(isinstance(number, int) and number > 0 for number in numbers):
            raise ValueError(f"a shape is three whole numbers m, n, k, not {row!r}")
        parsed_shapes.append(Shape(*numbers))
    return parsed_shapes


def default(tflops: float) -> List[Shape]:
    """Four shapes for a GPU with `tflops` in the pilot run: the largest family whose products stay short."""
    for family in (LARGE, SMALL):
        if max(Shape(*row).operations for row in family) / (tflops * 1e12) <= LONGEST_SECONDS:
            return [Shape(*row) for row in family]
    return [Shape(*row) for row in TINY]


def sets(bytes_of_set: int, l2_bytes: int) -> int:
    """How many sets of A, B and D to use in turn: together at least three times L2, and at least two sets."""
    return max(2, math.ceil(3 * l2_bytes / bytes_of_set))


def tiles(shape: Shape, tile: Tuple[int, int]) -> int:
    return math.ceil(shape.m / tile[0]) * math.ceil(shape.n / tile[1])
