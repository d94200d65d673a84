"""A speed that CUDA cores cannot reach proves Tensor Cores, whatever a kernel is called. Pure.

Not of a convolution: Winograd's algorithm and FFT calculate less than is counted. (A real H100, FP32 on CUDA cores: 70
TFLOPS of 67.)
"""

from __future__ import annotations

from gpuprep.catalogue import Board
from gpuprep.performance import roofline
from gpuprep.records import Missing

SPEED = "speed"  # the rule that decided, beside those of kernels.yml
ABOVE = 1.03  # of the peak: clocks and times are not exact

# Rates of the catalogue for CUDA cores, and how many times FP32's they are at most where the catalogue has none: packed
# FP16 and BF16 four times (A100), dot products of four bytes four times. FP8 is converted before it is multiplied.
CUDA_CORES = {
    "fp64": ("fp64", 1),
    "fp32": ("fp32", 1),
    "fp16": ("fp16", 4),
    "bf16": ("fp16", 4),
    "int8": ("int8", 4),
    "fp8": ("fp16", 4),
}


def cuda_core_tflops(board: Board, dtype: str) -> float | None:
    """The most that CUDA cores calculate in a data type, at the boost clock; None where the catalogue does not tell."""
    rates = board.model.fma_per_clock_per_sm
    unit, times = CUDA_CORES.get(dtype, ("", 0))
    plain = rates.get("fp32")
    rate = rates.get(unit) or (plain * times if plain and times else None)
    if not rate or board.sms is None or board.boost_mhz is None:
        return None
    return board.sms * rate * 2 * board.boost_mhz / 1e6


def proves(board: Board, dtype: str, tflops: float) -> bool:
    """Not where it is more than Tensor Cores reach, too: then a figure is wrong, and proves nothing."""
    most, roof = cuda_core_tflops(board, dtype), roofline.roof(board, "tf32" if dtype == "fp32" else dtype)
    if most is None or isinstance(roof, Missing) or not roof.unit.startswith("tensor_"):
        return False
    return ABOVE * most < tflops <= ABOVE * roof.tflops
