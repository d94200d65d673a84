"""Are the readings of a GPU complete and possible?

An older gpuprep did not read some of them; its records have NOT_READ, which is no finding. But every version reads a
group completely or not at all. So if most readings of a group are present and one is missing, that one was lost.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from gpuprep.catalogue import Board
from gpuprep.catalogue.boards import POWER_TOLERANCE
from gpuprep.checks import links, plausible
from gpuprep.checks.common import known
from gpuprep.checks.conditions import (
    ANY_CLOCK_MHZ,
    ANY_MEMORY_CLOCK_MHZ,
    MEMORY_CLOCK_HIGHEST,
    POWER_PEAK,
    most_watts,
)
from gpuprep.checks.evidence import duplicate_gpus
from gpuprep.checks.health.shared import checked_reading
from gpuprep.checks.links import Way, generation_of
from gpuprep.records import NOT_READ, ClockPair, Finding, GpuFacts, Missing, Snapshot, Status, to_json_value
from gpuprep.records.gpu import PcieLink

# ---------------------------------------------------------------- limits of the board

# Which readings are impossible for this board: power limits, watts, clocks, memory of programs? By NVML and catalogue.
# NVML has limits for most readings: a record with a reading beyond its limit contradicts itself. If the catalogue has
# the board, NVML's limits are compared with it, too.

MOST_PID = 2**22  # Linux: PID_MAX_LIMIT
CLOCK_ABOVE = 1.05  # of the highest clock: clocks are read to a step or two
# Of the limits that NVML may be asked for (nvmlDeviceGetPowerManagementLimitConstraints), the same room that the
# catalogue gives a default limit.
BELOW, ABOVE = 1 - POWER_TOLERANCE, 1 + POWER_TOLERANCE


def _beyond_limits(gpu: GpuFacts, board: Board | None) -> Iterator[str]:
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


# ---------------------------------------------------------------- the finding

ALWAYS = ("temperature_c", "event_reasons")  # every gpuprep read them
TOGETHER = (
    "temperatures", "spare_rows", "dram_errors", "sram_errors", "sram_threshold_exceeded", "ecc_default",
    "recovery_action", "pcie_errors", "cores",
)  # fmt: skip
BEFORE_THEM = ("pcie", "throttled", "mig_current", "mig_pending", "nvlinks")
LOST = Missing("not_recorded", "the record has the other readings of this group, but not this one")
# These have limits of their own, and findings that name them.
JUDGED = {
    *ALWAYS, "slowdown_temperature_c", "temperatures", "spare_rows", "dram_errors", "sram_errors", "ecc_errors",
    "retired_pages", "remapped_rows", "pcie", "pcie_errors", "throttled", "supported_clocks",
}  # fmt: skip
# Members of these that no finding names: group, member, its bounds in catalogue/health.yml.
BESIDE = (
    ("throttled", "sw_power_cap", "seconds"), ("throttled", "sync_boost", "seconds"),
    ("pcie_errors", "correctable", "pcie_errors"), ("pcie_errors", "non_fatal", "pcie_errors"),
    ("temperatures", "max_operating", "limit_c"), ("temperatures", "shutdown", "limit_c"),
    ("temperatures", "shutdown_margin", "slowdown_margin_c"),
)  # fmt: skip
NO_REGISTER = 2**32 - 1  # all bits set: a virtual machine that hides a counter, and no figure
LAST_STATE = 15  # performance states are P0 to P15
LONGEST_SECONDS = 1e9  # thirty years
MOST_NVSWITCHES = 64  # a DGX-2 has 12, and a whole rack of 72 GPUs 36
EXPECTED = "possible figures"
AGAIN = "measure again; if it happens again, show gpuprep's authors the record"


def complete(gpu: GpuFacts) -> GpuFacts:
    """The GPU, with LOST for each missing reading that its gpuprep must have read."""
    there = sum(not _not_read(getattr(gpu, name)) for name in TOGETHER)
    names = (*ALWAYS, *((*TOGETHER, *BEFORE_THEM) if 2 * there > len(TOGETHER) else ()))
    changes: dict[str, Any] = {name: LOST for name in names if _not_read(getattr(gpu, name))}
    for field in dataclasses.fields(gpu):
        group: Any = getattr(gpu, field.name)
        if dataclasses.is_dataclass(group) and not isinstance(group, Missing):
            lost = {field.name: LOST for field in dataclasses.fields(group) if _not_read(getattr(group, field.name))}
            changes |= {field.name: dataclasses.replace(group, **lost)} if lost else {}  # type: ignore[type-var]
    return dataclasses.replace(gpu, **changes) if changes else gpu


def finding(subject: str, gpu: GpuFacts, board: Board | None) -> Finding | None:
    """gpu N.figures: UNKNOWN for impossible readings; None without any."""
    read = {name: value for name, value in to_json_value(gpu).items() if name not in JUDGED}
    wrong = [*plausible.figures(read), *_beyond(gpu, board)]
    if not wrong:
        return None
    why = f"no GPU can have {', '.join(wrong[:3])}"
    return Finding(subject, "figures", Status.UNKNOWN, EXPECTED, f"{len(wrong)} impossible", why, AGAIN)


def of_host(snapshot: Snapshot) -> list[Finding]:
    """host.uptime (for error rates), host.nvswitches, gpus.entries: UNKNOWN for impossible values."""
    findings = [] if isinstance(snapshot.gpus, Missing) else duplicate_gpus("gpus", snapshot.gpus)
    seconds, switches = snapshot.kernel.uptime_seconds, snapshot.nvswitches
    if not 0 <= switches <= MOST_NVSWITCHES:
        why = f"{switches} NVSwitches are recorded, and no machine has so many"
        findings.append(Finding("host", "nvswitches", Status.UNKNOWN, "a possible number", f"{switches}", why, AGAIN))
    if 0 <= seconds <= LONGEST_SECONDS:
        return findings
    why = f"an uptime of {seconds:g} seconds is impossible: no error rate can be calculated"
    return [*findings, Finding("host", "uptime", Status.UNKNOWN, "a possible time", f"{seconds:g} s", why, AGAIN)]


def _not_read(reading: object) -> bool:
    return isinstance(reading, Missing) and reading.reason == "not_read"


def _link(link: PcieLink | Missing, board: Board | None) -> Iterator[str]:
    if isinstance(link, Missing):
        return
    generation, width, most, widest, device = (
        None if isinstance(reading, Missing) else reading
        for reading in (link.generation, link.width, link.max_generation, link.max_width, link.device_max_generation)
    )
    highest = (Way(most, widest), Way(device, None))
    yield from links.impossible(Way(generation, width), highest, generation_of(board))


def _beside(gpu: GpuFacts) -> Iterator[str]:
    """Impossible readings of BESIDE. 0 is ignored: the driver returns 0 for a limit that the board does not have."""
    for group, member, kind in BESIDE:
        reading = getattr(getattr(gpu, group), member, NOT_READ)
        checked = checked_reading(reading, kind, "")
        if reading not in (0, NO_REGISTER) and isinstance(checked, Missing) and checked.reason == "impossible":
            yield f"{group}.{member} = {reading:g}"


def _beyond(gpu: GpuFacts, board: Board | None) -> Iterator[str]:
    used, total = gpu.memory_used_mib, gpu.memory_total_mib
    if not isinstance(used, Missing) and not isinstance(total, Missing) and used > total:
        yield f"memory_used_mib = {used} of {total}"
    state = gpu.performance_state
    if not isinstance(state, Missing) and state > LAST_STATE:
        yield f"performance_state = {state}"
    yield from _link(gpu.pcie, board)
    if not isinstance(gpu.utilization, Missing):
        for name, percent in to_json_value(gpu.utilization).items():
            if isinstance(percent, int) and percent > 100:
                yield f"utilization.{name} = {percent} %"
    yield from _beside(gpu)
    yield from _beyond_limits(gpu, board)
