"""Where a matrix product lost speed: peak x clock x bound x tile x wave x alignment x kernel = measured speed.

    explain(gemm, gpu)                 a GEMM of docs/records.md and the catalogue's GPU ─► Attribution
    explain(gemm, gpu, around=entry)   with its entry of `gpus`: power limit, highest clock
    explain(sustained(gemm), gpu)      the same for the twenty seconds of load

clock      mean SM clock during the product / the catalogue's boost clock
bound      min(1, intensity x memory bandwidth / roof at that clock)
tile       wanted results / calculated results, because the matrix is cut into the algorithm's tiles
wave       waves / waves begun: SMs are idle in the last wave of tiles
alignment  of a Tensor Core product whose rows are no multiple of 16 bytes: the rest / what healthy boards reach
kernel     the rest, so the product of all factors is always the measured figure; a rest above 1 is reported

Where the clock or the tiles were not recorded, the rest is "a cause that was not recorded", never the kernel.
`soundness` is the rest beside what healthy boards reach with this kind of kernel (capabilities.yml): 1 is healthy.

If loading takes longer than calculating, idle SMs cost only the time beyond the loading: tile and wave then lose less
than their plain ratios. Sources: NVIDIA's "Matrix Multiplication Background User's Guide" (tile and wave quantization,
alignment), "GPU Performance Background User's Guide" (bounds); cuBLASLt's wavesCount.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from gpuprep import catalogue
from gpuprep.catalogue.capabilities import Kernel, kernel
from gpuprep.performance import gemm_shapes, roofline
from gpuprep.performance.clock_events import clock_cause
from gpuprep.performance.operations import LAYOUTS, ROW_MAJOR
from gpuprep.performance.roofline import Roof
from gpuprep.records import Missing
from gpuprep.records.evidence import Figure
from gpuprep.records.evidence.gemm import GemmGpu, Product

KERNEL, NOT_RECORDED = "the kernel", "a cause that was not recorded"
CREDIBLE_KERNEL = (0.3, 1.03)  # cuBLAS's own kernels reach 0.6 to 1.0 of their roof; beyond this something is off
LOWEST_MHZ = 1.0  # NVML counts whole MHz; less is damage, and a division by it overflows


@dataclass(frozen=True)
class Factor:
    """One cause and the TFLOPS it cost. `value` 1: nothing lost; `lost_tflops` < 0: faster than the model."""

    name: str  # "clock" | "bound" | "tile" | "wave" | "alignment" | "kernel"
    value: float
    lost_tflops: float
    words: str  # "the 70 W power cap (SM 930 of 1590 MHz)"


@dataclass(frozen=True)
class Attribution:
    """Each cause and the TFLOPS (integers: TOPS) it cost; losses add up to peak - achieved.

    The product of all factors is achieved / peak.
    """

    dtype: str
    m: int
    n: int
    k: int
    unit: str  # what calculated it, a key of the catalogue's rates: "tensor_fp16"
    compute_capability: str  # "8.0"
    achieved_tflops: float
    peak_tflops: float  # at the catalogue's boost clock
    formula: str  # of the peak: "40 SMs x 512 FMA x 2 x 1590 MHz"
    factors: tuple[Factor, ...]  # clock, bound, tile, wave, alignment, kernel
    percent_of_peak: float
    clock_adjusted_percent: float | None  # of the peak at the clock it ran at; None: the clock was not read
    intensity: float  # operations a byte
    ridge: float  # operations a byte that the roof at this clock needs
    memory_bound: bool
    words: str  # "38 of 65 TFLOPS: 23 lost to the 70 W power cap (SM 1027 of 1590 MHz), …"
    advice: tuple[str, ...]  # sentences that name a better shape
    better_shape: tuple[int, int, int] | None
    notes: tuple[str, ...]  # what was assumed, and what cannot be
    aligned: bool  # rows of a Tensor Core product begin at multiples of 16 bytes; True where that does not matter
    tiles_known: bool
    soundness: float | None  # the rest / what healthy boards reach; None: no clock, or healthy boards are not known

    def factor(self, name: str) -> Factor:
        return next(factor for factor in self.factors if factor.name == name)


def sustained(gemm: Product) -> Product | None:
    """The GEMM under sustained load; None if it was not measured under sustained load."""
    lasting = gemm.sustained
    if lasting is None or isinstance(lasting, Missing):
        return None
    return replace(
        gemm,
        tflops=lasting.tflops,
        graphics_clock_mhz=lasting.graphics_clock_mhz,
        memory_clock_mhz=_own(lasting.memory_clock_mhz, gemm.memory_clock_mhz),
        power_watts=_own(lasting.power_watts, gemm.power_watts),
        temperature_c=_own(lasting.temperature_c, gemm.temperature_c),
        event_reasons=_own(lasting.event_reasons, gemm.event_reasons),
        telemetry=lasting.telemetry,
    )


def _mhz(clock: Figure) -> float | None:
    return None if isinstance(clock, Missing) or clock < LOWEST_MHZ else clock


def _own(lasting: Figure, burst: Figure) -> Figure:
    """The value of the sustained run, or that of the burst if it was not recorded."""
    return burst if isinstance(lasting, Missing) and lasting.reason == "not_recorded" else lasting


def explain(
    gemm: Product, gpu: catalogue.Board, around: GemmGpu | None = None, rows: str | None = None
) -> Attribution | Missing:
    """Where the speed was lost; Missing if shape, speed or the catalogue's peak is not known. Never raises.

    `rows`: as operations.LAYOUTS, "" where none count; None: the layout that the record names, else that of PyTorch.
    """
    if rows is None:
        rows = LAYOUTS.get(gemm.layout.lower(), ROW_MAJOR)
    m, n, k, dtype, achieved = gemm.m, gemm.n, gemm.k, gemm.dtype, gemm.tflops
    if isinstance(achieved, Missing):
        return achieved
    if m is None or n is None or k is None or achieved <= 0:
        return Missing("not_recorded", "no speed" if achieved <= 0 else "no shape")
    peak = roofline.roof(gpu, dtype, gemm.accumulate)
    if isinstance(peak, Missing):
        return peak
    notes: list[str] = []
    clock, clock_words = _clock(gemm, gpu, peak, around, notes)
    density = roofline.intensity(dtype, m, n, k)
    memory = roofline.bandwidth(gpu, _mhz(gemm.memory_clock_mhz))
    if isinstance(memory, Missing):
        notes.append(f"{memory.detail}: whether memory decides is not known")
    needed = 0.0 if isinstance(memory, Missing) else roofline.ridge(peak.tflops * (clock or 1.0), memory)
    bound = min(1.0, density / needed) if needed else 1.0
    tiles = gemm_shapes.tiling(gemm.algorithm, m, n, k, gpu.sms or (around.sms if around else None))
    notes += tiles.notes
    # Loading hides idle SMs up to its own time.
    tile = min(1.0, tiles.tile / bound)
    wave = min(1.0, tiles.tile * tiles.wave / bound) / tile
    modelled = (clock or 1.0) * bound * tile * wave
    rest = achieved / (peak.tflops * modelled)
    reference = kernel(gpu.model.compute_capability, peak.unit)
    expected = _expected(reference, 2e-12 * m * n * k / (peak.tflops * modelled))
    crooked = _misalignment(dtype, peak.unit, (m, n, k), rows)
    alignment = min(1.0, rest / (expected or 1.0)) if crooked else 1.0
    efficiency = rest / alignment
    if not CREDIBLE_KERNEL[0] <= efficiency <= CREDIBLE_KERNEL[1]:
        notes.append(_incredible(efficiency, bound < 1.0))
    tiles_known = bool(tiles.tile_m and tiles.tile_n)
    values = (
        ("clock", clock or 1.0, clock_words),
        ("bound", bound, f"memory ({density:.0f} operations a byte, the roof needs {needed:.0f})"),
        ("tile", tile, tiles.tile_words),
        ("wave", wave, tiles.wave_words),
        ("alignment", alignment, crooked),
        ("kernel", efficiency, KERNEL if clock and tiles_known else NOT_RECORDED),
    )
    factors = _factors(peak.tflops, values)
    wish = gemm_shapes.better(dtype, (m, n, k), needed, tiles, gpu.model.compute_capability, rows)
    return Attribution(
        dtype=dtype,
        m=m,
        n=n,
        k=k,
        unit=peak.unit,
        compute_capability=gpu.model.compute_capability,
        achieved_tflops=achieved,
        peak_tflops=peak.tflops,
        formula=peak.formula,
        factors=factors,
        percent_of_peak=100.0 * achieved / peak.tflops,
        clock_adjusted_percent=None if clock is None else 100.0 * achieved / (peak.tflops * clock),
        intensity=density,
        ridge=needed,
        memory_bound=bound < 1.0,
        words=words(dtype, achieved, peak.tflops, factors),
        advice=wish.advice,
        better_shape=wish.shape,
        notes=tuple(notes),
        aligned=not crooked,
        tiles_known=tiles_known,
        soundness=rest / expected if clock and expected else None,
    )


def _expected(reference: Kernel | None, seconds_at_roof: float) -> float | None:
    """The rest of a healthy board, from the product's seconds when every factor but the kernel is known."""
    return reference.expected(seconds_at_roof / reference.sound) if reference else None


