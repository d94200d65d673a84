"""Shared by all checks of a GPU's health: possible readings, findings, and the contact for repairs."""

from __future__ import annotations

import math
from collections.abc import Collection

from gpuprep.catalogue.health import plausible
from gpuprep.checks.common import NOT_TOLD, RENTED, YOURS, unknown
from gpuprep.records import Finding, Missing, Status
from gpuprep.records.findings import PROBLEMS

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
    remedy = f"measure again; if it stays so: {CALL}"
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
