"""Are the figures of a matrix product possible? Figures that contradict each other, chip or catalogue do not count."""

from __future__ import annotations

from gpuprep.checks.common import known
from gpuprep.checks.conditions import MEMORY_CLOCK_HIGHEST, POWER_PEAK, most_watts, no_temperature
from gpuprep.checks.floors import apart
from gpuprep.checks.judges.gemm.gemmrecord import Gpu, shape_of
from gpuprep.performance import attribution, roofline
from gpuprep.performance.attribution import Attribution
from gpuprep.performance.clock_events import IDLE
from gpuprep.performance.roofline import INPUT_BYTES, OUTPUT_BYTES, Roof, speed_unit
from gpuprep.records import Missing
from gpuprep.records.evidence.gemm import Product

ABOVE_ROOF = 1.03  # clocks are read to a per cent or two
FREE_CLOCKS = 1.25  # of the rated boost, where makers leave the clock free: an RTX 5090 ran at 1.2 of it
ABOVE_MEMORY = 1.3  # of what memory delivers: some of the matrices stays in the cache
DURATION_PERCENT = 3.0  # durations are written with two digits
ABOVE_HIGHEST_CLOCK = 1.02
BOOSTS = 1.6  # no board runs at so many times its rated boost
POWER_LEAST = 0.02  # of the limit: a GPU at rest draws more, so these are other units than watts
LARGEST_TILE = 1024  # elements; cuBLAS's own reach 512
SHORTEST_LONG_RUN_SECONDS = 0.1
IDLE_CLOCK = 0.5  # of the boost: a loaded GPU that runs slower says why


def impossible(gpu: Gpu, gemm: Product) -> str:
    """Why these figures of a product are impossible; "" if they are possible."""
    lasting = attribution.sustained(gemm)
    room, reasons = _room(gpu, gemm), (_figures(gpu, gemm), _duration(gemm), _speed(gpu, gemm), _idle(gpu, gemm))
    why = next(filter(None, (room, *reasons, _tiles(gemm))), "")
    if not why and lasting is not None:
        why = next(filter(None, (_figures(gpu, lasting), _speed(gpu, lasting), _length(gemm))), "")
    return f"{gemm.dtype} {shape_of(gemm)}: {why}" if why else ""


def _room(gpu: Gpu, gemm: Product) -> str:
    """Why the three matrices do not fit into the board's memory; "" if they do."""
    dtype, room = gemm.dtype, gpu.facts.memory_mib if gpu.facts else None
    if gemm.m is None or gemm.n is None or gemm.k is None or dtype not in INPUT_BYTES or not room:
        return ""
    taken = INPUT_BYTES[dtype] * (gemm.m + gemm.n) * gemm.k + OUTPUT_BYTES[dtype] * gemm.m * gemm.n
    if taken <= room * 2**20:
        return ""
    needed, there = apart(taken / 2**30, room / 2**10, 0)
    return f"its matrices take {needed} GiB, and the board has {there}"


def _figures(gpu: Gpu, gemm: Product) -> str:
    """Why clock, temperature or watts are impossible for the board; "" if they are possible."""
    board, clock, highest = gpu.facts, known(gemm.graphics_clock_mhz), known(gpu.measured.max_graphics_clock_mhz)
    if clock is not None and clock <= 0:
        return f"a clock of {clock:g} MHz under load"
    if clock is not None and highest is not None and highest > 0 and clock > ABOVE_HIGHEST_CLOCK * highest:
        return f"a clock of {clock:.0f} MHz is above the GPU's highest, {highest:.0f} MHz"
    if clock is not None and board and board.boost_mhz and clock > BOOSTS * board.boost_mhz:
        return f"a clock of {clock:.0f} MHz is more than this board can have ({board.boost_mhz} MHz boost)"
    memory = known(gemm.memory_clock_mhz)
    if memory is not None and memory <= 0:
        return f"a memory clock of {memory:g} MHz under load"
    if memory is not None and board and board.memory_mhz and memory > MEMORY_CLOCK_HIGHEST * board.memory_mhz:
        return f"a memory clock of {memory:.0f} MHz is more than this board can have ({board.memory_mhz} MHz)"
    degrees = known(gemm.temperature_c)
    if degrees is not None and no_temperature(degrees, board):
        return f"a temperature of {degrees:g} °C"
    watts, limit = known(gemm.power_watts), known(gpu.measured.power_limit_watts)
    if watts is not None and watts <= 0:
        return f"a power of {watts:g} W under load"
    own = board.power_watts if board else None
    if limit is not None and limit > most_watts(board):
        shown, most = apart(limit, most_watts(board), 0)
        return f"a power limit of {shown} W, and the board has at most {most} W"
    if watts is not None and own and watts < POWER_LEAST * own:
        return f"{watts:.2g} W under load: a board of {own:g} W draws more at rest"
    if watts is not None and limit is not None and 0 < POWER_PEAK * limit < watts:
        return f"{watts:.0f} W is far above the power limit of {limit:.0f} W"
    return ""


