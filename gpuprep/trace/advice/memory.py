"""Rules about how full the GPU's memory is."""

from __future__ import annotations

from gpuprep.trace.advice.evidence import Evidence
from gpuprep.trace.advice.found import Found


def peak(e: Evidence) -> tuple[float, float] | None:
    """(per cent of the GPU's memory, GB) at the peak of the fullest GPU; None where the profile does not tell."""
    memory = e.trace.memory
    peaks = []
    for device in e.trace.devices:
        mine = (memory.device == device.index) & (memory.allocated >= 0)
        if device.memory_bytes > 0 and mine.any():
            most = float(memory.allocated[mine].max())
            peaks.append((100 * most / device.memory_bytes, most / 1e9))
    return max(peaks) if peaks else None


def mem_high(e: Evidence) -> Found | None:
    most = peak(e)
    return Found({"percent": most[0], "gb": most[1]}) if most and most[0] > 90 else None


def mem_low(e: Evidence) -> Found | None:
    most = peak(e)
    return Found({"percent": most[0], "gb": most[1]}) if most and most[0] < 25 else None
