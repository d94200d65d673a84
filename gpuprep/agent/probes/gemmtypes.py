"""The data types of the matrix products: cuBLASLt's numbers for them, tolerances of the checks, GPUs that have them."""

from __future__ import annotations

from typing import Dict, NamedTuple, Tuple

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
