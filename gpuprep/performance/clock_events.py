"""NVML's clock event reasons: what each bit says about why a GPU is slow.

Source of the bits: nvml.h, nvmlClocksEventReason* (the same values as the older nvmlClocksThrottleReason*).
"""

from __future__ import annotations

from dataclasses import dataclass

from gpuprep import catalogue
from gpuprep.records import Missing
from gpuprep.records.evidence.gemm import GemmGpu, Product

NEAR_LIMIT = 0.8  # of the power limit: a power cap that acts keeps a GPU at it (H100, H200: 0.92 and more)
AT_LIMIT = 0.97  # of the power limit: a GPU that draws so much is held by it, whether NVML named the cap or not
SHORT_SECONDS = 1.0  # of a load: within it NVML may name no reason yet (see unnamed_cap); measured up to 0.4 s
IDLE_WATTS = 0.2  # of the power limit: no GPU that calculates draws so little; the reading is not of the load
IDLE, APPLICATION_CLOCKS, SW_POWER_CAP, HW_SLOWDOWN = 0x1, 0x2, 0x4, 0x8
SYNC_BOOST, SW_THERMAL, HW_THERMAL, POWER_BRAKE, DISPLAY_CLOCKS = 0x10, 0x20, 0x40, 0x80, 0x100


@dataclass(frozen=True)
class Reason:
    bit: int
    name: str  # short, for a table
    cause: str  # what the speed was lost to


# The worst first: the first that is set is named as the cause of a low clock. HW_SLOWDOWN is set together with the
# two that say more.
REASONS = (
    Reason(HW_THERMAL, "HW thermal slowdown", "the hardware's thermal slowdown"),
    Reason(POWER_BRAKE, "HW power brake", "the power brake (the machine's power supply asks for less)"),
    Reason(HW_SLOWDOWN, "HW slowdown", "a hardware slowdown (heat or power)"),
    Reason(SW_THERMAL, "SW thermal slowdown", "heat"),
    Reason(SW_POWER_CAP, "SW power cap", "the power cap"),
    Reason(SYNC_BOOST, "sync boost", "a slower GPU of its sync boost group"),
    Reason(APPLICATION_CLOCKS, "application clocks", "application clocks that are set low"),
    Reason(DISPLAY_CLOCKS, "display clocks", "clocks that a display asks for"),
    Reason(IDLE, "idle", "an idle GPU (it was not loaded while the clock was read)"),
)


def named(event_reasons: int) -> tuple[Reason, ...]:
    return tuple(reason for reason in REASONS if event_reasons & reason.bit)


def clock_cause(gemm: Product, gpu: catalogue.Board, around: GemmGpu | None) -> str:
    """What kept the clock down during this GEMM, for "3 TFLOPS lost to …"."""
    mask = gemm.event_reasons
    if isinstance(mask, Missing) or mask < 0:
        return "a lower clock (NVML's reasons were not read)"
    reasons = named(int(mask))
    if not reasons:
        if (watts := unnamed_cap(gemm, gpu, around)) is not None:
            return f"{_power_cap(gemm, gpu, around)} (by the {watts:.0f} W that it drew: NVML named no reason)"
        return "a lower clock that NVML gives no reason for"
    first = reasons[0]
    if first.bit == SW_POWER_CAP:
        return _power_cap(gemm, gpu, around)
    degrees = gemm.temperature_c
    if first.bit in (HW_THERMAL, SW_THERMAL) and not isinstance(degrees, Missing):
        return f"{first.cause} at {degrees:.0f} °C"
    return first.cause


def power_limit(gpu: catalogue.Board, around: GemmGpu | None) -> float | None:
    """Watts: what was set while it was measured, else the board's own."""
    limit = around.power_limit_watts if around else None
    return gpu.power_watts if limit is None or isinstance(limit, Missing) or limit <= 0 else limit


def unnamed_cap(gemm: Product, gpu: catalogue.Board, around: GemmGpu | None) -> float | None:
    """Watts of a GPU at its power limit for which NVML named no reason in a short load; else None.

    NVML's reasons lag behind: an H100 drew 861 of 700 W at a lowered clock, and ten readings in 0.4 s named nothing. In
    other runs of the same load they named the power cap. In a longer load they have time to.
    """
    limit, highest = power_limit(gpu, around), highest_watts(gemm)
    taken = [second for second in gemm.telemetry.seconds if second is not None] if gemm.telemetry else []
    short = bool(taken) and max(taken) <= SHORT_SECONDS
    if gemm.event_reasons != 0 or not short or limit is None or highest is None:
        return None
    return highest if highest >= AT_LIMIT * limit else None


def held_below(gemm: Product, gpu: catalogue.Board, around: GemmGpu | None) -> tuple[float, float] | None:
    """(watts, limit) of a GPU that NVML says its power cap holds, though it draws far less; else None."""
    limit, highest = power_limit(gpu, around), highest_watts(gemm)
    if limit is None or highest is None:
        return None
    return (highest, limit) if IDLE_WATTS * limit < highest < NEAR_LIMIT * limit else None


def highest_watts(gemm: Product) -> float | None:
    """NVML's readings are means that lag behind a burst, so the highest of its samples counts."""
    drawn = gemm.power_watts
    samples = [watts for watts in gemm.telemetry.power_watts if watts] if gemm.telemetry else []
    return None if isinstance(drawn, Missing) or drawn <= 0 else max([drawn, *samples])


def _power_cap(gemm: Product, gpu: catalogue.Board, around: GemmGpu | None) -> str:
    watts, usual = power_limit(gpu, around), gpu.power_watts
    if watts is None:
        return "the power cap"
    if held := held_below(gemm, gpu, around):
        return f"something outside the GPU that holds it at {held[0]:.0f} of {held[1]:.0f} W"
    drawn = gemm.power_watts
    if not isinstance(drawn, Missing) and drawn <= IDLE_WATTS * watts:
        return f"the {watts:.0f} W power cap (though {drawn:.0f} W were read, which is the clock of an idle GPU)"
    lowered = f", which is set below the card's {usual:g} W" if usual and watts < 0.97 * usual else ""
    return f"the {watts:.0f} W power cap{lowered}"
