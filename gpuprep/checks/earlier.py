"""An earlier reading of the same GPU: what was counted since then, and how fast. Pure.

A counter's sum over a life says nothing: a link with ten errors in a year is well, one with ten a minute is not.
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
    """The reading of this GPU in `before`; None where there is none, or the clock went backwards.

    Facts that were read once are both the first and the last of their record: they are no two readings.
    """
    if before is None or before.taken_at == snapshot.taken_at or isinstance(before.gpus, Missing):
        return None
    was = next((facts for facts in before.gpus if gpu.uuid and facts.uuid == gpu.uuid), None)
    seconds = elapsed(before, snapshot)
    if was is None or seconds is None:
        return None
    return Earlier(was, seconds, before.kernel.boot_id == snapshot.kernel.boot_id)


def elapsed(before: Snapshot, now: Snapshot) -> float | None:
    """Seconds from one snapshot to the next, at least LEAST_SECONDS; None where they are not known or run backwards."""
    begin, end = moment(before.taken_at), moment(now.taken_at)
    if begin is None or end is None or end < begin:
        return None
    return max((end - begin).total_seconds(), LEAST_SECONDS)


def grown(was: object, now: object, same_boot: bool) -> float | None:
    """What was added since; None where one of the two was not read.

    Counters start again when the driver is loaded: of one that is smaller than before, all is new.
    """
    if not _counter(was) or not _counter(now):
        return None
    return float(now - was if same_boot and now >= was else now)


def _counter(reading: object) -> TypeGuard[float]:
    return isinstance(reading, (int, float)) and math.isfinite(reading) and reading >= 0
