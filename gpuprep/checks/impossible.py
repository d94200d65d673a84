"""Finds recorded figures that no measurement can produce: NaN, infinite, negative, a GPU without SMs, 4 GHz.

They are UNKNOWN in every probe.

Decoding turns such a figure into "not recorded" (records/evidence.py), and many checks accept a missing figure.
But a program that wrote one impossible figure may have written other wrong ones. So this module reads the values as the
record has them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from gpuprep.checks.conditions import (
    ANY_CLOCK_MHZ,
    ANY_MEMORY_CLOCK_MHZ,
    COLDEST_C,
    HOTTEST_C,
    POWER_PEAK,
    SENSORS_DIFFER_C,
    most_watts,
)
from gpuprep.checks.evidence import Values
from gpuprep.records import Finding, Missing, Status
from gpuprep.records.evidence import LARGEST, is_missing, missing_of

NO_NUMBERS = ("NaN", "Infinity", "-Infinity")  # how the codec keeps a float that is not finite
NAMED = 3
# Every GPU has more than none of these.
POSITIVE = {
    "sms", "l2_mib", "power_limit_watts", "max_graphics_clock_mhz", "max_video_clock_mhz", "iterations", "buffer_mib",
    "repeats",
}  # fmt: skip
# Of others 0. exit_code: of a program that a signal ended. saved_seconds: one process may be the slower way.
LEAST: Mapping[str, float] = {"exit_code": -255, "saved_seconds": -100_000, "temperature_c": COLDEST_C}
EXPECTED = "possible figures"
# No GPU and no host has more, whatever its board: of single readings, too, which a board's own checks do not look at.
MOST: Mapping[str, float] = {
    **dict.fromkeys(("graphics_clock_mhz", "video_clock_mhz", "max_graphics_clock_mhz", "max_video_clock_mhz"),
                    ANY_CLOCK_MHZ),
    "memory_clock_mhz": ANY_MEMORY_CLOCK_MHZ,
    "temperature_c": HOTTEST_C + SENSORS_DIFFER_C,
    "power_watts": POWER_PEAK * most_watts(None),
    **dict.fromkeys(("gpu_utilization_percent", "encoder_utilization_percent", "decoder_utilization_percent",
                     "cpu_percent", "io_wait_percent"), 100.0),
    **dict.fromkeys(("channels", "nvls_channels"), 128),  # of NCCL, which has MAXCHANNELS 64
    "encoder_sessions": 1000,  # one takes some 100 MiB of the GPU's memory
    "l2_mib": 1000,  # a B200 has 126
    "hz": 10_000,  # readings a second: NVML needs a millisecond for one
    "exit_code": 255,  # POSIX
    "index": 1000,  # of a GPU; machines have up to 16
    **dict.fromkeys(("nvenc", "nvdec", "engines"), 100),  # no GPU has more than 10 of them
    "seconds": 100_000,  # a day and more: no probe may take an hour
}  # fmt: skip
ROUNDED = 0.5  # per cent, degrees and watts are means, or rounded


def findings(results: Mapping[str, Values]) -> list[Finding]:
    """One for each probe that has such figures."""
    findings = []
    for probe, values in results.items():
        wrong = [] if isinstance(values, Missing) else list(figures(values))
        if wrong:
            more = f" and {len(wrong) - NAMED} more" if len(wrong) > NAMED else ""
            why = f"no measurement can give {', '.join(wrong[:NAMED])}{more}"
            shown = f"{len(wrong)} that cannot be"
            remedy = "measure again; if it happens again, show gpuprep's authors the record"
            findings.append(Finding(probe, "figures", Status.UNKNOWN, EXPECTED, shown, why, remedy))
    return findings


def figures(values: Mapping[str, Any]) -> Iterator[str]:
    """ "gpus[0].gemms[3].microseconds = NaN", in the order of the record. Records are bounded in size and depth."""
    waiting: list[tuple[str, Any]] = [("", values)]
    while waiting:
        path, value = waiting.pop()
        if is_missing(value):  # the codec keeps NaN and infinity so
            if (detail := missing_of(value).detail) in NO_NUMBERS:
                yield f"{path} = {detail}"
        elif isinstance(value, dict):
            waiting += [(f"{path}.{key}" if path else str(key), child) for key, child in reversed(value.items())]
        elif isinstance(value, list):
            waiting += [(f"{path}[{place}]", value[place]) for place in reversed(range(len(value)))]
        elif _is_none(path.rpartition(".")[2].partition("[")[0], value):
            yield f"{path} = {_shown(value)}"


def _is_none(key: str, value: object) -> bool:
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return False
    if not abs(value) < LARGEST or (key in POSITIVE and value <= 0):
        return True
    return value < LEAST.get(key, 0) or value > MOST.get(key, LARGEST) + ROUNDED


def _shown(value: float) -> str:
    if abs(value) < LARGEST:
        return f"{value:g}"
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if value != value else "infinity"
    return "10^15 or more"
