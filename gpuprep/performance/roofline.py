"""The limits (roofs) of a GPU's speed: what its units can calculate at a clock, what its memory delivers.

    roof(gpu, "fp16", "fp32")     peak at the data type's best rate; Missing if it is not in the catalogue
    roofs(gpu), points(...)       what a roofline plot draws
    intensity(dtype, m, n, k)     operations per byte of C = A B

Sources: peak = SMs x FMA per clock and SM x 2 x clock, and the intensity of a GEMM as in NVIDIA's "Matrix
Multiplication Background User's Guide" and "GPU Performance Background User's Guide"; the rates are the catalogue's.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Union

from gpuprep import catalogue
from gpuprep.records import Missing
from gpuprep.records.evidence.gemm import Product

# What a data type is calculated on, best first: keys of the catalogue's rates.
UNITS: Mapping[str, tuple[str, ...]] = {
    "fp64": ("tensor_fp64", "fp64"), "fp32": ("fp32",), "tf32": ("tensor_tf32",), "fp16": ("tensor_fp16", "fp16"),
    "bf16": ("tensor_bf16",), "int8": ("tensor_int8", "int8"), "fp8": ("tensor_fp8",),
}  # fmt: skip
# Some GPUs add half precision to half precision faster than to single precision.
HALF_ACCUMULATE = "tensor_fp16_accumulate_fp16"
INPUT_BYTES: Mapping[str, int] = {"fp64": 8, "fp32": 4, "tf32": 4, "fp16": 2, "bf16": 2, "int8": 1, "fp8": 1}
OUTPUT_BYTES: Mapping[str, int] = {**INPUT_BYTES, "int8": 4, "fp8": 2}  # sums of bytes are written wider


def speed_unit(dtype: str) -> str:
    """The unit of the speed of a product: TOPS for integers."""
    return "TOPS" if dtype == "int8" else "TFLOPS"


@dataclass(frozen=True)
class Roof:
    """What one kind of unit can calculate: TFLOPS (TOPS for integers) at `clock_mhz`."""

    dtype: str
    unit: str  # key of the catalogue's rates, "tensor_fp16"
    tflops: float
    clock_mhz: float
    formula: str  # "40 SMs x 512 FMA x 2 x 1590 MHz"


@dataclass(frozen=True)
class Point:
    """One GEMM in a roofline plot. `attainable_tflops` is the roof at the clock of the measurement."""

    dtype: str
    m: int
    n: int
    k: int
    intensity: float  # operations a byte
    tflops: float
    attainable_tflops: float
    memory_bound: bool


def roof(gpu: catalogue.Board, dtype: str, accumulate: str = "", clock_mhz: float | None = None) -> Roof | Missing:
    """The data type's best rate; without a clock, at the catalogue's boost clock.

    Missing("not_in_catalogue") if a figure is not known, Missing("no_such_units") if the architecture lacks the units.
    """
    rates = gpu.model.fma_per_clock_per_sm
    if dtype not in UNITS:
        return Missing("not_in_catalogue", f"no data type {dtype!r:.40}")
    if not rates or gpu.sms is None or gpu.boost_mhz is None:
        several = f"which board of the {gpu.name} it is is not known, and their {dtype} peaks differ"
        lacks = several if gpu.is_several else f"the catalogue has no {dtype} peak of the {gpu.name}"
        return Missing("not_in_catalogue", lacks)
    units = (HALF_ACCUMULATE, *UNITS[dtype]) if (dtype, accumulate) == ("fp16", "fp16") else UNITS[dtype]
    unit = next((name for name in units if name in rates), None)
    if unit is None:
        return Missing("no_such_units", f"{gpu.model.title} has no units for {dtype}: it is emulated")
    rate = rates[unit]
    if rate is None:
        return Missing("not_in_catalogue", f"the catalogue has no {dtype} peak of the {gpu.name}")
    clock = gpu.boost_mhz if clock_mhz is None else clock_mhz
    tflops = gpu.sms * rate * 2 * clock / 1e6
    return Roof(dtype, unit, tflops, clock, f"{gpu.sms} SMs x {rate} FMA x 2 x {clock:.0f} MHz")


def roofs(gpu: catalogue.Board, clock_mhz: float | None = None) -> tuple[Roof, ...]:
    """A roof for each data type that this GPU has units for, highest first; () if the catalogue lacks them."""
    candidates = [roof(gpu, dtype, clock_mhz=clock_mhz) for dtype in UNITS]
    return tuple(
        sorted((product for product in candidates if isinstance(product, Roof)), key=lambda product: -product.tflops)
    )


def bandwidth(gpu: catalogue.Board, memory_clock_mhz: float | None = None) -> float | Missing:
    """GB/s of the GPU's memory by the catalogue, lowered if the memory clock is below the catalogue's."""
    if gpu.memory_gb_per_s is None:
        return Missing("not_in_catalogue", f"the catalogue has no memory bandwidth of the {gpu.name}")
    slower = 1.0
    if gpu.memory_mhz and memory_clock_mhz and memory_clock_mhz > 0:
        slower = min(1.0, memory_clock_mhz / gpu.memory_mhz)
    return gpu.memory_gb_per_s * slower


def ridge(tflops: float, gb_per_s: float) -> float:
    """Operations per byte above which calculating takes longer than loading."""
    return tflops * 1e3 / gb_per_s


def intensity(dtype: str, m: int, n: int, k: int) -> float:
    """Operations per byte if each matrix crosses the memory bus once: 2mnk / bytes of A, B and C."""
    moved = INPUT_BYTES[dtype] * (m * k + k * n) + OUTPUT_BYTES[dtype] * m * n
    return 2.0 * m * n * k / moved


def points(gemms: Iterable[Product], gpu: catalogue.Board) -> tuple[Point, ...]:
    """GEMMs of docs/records.md with the roofs of `gpu`; GEMMs without a figure or a roof are left out."""
    candidates = (point(gemm, gpu) for gemm in gemms)
    return tuple(point for point in candidates if isinstance(point, Point))


def point(gemm: Product, gpu: catalogue.Board) -> Union[Point, Missing]:
    m, n, k, dtype, tflops = gemm.m, gemm.n, gemm.k, gemm.dtype, gemm.tflops
    clock, memory_clock = gemm.graphics_clock_mhz, gemm.memory_clock_mhz
    if m is None or n is None or k is None or isinstance(tflops, Missing):
        return Missing("not_recorded", "no shape or no speed")
    above = roof(gpu, dtype, gemm.accumulate, None if isinstance(clock, Missing) or clock <= 0 else clock)
    memory = bandwidth(gpu, None if isinstance(memory_clock, Missing) else memory_clock)
    if isinstance(above, Missing):
        return above
    if isinstance(memory, Missing):
        return memory
    density = intensity(dtype, m, n, k)
    under_memory = density * memory / 1e3
    bound = not math.isclose(under_memory, above.tflops) and under_memory < above.tflops
    return Point(dtype, m, n, k, density, tflops, min(under_memory, above.tflops), bound)