def _misalignment(dtype: str, unit: str, shape: gemm_shapes.Shape, rows: str) -> str:
    """Words for what misalignment costs; "" where the shape is aligned or the unit does not mind."""
    if not unit.startswith("tensor_"):
        return ""
    names = gemm_shapes.misaligned(dtype, shape, rows)
    return f"misalignment ({names}: the fast Tensor Core kernels need multiples of 16 bytes)" if names else ""


def _clock(
    gemm: Product, gpu: catalogue.Board, peak: Roof, around: GemmGpu | None, notes: list[str]
) -> tuple[float | None, str]:
    clock = _mhz(gemm.graphics_clock_mhz)
    if clock is None:
        notes.append("the clock was not recorded: the loss by a low clock cannot be separated from other causes")
        return None, "the clock (not recorded)"
    if clock < peak.clock_mhz:
        cause = clock_cause(gemm, gpu, around)
    else:
        cause = "a clock above the catalogue's boost" if clock > peak.clock_mhz else "the clock"
    return clock / peak.clock_mhz, f"{cause} (SM {clock:.0f} of {peak.clock_mhz:.0f} MHz)"


def _factors(peak: float, values: tuple[tuple[str, float, str], ...]) -> tuple[Factor, ...]:
    factors, left = [], peak
    for name, value, cause in values:
        factors.append(Factor(name, value, left * (1.0 - value), cause))
        left *= value
    return tuple(factors)


