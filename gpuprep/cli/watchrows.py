"""The table of `gpuprep watch`: the text of each cell, for the screen and for plain lines. Knows no terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from gpuprep.records import ClockPair, Missing
from gpuprep.untrusted.plaintext import one_line
from gpuprep.workflows.watch import STATES

if TYPE_CHECKING:
    from gpuprep.records import ProcessOnGpu
    from gpuprep.workflows.watch import Held, Seen, Watched

HEAD = ("HOST", "GPU", "STATE", "SM MHz", "MEM MHz", "POWER W", "°C", "SM%", "ENC%", "DEC%", "MEMORY MiB", "")
COLORS = {"ERROR": "red", "UNKNOWN": "magenta", "SLOW": "yellow", "CHANGED": "yellow", "busy": "green"}
KEY = "clocks and power: now/certified; in (brackets): set, of a GPU that was not certified"
MOST_NOTES = 300  # letters
MOST_NAME = 40
FEW = 3  # processes that are named


def rows(hosts: Sequence[Watched]) -> list[tuple[str, ...]]:
    """One row per GPU, in the order of `hosts` (the worst first); a host that cannot be read is one row."""
    table: list[tuple[str, ...]] = []
    for host in hosts:
        name = one_line(host.name, 255) + (" SIMULATED" if host.simulated else "")
        if not host.gpus:
            notes = "; ".join([host.error, *host.notes])
            table.append((name, "", host.state, *[""] * 8, one_line(notes, MOST_NOTES)))
            continue
        for place, seen in enumerate(host.gpus):
            table.append(_row(name, seen, host.notes if place == 0 else ()))
    return table


def counted(hosts: Sequence[Watched]) -> str:
    """ "12 GPUs of 3 hosts: 1 ERROR, 11 idle"; a host that cannot be read is counted once."""
    states = Counter(seen.state for host in hosts for seen in host.gpus)
    states["UNKNOWN"] += sum(1 for host in hosts if not host.gpus)
    gpus = sum(len(host.gpus) for host in hosts)
    counts = ", ".join(f"{states[state]} {state}" for state in STATES if states[state])
    return f"{gpus} GPU{'s' * (gpus != 1)} of {len(hosts)} host{'s' * (len(hosts) != 1)}: {counts}"


def _row(name: str, seen: Seen, of_host: Sequence[str]) -> tuple[str, ...]:
    gpu, held = seen.gpu, seen.held
    clocks = gpu.application_clocks if isinstance(gpu.application_clocks, ClockPair) else None
    sm, memory = (clocks.graphics_mhz, clocks.memory_mhz) if clocks else (None, None)
    limit = None if isinstance(gpu.power_limit_watts, Missing) else gpu.power_limit_watts
    if held:
        sm, memory, limit = held.graphics_mhz, held.memory_mhz, held.watts
    notes = [*seen.notes, *of_host, *_processes(seen)]
    return (
        name,
        one_line(f"{gpu.index} {gpu.name.removeprefix('NVIDIA ')}", MOST_NAME),
        seen.state,
        _against(gpu.graphics_clock_mhz, held, sm),
        _against(gpu.memory_clock_mhz, held, memory),
        _against(gpu.power_watts, held, limit),
        _shown(gpu.temperature_c),
        _shown(gpu.gpu_utilization_percent),
        _shown(gpu.encoder_utilization_percent),
        _shown(gpu.decoder_utilization_percent),
        f"{_shown(gpu.memory_used_mib)}/{_shown(gpu.memory_total_mib)}",
        one_line("; ".join(notes), MOST_NOTES),
    )


def _shown(value: float | Missing | None) -> str:
    return "?" if value is None or isinstance(value, Missing) else f"{value:.0f}"


def _against(now: float | Missing, held: Held | None, wanted: float | None) -> str:
    if wanted is None:
        return _shown(now)
    return f"{_shown(now)}/{wanted:.0f}" if held else f"{_shown(now)}/({wanted:.0f})"


def _processes(seen: Seen) -> list[str]:
    """ "alice: python3 1024 MiB", those with the most memory first, and how many more."""
    running_processes = seen.gpu.processes
    if isinstance(running_processes, Missing):
        return []
    processes = [_process(process) for process in running_processes[:FEW]]
    more = len(running_processes) - len(processes) + seen.gpu.more_processes
    return [*processes, *([f"{more} more processes"] if more else [])]


def _process(process: ProcessOnGpu) -> str:
    owner = "" if isinstance(process.owner, Missing) else f"{one_line(process.owner, MOST_NAME)}: "
    memory = "" if isinstance(process.memory_mib, Missing) else f" {process.memory_mib} MiB"
    return f"{owner}{one_line(process.name.rpartition('/')[2], MOST_NAME) or f'pid {process.pid}'}{memory}"
