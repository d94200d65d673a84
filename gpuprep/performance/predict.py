"""How fast a matrix product will be on a board, before it runs.

    predict(board, product("4097x4097x4097"), "fp16")      Prediction, or Missing where the catalogue lacks a figure

The library cuts the result into tiles, and each SM calculates tile after tile. With q tiles for the busiest SM

    cycles = start + q x (steps of k x (rows x columns / rate + load x bytes of a step) + store x rows x columns)
    time   = launch + (math time ^ sharpness + memory time ^ sharpness) ^ (1 / sharpness)

but a step of k takes at least the time in which its operands arrive; tiles that share an SM wait for it together. Of
all tiles, and of all ways to cut k, the library takes the fastest. The figures are fitted to products that were
measured on one GPU (catalogue/productmodel.yml). Another board has its own SMs, clocks, rates and memory, and what
published speeds say of its power; its own kernels were not measured, and the prediction says so.

The formula and what was learned know column-major results, as the library does: a row-major one is calculated as its
transpose.

On the measured board a learned factor corrects the formula (learned.py): it multiplies all times.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from gpuprep.catalogue import Board, boards, productmodel
from gpuprep.catalogue import productmodel as catalogue
from gpuprep.catalogue.productmodel import Kernels
from gpuprep.performance import attribution, gemm_shapes, learned, roofline, tiles
from gpuprep.performance.attribution import Factor
from gpuprep.performance.operations import Operation, transposed
from gpuprep.performance.roofline import INPUT_BYTES, OUTPUT_BYTES, Roof
from gpuprep.performance.tiles import Tiled
from gpuprep.records import Missing
from gpuprep.records.evidence.gemm import Algorithm, Product

FULL_ALIGNMENT = 16  # bytes
LOWEST_CLOCK = 0.3  # of the boost clock
SLOWER_ELSEWHERE = 2.0  # at least, at the slow end: what misaligned rows may cost where nobody measured it
SKINNY = 128  # rows or columns, at most
BELOW_ROOF = 1.001  # times the least time
# Floors are the lowest published speeds less a tenth (catalogue/floors.yml); a usual board reaches a little more.
TYPICAL = 1.08 / 0.9


@dataclass(frozen=True)
class Prediction:
    """Seconds and TFLOPS (integers: TOPS) of one operation on one board."""

    operation: Operation
    dtype: str
    board: Board
    peak: Roof  # at the boost clock
    seconds: float
    tflops: float
    error_percent: float  # nine in ten are within, where `measured`; else a wider guess
    error_shapes: int  # how many measured products that rests on; 0: none
    error_words: str
    slowest_tflops: float  # `tflops`, or less where it is not known what misaligned rows cost
    bound: str  # "math" | "memory" | "launch"
    math_seconds: float
    memory_seconds: float
    launch_seconds: float
    intensity: float  # operations a byte
    ridge: float  # operations a byte above which memory no longer limits the peak
    clock_mhz: float  # expected under this load
    alignment: int  # bytes that the rows of all matrices are a multiple of, at most 16
    aligned_gain: float | None  # how many times as fast it were with rows of 16 bytes; None: not measured
    tiled: Tiled
    tile_fill: float  # wanted results / calculated results
    formula_seconds: float  # without what was learned of products that were measured

    @property
    def measured(self) -> bool:
        """Such products were measured on this board."""
        return self.error_shapes > 0

    @property
    def low_tflops(self) -> float:
        return self.slowest_tflops / (1 + self.error_percent / 100)

    @property
    def high_tflops(self) -> float:
        return self.tflops * (1 + self.error_percent / 100)


def predict(board: Board, operation: Operation, dtype: str, *, warm: bool = False) -> Prediction | Missing:
    """As a framework gets it, which takes the library's first algorithm. `warm`: its operands were used just before.

    Missing("no_such_units") if the GPU lacks units for the type, "not_supported" if the library refuses the shape,
    "not_in_catalogue" if a figure is not known.
    """
    peak = roofline.roof(board, dtype)
    if isinstance(peak, Missing):
        return peak
    memory = roofline.bandwidth(board)
    if isinstance(memory, Missing):
        return memory
    refused = refusal(operation, dtype)
    if refused:
        return Missing("not_supported", refused)
    if operation.aligned is None and operation.rows[2] == "n":
        found = predict(board, transposed(operation), dtype, warm=warm)
        if isinstance(found, Missing):
            return found
        turned = replace(found.tiled, tile_m=found.tiled.tile_n, tile_n=found.tiled.tile_m)
        return replace(found, operation=operation, tiled=turned)
    timed = _timings(board, operation, dtype)
    if isinstance(timed, Missing):
        return timed
    formula, aligned = timed
    gain = formula.seconds / aligned.seconds
    bytes_aligned = alignment(operation, dtype)
    there = boards()[catalogue.measured().board].model.architecture
    elsewhere = bytes_aligned < FULL_ALIGNMENT and board.model.architecture != there
    if elsewhere:
        # Expected as if aligned, so that no two shapes are compared by the penalty of another architecture.
        formula, gain = aligned, max(gain, SLOWER_ELSEWHERE)
    timing = _corrected(board, operation, dtype, peak, memory, formula, aligned, learned.Way(warm=warm))
    tiled = timing.tiled
    filled = operation.m * operation.n / (tiles.up(operation.m, tiled.tile_m) * tiles.up(operation.n, tiled.tile_n))
    percent, shapes, words = _error(board, operation, dtype, timing.seconds, bytes_aligned)
    return Prediction(
        operation=operation,
        dtype=dtype,
        board=board,
        peak=peak,
        seconds=timing.seconds,
        tflops=operation.operations / timing.seconds / 1e12,
        error_percent=percent,
        error_shapes=shapes,
        error_words=words,
        slowest_tflops=operation.operations / timing.seconds / 1e12 / (gain if elsewhere else 1.0),
        bound=timing.bound,
        math_seconds=timing.math,
        memory_seconds=timing.memory,
        launch_seconds=timing.launch,
        intensity=operation.intensity(dtype),
        ridge=roofline.ridge(peak.tflops, memory),
        clock_mhz=timing.clock_mhz,
        alignment=bytes_aligned,
        aligned_gain=None if elsewhere else max(1.0, gain),
        tiled=tiled,
        tile_fill=filled,
        formula_seconds=formula.seconds,
    )


def learned_features(board: Board, operation: Operation, dtype: str, way: learned.Way) -> tuple[list[float], float]:
    """(features of learned.py, microseconds by the formula) of a product that cuBLASLt takes, on a measured board."""
    peak, timed = roofline.roof(board, dtype), _timings(board, operation, dtype)
    assert isinstance(peak, Roof)
    assert not isinstance(timed, Missing)
    return _features(board, operation, dtype, peak, *timed, way), 1e6 * timed[0].seconds


def _timings(board: Board, operation: Operation, dtype: str) -> tuple[_Timed, _Timed] | Missing:
    """By the formula, and were its rows multiples of 16 bytes."""
    peak, memory = roofline.roof(board, dtype), roofline.bandwidth(board)
    if isinstance(peak, Missing):
        return peak
    if isinstance(memory, Missing):
        return memory
    kernels = kernel_class(operation, dtype)
    formula = _timed(board, operation, dtype, peak, memory, kernels)
    aligned = formula
    if kernels < FULL_ALIGNMENT:
        aligned = _timed(board, operation, dtype, peak, memory, FULL_ALIGNMENT)
    if isinstance(formula, Missing):
        return formula
    return aligned if isinstance(aligned, Missing) else (formula, aligned)


def _features(
    board: Board, operation: Operation, dtype: str, peak: Roof, formula: _Timed, aligned: _Timed, way: learned.Way
) -> list[float]:
    kernels = _kernels(board, dtype, kernel_class(operation, dtype), peak)
    assert kernels is not None
    assert board.sms is not None
    shape_formula = learned.Formula(
        1e6 * formula.seconds, 1e6 * formula.math, 1e6 * formula.memory, 1e6 * aligned.seconds, formula.tiled
    )
    return learned.features(kernels, operation, dtype, board.sms, _rate(board.sms, peak), shape_formula, way)


def _corrected(
    board: Board,
    operation: Operation,
    dtype: str,
    peak: Roof,
    memory: float,
    formula: _Timed,
    aligned: _Timed,
    way: learned.Way,
) -> _Timed:
    """With what was learned, but never above a roof."""
    if not learned.known(operation) or not _was_measured(board):
        return formula
    ratio = learned.ratio(_features(board, operation, dtype, peak, formula, aligned, way), dtype)
    roof = peak.tflops * 1e12 * formula.clock_mhz / peak.clock_mhz
    least = operation.operations / roof
    if not way.warm:
        least = max(least, operation.bytes_moved(dtype) / (memory * 1e9))
    ratio = max(ratio, BELOW_ROOF * least / formula.seconds)
    return replace(
        formula,
        seconds=ratio * formula.seconds,
        math=ratio * formula.math,
        memory=ratio * formula.memory,
        launch=ratio * formula.launch,
    )


def refusal(operation: Operation, dtype: str) -> str:
    """Why cuBLASLt has no kernel for it; "" where it has (its manual, cublasLtMatmul, and a real H100)."""
    along = operation.rows[2]
    size = operation.n if along == "n" else operation.m
    if dtype in ("fp8", "int8") and operation.aligned is None and operation.rows[:2] != "kk":
        return f"cuBLASLt has {dtype} kernels for rows of A and B along k: --layout row or tn"
    if dtype == "fp8" and (operation.k % 16 or (size % 2 and size > 1)):
        return f"cuBLASLt refuses fp8 where k is no multiple of 16, or {along} is odd and not 1"
    if dtype == "int8" and operation.k % 4:
        return "cuBLASLt refuses int8 where k is no multiple of 4"
    return ""


def alignment(operation: Operation, dtype: str) -> int:
    """Bytes that the rows of all matrices are a multiple of, at most 16. In a convolution channels lie side by side."""
    if operation.aligned is not None:
        return min(math.gcd(size * INPUT_BYTES[dtype], FULL_ALIGNMENT) for size in operation.aligned)
    rows = gemm_shapes.row_bytes(dtype, (operation.m, operation.n, operation.k), operation.rows)
    # Kernels for short k were measured: they do not mind.
    lengths = [length for name, length in rows.items() if name != "k" or length > FULL_ALIGNMENT]
    return math.gcd(FULL_ALIGNMENT, *lengths)


def kernel_class(operation: Operation, dtype: str) -> int:
    """The alignment by which the library chooses kernels: the next lower class of productmodel.yml.

    For int8 cuBLASLt has kernels for any k that it takes, as long as the rows of C are multiples of 16 bytes; it takes
    its slowest ones if they are not (1,967 products on a real H100: no exception but vectors).
    """
    bytes_aligned = alignment(operation, dtype)
    if dtype != "int8" or bytes_aligned == FULL_ALIGNMENT:
        return bytes_aligned
    measured_layout = operation.aligned is None and operation.rows == learned.LAYOUT
    full = operation.m == 1 or operation.m * OUTPUT_BYTES[dtype] % FULL_ALIGNMENT == 0
    return bytes_aligned if measured_layout and full else 1


@dataclass(frozen=True)
class _Timed:
    """Seconds."""

    seconds: float
    math: float
    memory: float
    launch: float
    clock_mhz: float
    tiled: Tiled

    @property
    def bound(self) -> str:
        if self.launch >= self.seconds / 2:
            return "launch"
        return "memory" if self.memory > self.math else "math"


def _timed(board: Board, operation: Operation, dtype: str, peak: Roof, memory: float, aligned: int) -> _Timed | Missing:
    kernels = _kernels(board, dtype, aligned, peak)
    if kernels is None or board.sms is None:
        return Missing("not_in_catalogue", f"no products of {dtype} were measured")
    tiled = tiles.fastest(kernels, operation, dtype, board.sms, _rate(board.sms, peak))
    written = operation.bytes_written(dtype)
    moved = operation.bytes_moved(dtype) + (kernels.written - 1) * written
    loading = max(moved, operation.bytes_moved(dtype)) / (memory * 1e9 * kernels.memory)
    launch = kernels.launch_us / 1e6
    clock = peak.clock_mhz
    calculating = seconds = 0.0
    for _ in range(4):  # the clock depends on the load, and the load on the clock: it settles at once
        calculating = tiled.cycles / (clock * 1e6)
        seconds = launch + _norm(calculating, loading, kernels.sharpness)
        busy = operation.operations / seconds / (peak.tflops * 1e12 * clock / peak.clock_mhz)
        used = operation.bytes_moved(dtype) / seconds / (memory * 1e9)
        share = kernels.clock_idle - kernels.clock_math * min(busy, 1.0) ** 2 - kernels.clock_memory * min(used, 1.0)
        clock = peak.clock_mhz * min(1.0, max(LOWEST_CLOCK, share))
    calculating = tiled.cycles / (clock * 1e6)
    seconds = launch + _norm(calculating, loading, kernels.sharpness)
    return _Timed(seconds, calculating, loading, launch, clock, tiled)


def _was_measured(board: Board) -> bool:
    return _units(board) == _units(boards()[catalogue.measured().board])


def _units(board: Board) -> tuple[object, ...]:
    """What math and the start of a kernel depend on. The H200 is the measured H100 with another memory."""
    return board.model.architecture, board.sms, board.power_watts, board.model.compute_capability


def _rate(sms: int, peak: Roof) -> float:
    """Multiply-adds a cycle and SM."""
    return peak.tflops * 1e6 / (2 * sms * peak.clock_mhz)


def _norm(one: float, other: float, exponent: float) -> float:
    """Near the larger of both; more where they are nearly equal. Scaled, so that no power overflows."""
    longest = max(one, other)
    return float(longest * ((one / longest) ** exponent + (other / longest) ** exponent) ** (1 / exponent))


def _kernels(board: Board, dtype: str, aligned: int, peak: Roof) -> Kernels | None:
    """The measured kernels as they would be on this board."""
    known, there = catalogue.kernels(dtype, aligned), boards()[catalogue.measured().board]
    if known is None or board.key == there.key:
        return known
    reference = roofline.roof(there, dtype)
    full = catalogue.kernels(dtype, FULL_ALIGNMENT)
    assert full is not None
    if aligned < FULL_ALIGNMENT and isinstance(reference, Roof) and board.sms and there.sms:
        # Kernels for misaligned rows are those of older architectures, with as many multiply-adds a cycle as here.
        here = peak.tflops / (board.sms * peak.clock_mhz)
        ratio = reference.tflops / (there.sms * reference.clock_mhz) / here
        known = replace(
            known,
            efficiency=min(full.efficiency, known.efficiency * ratio),
            clock_idle=full.clock_idle,
            clock_math=full.clock_math,
            clock_memory=full.clock_memory,
        )
    if board.model.architecture != there.model.architecture:
        usual = catalogue.tiles_of(board.model.architecture)
        # Above 1 it makes up for what `load` counts too much, which weighs less where the units are slower.
        known = replace(
            known,
            tiles=usual or known.tiles,
            sm_share=1.0,
            efficiency=min(1.0, known.efficiency),
            rows_16=0.0,
            rows_32=0.0,
        )
    return _powered(board, dtype, known, there)


def _powered(board: Board, dtype: str, known: Kernels, there: Board) -> Kernels:
    """What the board's power leaves of the clock, from its published speeds; where there are none, as measured."""
    tensor = dtype == "fp64" and "tensor_fp64" in board.model.fma_per_clock_per_sm
    floor = board.floors.get("fp64_tensor" if tensor else dtype)
    if floor is None or board.power_watts == there.power_watts:
        return known
    typical = min(1.0, floor.percent / 100 * TYPICAL / min(1.0, known.efficiency))
    return replace(known, clock_idle=1.0, clock_math=max(0.0, 1.0 - typical), clock_memory=0.0)


