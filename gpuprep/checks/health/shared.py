"""Shared by all checks of a GPU's health: possible readings, findings, the contact for repairs, an earlier reading.

The total of a counter says little: a link with ten errors in a year is healthy, one with ten per minute is not. So its
growth since the earlier reading counts.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass
from typing import TypeGuard

from gpuprep.catalogue.health import plausible
from gpuprep.checks.common import NOT_TOLD, RENTED, YOURS, unknown
from gpuprep.records import Finding, GpuFacts, Missing, Snapshot, Status
from gpuprep.records.findings import PROBLEMS
from gpuprep.records.moments import moment

CALL = f"{RENTED}; {YOURS}call the server's maker"
# NVIDIA replaces a board when its field diagnostic confirms the flag.
RMA = (
    f"take the GPU out of use; {RENTED}; {YOURS}run NVIDIA's field diagnostic and give its log and this report"
    " to the server's maker, who replaces the board"
)
COOLING = f"{RENTED}; {YOURS}check fans, air flow and the room's temperature, then call the server's maker"
SUPPLY = f"{RENTED}; {YOURS}check the power supplies and the server's power limit (BMC), then call the server's maker"
NOT_THERE = ("not_supported",)  # the GPU does not have it
Problem = tuple[Status, str, str]  # how severe, why, what to do


def judged(
    subject: str, prop: str, problem: Problem | None, expected: str, shown: str, note: str = ""
) -> Finding:  # fmt: skip
    if problem is None:
        return Finding(subject, prop, Status.PASS, expected, shown, note)
    return Finding(subject, prop, problem[0], expected, shown, problem[1], problem[2])


def worst(problems: list[Problem]) -> Problem | None:
    """One problem with the worst status, and the reasons and remedies of all, the worst first; None without any."""
    ordered = sorted(problems, key=lambda one: PROBLEMS.index(one[0]))
    if not ordered:
        return None
    remedies = dict.fromkeys(remedy for _, _, remedy in ordered)
    return ordered[0][0], "; ".join(why for _, why, _ in ordered), "; ".join(remedies)


def refused(
    subject: str, prop: str, reading: Missing, expected: str, *, what: str = "", absent: Collection[str] = NOT_THERE
) -> Finding | None:
    """UNKNOWN for a failed reading; None if its reason is one of `absent`, or if the record is older than the field."""
    if reading.reason == "not_read" or reading.reason in absent:
        return None
    named = what or f"{subject} {prop}".replace("_", " ")
    remedy = f"measure again; if the result is the same: {CALL}"
    return unknown(subject, prop, reading, expected=expected, what=named, remedy=remedy)


def checked_reading(reading: float | Missing, kind: str, what: str) -> float | Missing:
    """The reading, or Missing("impossible") for a value that no GPU can have: negative, NaN, beyond all bounds.

    `kind` is a name under `plausible` in health.yml; `what` names the reading: "corrected errors".
    """
    if isinstance(reading, Missing):
        return reading
    bounds = plausible(kind)
    number = isinstance(reading, (int, float)) and not isinstance(reading, bool)
    if not number or not math.isfinite(reading) or not bounds.least <= reading <= bounds.most:
        return Missing("impossible", f"{what}: {reading!r}")
    return reading


def first_missing(*readings: object) -> Missing | None:
    """The first Missing, impossible readings before readings that a driver does not have; None without any."""
    missing = [reading for reading in readings if isinstance(reading, Missing)]
    return next(
        (candidate for candidate in missing if candidate.reason not in (*NOT_TOLD, "not_read")),
        missing[0] if missing else None,
    )


def counted(number: float, one: str, more: str = "") -> str:
    """ "1 page", "3 pages"."""
    return f"{number:,.0f} {one if number == 1 else more or one + 's'}"


# ---------------------------------------------------------------- an earlier reading

LEAST_SECONDS = 60.0  # shorter times are inexact, because readings are dated in whole seconds


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
