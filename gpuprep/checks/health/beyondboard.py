"""Which readings are impossible for this board: power limits, watts, clocks, memory of programs? By NVML and catalogue.

NVML has limits for most readings: a record with a reading beyond its limit contradicts itself. If the catalogue has the
board, NVML's limits are compared with it, too.
"""

from __future__ import annotations

from collections.abc import Iterator

from gpuprep.catalogue import Board
from gpuprep.catalogue.boards import POWER_TOLERANCE
from gpuprep.checks.common import known
from gpuprep.checks.conditions import (
    ANY_CLOCK_MHZ,
    ANY_MEMORY_CLOCK_MHZ,
    MEMORY_CLOCK_HIGHEST,
    POWER_PEAK,
    most_watts,
)
from gpuprep.records import ClockPair, GpuFacts, Missing

MOST_PID = 2**22  # Linux: PID_MAX_LIMIT
CLOCK_ABOVE = 1.05  # of the highest clock: clocks are read to a step or two
# Of the limits that NVML may be asked for (nvmlDeviceGetPowerManagementLimitConstraints), the same room that the
# catalogue gives a default limit.
BELOW, ABOVE = 1 - POWER_TOLERANCE, 1 + POWER_TOLERANCE


def readings(gpu: GpuFacts, board: Board | None) -> Iterator[str]:
    """ "power.current_watts = 2000, and the board has at most 770"."""
    yield from _limits(gpu, board)
    yield from _clocks(gpu, board)
    total = known(gpu.memory_total_mib)
    for process in () if isinstance(gpu.processes, Missing) else gpu.processes:
        if process.pid > MOST_PID:
            yield f"a program with the number {process.pid}"
        taken = known(process.memory_mib)
        if taken is not None and total is not None and taken > total:
            yield f"a program with {taken:g} MiB of {total:g}"


def _limits(gpu: GpuFacts, board: Board | None) -> Iterator[str]:
    """Power limits outside NVML's own bounds, and NVML's bounds outside the board's."""
    power, most = gpu.power, most_watts(board)
    least, highest = known(power.min_watts), known(power.max_watts)
    if least is not None and highest is not None and least > highest:
        yield f"power.min_watts = {least:g}, above power.max_watts, {highest:g}"
    if highest is not None and highest > most:
        yield f"power.max_watts = {highest:g}, and the board has at most {most:g}"
    for name in ("current", "default"):
        watts = known(getattr(power, f"{name}_watts"))
        if watts is None:
            continue
        if watts == 0:
            yield f"power.{name}_watts = 0"
        elif least is not None and watts < BELOW * least:
            yield f"power.{name}_watts = {watts:g}, below the lowest, {least:g}"
        elif highest is not None and watts > ABOVE * highest:
            yield f"power.{name}_watts = {watts:g}, above the highest, {highest:g}"
        elif watts > most:
            yield f"power.{name}_watts = {watts:g}, and the board has at most {most:g}"
    drawn, limit = known(gpu.power_watts), known(power.current_watts) or most
    if drawn is not None and drawn > POWER_PEAK * limit:
        yield f"power_watts = {drawn:g}, far above the limit, {limit:g}"


def _clocks(gpu: GpuFacts, board: Board | None) -> Iterator[str]:
    """Clocks above NVML's maximum, else above the board's, else above that of any known board."""
    video = board.video_mhz if board and not board.model.free_clocks and "video_mhz" not in board.unverified else None
    own = (MEMORY_CLOCK_HIGHEST, board.memory_mhz) if board and board.memory_mhz else (1.0, ANY_MEMORY_CLOCK_MHZ)
    any_clock, highest, fastest = (1.0, ANY_CLOCK_MHZ), gpu.max_graphics_clock_mhz, gpu.max_memory_clock_mhz
    of_gpu = any_clock if isinstance(highest, Missing) or not highest else (CLOCK_ABOVE, highest)
    of_memory = own if isinstance(fastest, Missing) or not fastest else (CLOCK_ABOVE, fastest)
    rows = [
        ("max_graphics_clock_mhz", highest, any_clock),
        ("max_memory_clock_mhz", fastest, own),
        ("graphics_clock_mhz", gpu.graphics_clock_mhz, of_gpu),
        ("memory_clock_mhz", gpu.memory_clock_mhz, of_memory),
        ("video_clock_mhz", gpu.video_clock_mhz, (CLOCK_ABOVE, video) if video else any_clock),
    ]
    for name in ("application_clocks", "default_application_clocks"):
        pair = getattr(gpu, name)
        if isinstance(pair, ClockPair):
            rows += [
                (f"{name}.graphics_mhz", pair.graphics_mhz, of_gpu),
                (f"{name}.memory_mhz", pair.memory_mhz, of_memory),
            ]
    for name, reading, (room, most) in rows:
        clock = known(reading)
        if clock is not None and clock > room * most:
            yield f"{name} = {clock:g}, above the highest, {most:g}"
