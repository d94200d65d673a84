"""The data types of the matrix products: cuBLASLt's numbers for them, tolerances of the checks, GPUs that have them."""

from __future__ import annotations

import math
from typing import Any, Dict, List, NamedTuple, Tuple

# cudaDataType_t in library_types.h
R_32F, R_64F, R_16F, R_8I, R_32I, R_16BF, R_8F_E4M3 = 0, 1, 2, 3, 10, 14, 28
# cublasComputeType_t in cublas_api.h
COMPUTE_16F, COMPUTE_32F, COMPUTE_64F, COMPUTE_32I, COMPUTE_32F_FAST_TF32 = 64, 68, 70, 72, 77


class DataType(NamedTuple):
    """`inputs`, `output`, `scale`: cudaDataType_t. `integers` n: inputs of the exact check are whole numbers, -n to n.

    `spread` is the standard deviation of the normal inputs. `tolerance` is what max_relative_error may be: the rounding
    of inputs and output, and of the sum where the accumulator is narrow.
    """

    dtype: str
    accumulate: str
    inputs: int
    compute: int
    scale: int
    output: int
    integers: int
    spread: float
    tolerance: float
    since: Tuple[int, int]  # the compute capability that has the unit

    @property
    def key(self) -> str:
        return f"{self.dtype}/{self.accumulate}"


# FP8 is multiplied with fast accumulation and written as BF16, as inference does.
TYPES = (
    DataType("bf16", "fp32", R_16BF, COMPUTE_32F, R_32F, R_16BF, 1, 1.0, 1e-2, (8, 0)),
    DataType("fp16", "fp32", R_16F, COMPUTE_32F, R_32F, R_16F, 1, 1.0, 2e-3, (5, 3)),
    DataType("fp16", "fp16", R_16F, COMPUTE_16F, R_16F, R_16F, 1, 1.0, 1e-1, (5, 3)),
    DataType("tf32", "fp32", R_32F, COMPUTE_32F_FAST_TF32, R_32F, R_32F, 8, 1.0, 5e-3, (8, 0)),
    DataType("fp32", "fp32", R_32F, COMPUTE_32F, R_32F, R_32F, 8, 1.0, 1e-5, (5, 0)),
    DataType("fp64", "fp64", R_64F, COMPUTE_64F, R_64F, R_64F, 1000, 1.0, 1e-12, (5, 0)),
    DataType("int8", "int32", R_8I, COMPUTE_32I, R_32I, R_32I, 100, 32.0, 0.0, (7, 2)),
    DataType("fp8", "fp32", R_8F_E4M3, COMPUTE_32F, R_32F, R_16BF, 1, 1.0, 2e-2, (8, 9)),
)
BYTES: Dict[int, int] = {R_64F: 8, R_32F: 4, R_32I: 4, R_16F: 2, R_16BF: 2, R_8I: 1, R_8F_E4M3: 1}


def of_gpu(capability: Tuple[int, int]) -> Tuple[DataType, ...]:
    """The types for which this compute capability has units; cuBLASLt would only emulate others."""
    return tuple(kind for kind in TYPES if capability >= kind.since)


def main_type(kinds: Tuple[DataType, ...], wanted: object) -> DataType:
    """The type for the sustained load: `wanted` ("bf16"), or the first type of this GPU."""
    named = [kind for kind in kinds if kind.dtype == wanted]
    return (named or list(kinds))[0]


# ---------------------------------------------------------------- shapes

# Shapes of the measured matrix products: those of the profile, or large aligned shapes.


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