def _incredible(kernel: float, memory_bound: bool) -> str:
    if kernel < CREDIBLE_KERNEL[0]:
        wrong = "the GPU, the algorithm or the figure is wrong"
        return f"kernel efficiency {kernel:.2f}: far below what cuBLAS reaches; {wrong}"
    if memory_bound:
        return f"kernel efficiency {kernel:.2f}: faster than memory delivers; the matrices were in the L2 cache"
    return f"kernel efficiency {kernel:.2f}: more than the roof allows; the clock, the peak or the figure is wrong"


def words(dtype: str, achieved: float, peak: float, factors: tuple[Factor, ...]) -> str:
    """ "38 of 65 TFLOPS: 23 lost to …, 1 in the kernel". The figures are rounded so that they add up."""
    digits = 0 if peak >= 30 else 1 if peak >= 3 else 2
    scale = 10**digits
    total = round(peak * scale) - round(achieved * scale)
    parts = _rounded([factor.lost_tflops * scale for factor in factors], total)
    unit = roofline.speed_unit(dtype)
    phrases: list[str] = []
    for factor, part in zip(factors, parts, strict=True):
        amount = f"{abs(part) / scale:.{digits}f}"
        if part > 0:
            verb = "" if phrases else "lost "
            phrases.append(f"{amount} {verb}{'in' if factor.words == KERNEL else 'to'} {factor.words}")
        elif part < 0:
            more = f"than the model has (kernel efficiency {factor.value:.2f})"
            phrases.append(f"{amount} more {more if factor.name == 'kernel' else f'by {factor.words}'}")
    head = f"{round(achieved * scale) / scale:.{digits}f} of {round(peak * scale) / scale:.{digits}f} {unit}"
    return f"{head}: {', '.join(phrases)}" if phrases else f"{head}: nothing lost"


def _rounded(parts: list[float], total: int) -> list[int]:
    """`parts` rounded to whole numbers with the sum `total`: the largest remainders are rounded up."""
    down = [math.floor(part) for part in parts]
    order = sorted(range(len(parts)), key=lambda i: down[i] - parts[i])
    for i in range(total - sum(down)):
        down[order[i % len(order)]] += 1
    return down
