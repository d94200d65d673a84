"""Was a GPU measured without other processes, and was its clock not lowered? The same rules for every probe."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from typing import Union

from gpuprep.catalogue import Board, boards
from gpuprep.performance.clock_events import HW_SLOWDOWN, HW_THERMAL, POWER_BRAKE, SW_THERMAL, SYNC_BOOST, named
from gpuprep.records import Finding, Missing, ProcessOnGpu, Status
from gpuprep.records.evidence import Figure
from gpuprep.records.evidence.shared import Process, Telemetry
from gpuprep.untrusted.plaintext import one_line

GRAVE = HW_SLOWDOWN | HW_THERMAL | POWER_BRAKE
MANY_SAMPLES = 20  # among so many samples, a single one is only a moment
ALL_REASONS = 0xFFFF  # nvml.h uses nine bits; a much larger value is no mask
COLDEST_C, HOTTEST_C = -20.0, 130.0  # of any chip that works
SENSORS_DIFFER_C = 3.0
ANY_CLOCK_MHZ = 3600  # above the clock of every known board
ANY_MEMORY_CLOCK_MHZ = 20_000  # the same: NVML reports 14001 for the fastest known memory (GDDR7)
ANY_MEMORY_MIB = 500_000  # the same: a B300 has 275,040
MEMORY_CLOCK_HIGHEST = 1.3  # of the board's own: overclocked cards have less
POWER_PEAK = 1.6  # of the limit: H100 and H200 draw up to 1.3 of it for milliseconds
LIMIT_ABOVE_MAXIMUM = 1.1  # of the catalogue's highest limit of the board, which nvidia-smi -q printed
# Of the usual limit, where no highest is known: makers of GeForce cards allow up to 1.48 of it.
LIMIT_ABOVE_DEFAULT = 1.5
SHOW_PROVIDER = "look at the machine's cooling and power supply; in a cloud, show the provider this report"
Processes = Union[Sequence[Union[Process, Missing]], Missing]


def mask(reading: float | Missing | None) -> int | None:
    """NVML's event reasons as a mask; None if they were not read or are not a valid mask."""
    if reading is None or isinstance(reading, Missing) or not 0 <= reading <= ALL_REASONS or reading != int(reading):
        return None
    return int(reading)


def masks_of(telemetry: Telemetry | None) -> list[int | None]:
    """The event reasons of each sample; None for an invalid mask."""
    return [mask(reasons) for reasons in telemetry.event_reasons if reasons is not None] if telemetry else []


def alone(subject: str, prop: str, listed: Processes) -> tuple[str, Finding]:
    """(why the figures do not count, or ""; the finding). Another process on the GPU makes figures too low."""
    expected = "no other process on the GPU"
    remedy = "stop what uses the GPU (nvidia-smi shows it), then measure again"
    if isinstance(listed, Missing):
        why = f"whether another process used the GPU is not known{f' ({listed.detail})' if listed.detail else ''}"
        return why, Finding(subject, prop, Status.UNKNOWN, expected, "not known", why, remedy)
    if not listed:
        return "", Finding(subject, prop, Status.PASS, expected, "none")
    names = ", ".join(
        "an entry that is not valid" if isinstance(process, Missing) else shown_process(process)
        for process in listed[:3]
    )
    why = f"another process used the GPU while it was measured: {names}"
    return why, Finding(subject, prop, Status.UNKNOWN, expected, names, why, remedy)


def no_temperature(degrees: float, board: Board | None) -> bool:
    """Whether this temperature is impossible, because the board would have switched itself off."""
    shutdown = (board.temperatures_c or {}).get("shutdown") if board else None
    hottest = HOTTEST_C if shutdown is None else shutdown + SENSORS_DIFFER_C
    return not COLDEST_C <= degrees <= hottest


def most_watts(board: Board | None) -> float:
    """The highest possible power limit. Makers of GeForce cards may allow more than NVIDIA's own board does."""
    if board is None or not board.power_watts:
        return _most_watts_of_any()
    if board.power_maximum_watts and not board.model.free_clocks:
        return LIMIT_ABOVE_MAXIMUM * board.power_maximum_watts
    return LIMIT_ABOVE_DEFAULT * board.power_watts


@cache
def _most_watts_of_any() -> float:
    return max(most_watts(board) for board in boards().values() if board.power_watts)


