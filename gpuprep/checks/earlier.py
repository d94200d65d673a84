"""An earlier reading of the same GPU: the growth of its counters since then, and the rate. Pure.

The total of a counter says little: a link with ten errors in a year is healthy, one with ten per minute is not.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeGuard

from gpuprep.records import GpuFacts, Missing, Snapshot
from gpuprep.records.moments import moment

LEAST_SECONDS = 60.0  # two readings that are nearer: their time is written in whole seconds


@dataclass(frozen=True)
class Earlier:
    gpu: GpuFacts
    seconds: float  # between the two readings
    same_boot: bool


def earlier(gpu: GpuFacts, snapshot: Snapshot, before: Snapshot | None) -> Earlier | None:
    """The reading of this GPU in `before`; None if there is none, or if the clock was set back.

    If a record's facts were read only once, first and last are the same reading: then there is no earlier one.
    """
    if before is None or before.taken_at == snapshot.taken_at or isinstance(before.gpus, Missing):
        return None
    was = next((facts for facts in before.gpus if gpu.uuid and facts.uuid == gpu.uuid), None)
    seconds = elapsed(before, snapshot)
    if was is None or seconds is None:
        return None
    return Earlier(was, seconds, before.kernel.boot_id == snapshot.kernel.boot_id)


def elapsed(before: Snapshot, now: Snapshot) -> float | None:
    """Seconds between two snapshots, at least LEAST_SECONDS; None if unknown or negative."""
    begin, end = moment(before.taken_at), moment(now.taken_at)
    if begin is None or end is None or end < begin:
        return None
    return max((end - begin).total_seconds(), LEAST_SECONDS)


def grown(was: object, now: object, same_boot: bool) -> float | None:
    """The growth of a counter; None if one of the two readings failed.

    Counters start at 0 when the driver is loaded: if a counter is smaller than before, all of it is new.
    """
    if not _counter(was) or not _counter(now):
        return None
    return float(now - was if same_boot and now >= was else now)


def _counter(reading: object) -> TypeGuard[float]:
    return isinstance(reading, (int, float)) and math.isfinite(reading) and reading >= 0