def _duration(gemm: Product) -> str:
    """Why duration and speed do not fit 2 m n k operations; "" if they do."""
    taken, speed = known(gemm.microseconds), known(gemm.tflops)
    if taken is None or speed is None or gemm.m is None or gemm.n is None or gemm.k is None:
        return ""
    if taken <= 0:
        return f"it took {taken:g} µs"
    by_time = 2e-6 * gemm.m * gemm.n * gemm.k / taken
    if abs(by_time - speed) <= max(DURATION_PERCENT / 100 * speed, 0.001):
        return ""
    implied, recorded = apart(by_time, speed)
    return f"{taken:g} µs are {implied} {speed_unit(gemm.dtype)}, and {recorded} are recorded"


def _speed(gpu: Gpu, gemm: Product) -> str:
    """Why the speed is above the roof at the recorded clock, or above the memory's speed; "" if it is not."""
    speed, clock = known(gemm.tflops), known(gemm.graphics_clock_mhz)
    if speed is None or gpu.facts is None:
        return ""
    above = roofline.roof(gpu.facts, gemm.dtype, gemm.accumulate)
    if not isinstance(above, Roof):
        return ""
    # A clock a little above the rated boost is normal; without a clock the boost is what is known.
    unread = FREE_CLOCKS if gpu.facts.model.free_clocks else 1.0
    roof = above.tflops * (clock / above.clock_mhz if clock is not None and clock > 0 else unread)
    if speed > ABOVE_ROOF * roof:
        at = f"at {clock:.0f} MHz" if clock is not None else f"({above.formula})"
        shown, peak = apart(speed, roof)
        why = f"{shown} {speed_unit(gemm.dtype)} is more than the peak {at}, {peak}"
        return why if clock is not None else f"{why}; the clock may have been above the boost, it is not recorded"
    explained = attribution.explain(gemm, gpu.facts, gpu.measured)
    if gpu.published or not isinstance(explained, Attribution) or clock is None:
        return ""
    if explained.memory_bound and explained.factor("kernel").value > ABOVE_MEMORY:
        return f"{speed:.3g} {speed_unit(gemm.dtype)} is more than this board's memory can feed"
    return ""


def _idle(gpu: Gpu, gemm: Product) -> str:
    """Why the readings are those of an idle GPU at a low clock; "" if they are not."""
    mask, clock = known(gemm.event_reasons), known(gemm.graphics_clock_mhz)
    if mask is None or int(mask) != IDLE or clock is None or gpu.facts is None or not gpu.facts.boost_mhz:
        return ""
    if clock >= IDLE_CLOCK * gpu.facts.boost_mhz:
        return ""
    return f"NVML called the GPU idle at {clock:.0f} MHz while a product was running"


def _length(gemm: Product) -> str:
    """Why the sustained load is too short (heat and power need more than a second to act); "" if it is not."""
    lasting = gemm.sustained
    seconds = None if lasting is None or isinstance(lasting, Missing) else known(lasting.seconds)
    if seconds is None or seconds >= SHORTEST_LONG_RUN_SECONDS:
        return ""
    return f"a long run of {seconds:g} seconds: neither heat nor power act so soon"


def _tiles(gemm: Product) -> str:
    """Why no kernel can have these tiles, which would excuse a slow GPU; "" if they are possible."""
    algorithm = gemm.algorithm
    if isinstance(algorithm, Missing):
        return ""
    rows, columns = algorithm.tile_m or 0, algorithm.tile_n or 0
    if max(rows, columns) <= LARGEST_TILE:
        return ""
    return f"tiles of {rows or '?'}x{columns or '?'} are larger than any kernel's"