def heat(subject: str, prop: str, board: Board | None, readings: Sequence[tuple[Figure, int | None]]) -> list[Finding]:
    """WARN if a GPU was at its slowdown temperature without NVML's heat reason. `readings`: (°C, event reasons)."""
    slowdown = (board.temperatures_c or {}).get("slowdown") if board else None
    hot = [
        degrees
        for degrees, reasons in readings
        if not isinstance(degrees, Missing)
        and not no_temperature(degrees, board)
        and not (reasons or 0) & (HW_THERMAL | SW_THERMAL)
    ]
    if slowdown is None or not hot or max(hot) < slowdown:
        return []
    expected, shown = f"below {slowdown} °C", f"{max(hot):g} °C"
    why = f"the GPU had {shown} while it was measured; at {slowdown} °C its hardware slows down, and NVML named no heat"
    return [Finding(subject, prop, Status.WARN, expected, shown, why, "look at the machine's cooling")]


def slowdowns(
    subject: str,
    prop: str,
    read: Sequence[int | None],
    *,
    sampled: Sequence[int | None] = (),
    measured: str = "it",
    clock: str = "clock",
) -> Finding:
    """FAIL for hardware slowdowns; WARN for heat and for a slower GPU of a group; the power cap is normal under load.

    `read`: event reasons of each part of the measurement, None if not read; `sampled`: those of single readings, None
    for an invalid mask; none where none were kept.
    `measured` and `clock` are words of the sentences.
    """
    expected = "no slowdown by heat or by the hardware"
    known = [reasons for reasons in read if reasons is not None]
    seen = 0
    for reasons in (*known, *sampled):
        seen |= reasons or 0
    shown = ", ".join(reason.name for reason in named(seen)) or "none"
    if seen & GRAVE:
        parts = sum(bool(reasons & GRAVE) for reasons in known)
        grave = sum(bool((reasons or 0) & GRAVE) for reasons in sampled)
        passing = len(sampled) >= MANY_SAMPLES and grave <= 1 and parts <= 1
        share = f" in {grave} of {len(sampled)} samples" if sampled else ""
        why = f"{', '.join(r.name for r in named(seen & GRAVE))} while {measured} was measured{share}"
        status = Status.WARN if passing else Status.FAIL
        return Finding(subject, prop, status, expected, shown, why, SHOW_PROVIDER)
    if not known or len(known) < len(read) or None in sampled:
        why = f"NVML's event reasons, which explain the {clock}, could not be read"
        return Finding(subject, prop, Status.UNKNOWN, expected, "not readable", why, "measure again")
    if seen & SW_THERMAL:
        why = f"the driver lowered the {clock} because of heat while {measured} was measured"
        return Finding(subject, prop, Status.WARN, expected, shown, why, "look at the machine's cooling")
    if seen & SYNC_BOOST:
        why = f"a slower GPU of its sync boost group kept the {clock} low while {measured} was measured"
        remedy = "take the GPUs out of the sync boost group (dcgmi config), and measure again"
        return Finding(subject, prop, Status.WARN, expected, shown, why, remedy)
    return Finding(subject, prop, Status.PASS, expected, shown)


# ---------------------------------------------------------------- programs on a GPU

AGE_UNITS = (("d", 86400), ("h", 3600), ("min", 60), ("s", 1))
MOST_NAME_LETTERS = 64  # of a name: any user can give a program a long name
OLDEST_SECONDS = 10**10  # three centuries: no program is older


def shown_process(process: ProcessOnGpu | Process) -> str:
    """The text for a process of a record or of a measurement's `other_processes`; unknown parts are left out."""
    name, owner, age = process.name, process.owner, process.age_seconds
    about = [f"pid {'?' if process.pid is None else process.pid}"]
    if isinstance(owner, str) and owner:
        about.append(one_line(owner, MOST_NAME_LETTERS))
    if isinstance(age, int) and 0 <= age < OLDEST_SECONDS:
        about.append(f"since {span(age)}")
    return f"{one_line(name, MOST_NAME_LETTERS) if name else 'a program'} ({', '.join(about)})"


def shown_processes(processes: Iterable[ProcessOnGpu | Process]) -> str:
    return ", ".join(map(shown_process, processes))


def span(seconds: int) -> str:
    """A duration in the largest unit that fits: "2 h"."""
    unit, length = next(((unit, length) for unit, length in AGE_UNITS if seconds >= length), AGE_UNITS[-1])
    return f"{seconds // length} {unit}"
