"""What the gemm probe measured: matrix products of each GPU, and of all GPUs at once. docs/records.md, gemm."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional, Union

from gpuprep.records import Missing
from gpuprep.records.evidence import NOT_RECORDED, Error, Figure, Size, Word
from gpuprep.records.evidence.shared import Library, NamedGpu, Probe, Process, Telemetry


@dataclass(frozen=True)
class Algorithm:
    """cuBLASLt's algorithm: tiles in elements, `waves` as its waves_count."""

    tile: str = ""
    tile_m: Size = None
    tile_n: Size = None
    tile_k: Size = None
    stages: Size = None
    split_k: Size = None
    waves: Figure = NOT_RECORDED
    candidates: Size = None


@dataclass(frozen=True)
class Sustained:
    """The same product without pause."""

    seconds: Figure = NOT_RECORDED
    tflops: Figure = NOT_RECORDED
    graphics_clock_mhz: Figure = NOT_RECORDED
    memory_clock_mhz: Figure = NOT_RECORDED
    power_watts: Figure = NOT_RECORDED
    temperature_c: Figure = NOT_RECORDED
    event_reasons: Figure = NOT_RECORDED  # NVML's bit mask
    telemetry: Optional[Telemetry] = None


@dataclass(frozen=True)
class Product:
    """One matrix product of m x n x k elements. TFLOPS are TOPS for integers."""

    dtype: Word = "?"
    accumulate: str = ""
    m: Size = None
    n: Size = None
    k: Size = None
    layout: str = ""
    tflops: Figure = NOT_RECORDED
    rel_stdev_percent: Figure = NOT_RECORDED
    iterations: Size = None
    microseconds: Figure = NOT_RECORDED
    algorithm: Union[Algorithm, Missing] = NOT_RECORDED
    graphics_clock_mhz: Figure = NOT_RECORDED
    memory_clock_mhz: Figure = NOT_RECORDED
    power_watts: Figure = NOT_RECORDED
    temperature_c: Figure = NOT_RECORDED
    event_reasons: Figure = NOT_RECORDED  # NVML's bit mask
    exact: Optional[bool] = None
    max_relative_error: Figure = NOT_RECORDED
    error_tolerance: Figure = NOT_RECORDED
    telemetry: Optional[Telemetry] = None
    sustained: Union[Sustained, Missing, None] = None  # None: this product was not measured at length
    error: Error = ""


@dataclass(frozen=True)
class GemmGpu(NamedGpu):
    sms: Size = None
    l2_mib: Figure = NOT_RECORDED
    max_graphics_clock_mhz: Figure = NOT_RECORDED
    power_limit_watts: Figure = NOT_RECORDED
    other_processes: Union[tuple[Union[Process, Missing], ...], Missing] = NOT_RECORDED
    gemms: tuple[Union[Product, Missing], ...] = ()
    error: Error = ""


@dataclass(frozen=True)
class Together:
    """One GPU while all GPUs calculate."""

    index: Optional[int] = None
    dtype: Word = "?"
    tflops: Figure = NOT_RECORDED
    graphics_clock_mhz: Figure = NOT_RECORDED


@dataclass(frozen=True)
class Toolkit:
    """The CUDA toolkit whose libraries were expected to run."""

    nvcc: str = ""
    version: str = ""
    library_dirs: tuple[Word, ...] = ()


@dataclass(frozen=True)
class Gemm:
    """`published`: source of figures from elsewhere; no probe writes it."""

    quick: Optional[bool] = None
    libraries: tuple[Library, ...] = ()
    toolkit: Toolkit = Toolkit()
    gpus: tuple[Union[GemmGpu, Missing], ...] = ()
    together: tuple[Together, ...] = ()
    published: str = ""
    error: Error = ""


PROBE = Probe("gemm", Gemm, 40, "cuda", "matrix products")