def _error(board: Board, operation: Operation, dtype: str, seconds: float, aligned: int) -> tuple[float, int, str]:
    """(per cent, how many measured products that rests on, in words)."""
    source = catalogue.measured()
    kind = kind_of(operation, dtype, seconds, aligned)
    band = productmodel.band(dtype, kind)
    if not _was_measured(board) or band is None:
        words = f"from {source.words}, scaled: {catalogue.unmeasured_words()}"
    elif not learned.known(operation):
        words = f"single products up to {learned.LARGEST} were measured on this board, and no others"
    else:
        words = f"nine in ten of {band.shapes} {kind} {dtype} shapes, measured on {source.frameworks}"
        return band.percent, band.shapes, words
    return catalogue.unmeasured_percent(kind == "short"), 0, words


def kind_of(operation: Operation, dtype: str, seconds: float, aligned: int) -> str:
    """Of errors.yml: "short", whatever the shape; "skinny", whatever the alignment; "aligned" or "misaligned"."""
    if seconds * 1e6 < catalogue.measured().short_us:
        return "short"
    if min(operation.m, operation.n, operation.k) <= SKINNY:
        return "skinny"
    return "aligned" if aligned >= FULL_ALIGNMENT or dtype == "fp32" else "misaligned"


def losses(prediction: Prediction) -> tuple[Factor, ...]:
    """Clock, bound, tile, wave, alignment, kernel; () for what is no single product."""
    operation, tiled = prediction.operation, prediction.tiled
    if operation.kind != "product" or operation.batch > 1:
        return ()
    algorithm = Algorithm(tile_m=tiled.tile_m, tile_n=tiled.tile_n, split_k=tiled.split_k)
    explained = attribution.explain(
        Product(
            dtype=prediction.dtype,
            m=operation.m,
            n=operation.n,
            k=operation.k,
            tflops=prediction.tflops,
            graphics_clock_mhz=prediction.clock_mhz,
            algorithm=algorithm,
        ),
        prediction.board,
        rows="" if prediction.aligned_gain is None else operation.rows,
    )
    if isinstance(explained, Missing):
        return ()
    own = {"clock": f"the clock under this load ({prediction.clock_mhz:.0f} of {prediction.peak.clock_mhz:.0f} MHz)"}
    if prediction.bound == "launch":
        own["kernel"] = "the start of the kernel"
    return tuple(replace(factor, words=own.get(factor.name, factor.words)) for factor in explained.factors)


def words(prediction: Prediction) -> str:
    """ "167 of 1071 TFLOPS: 152 lost to the clock …" """
    factors = losses(prediction)
    return attribution.words(prediction.dtype, prediction.tflops, prediction.peak.tflops, factors) if factors else ""
