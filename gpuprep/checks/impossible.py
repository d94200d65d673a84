"""Which figures of a measurement are impossible: not finite, 10^15 and more, or negative? Pure.

Decoding makes such a figure "not recorded" (records/evidence/decode.py), and many checks do without one figure. So the
values are looked through as the record has them. Nothing that a probe of video or convolutions measures is negative
but the exit code of a program that a signal ended.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from gpuprep.records import Finding, Status
from gpuprep.records.evidence.decode import LARGEST, is_missing, missing_of

NO_NUMBERS = ("NaN", "Infinity", "-Infinity")  # how the codec keeps a float that is not finite
MAY_BE_NEGATIVE = frozenset({"exit_code"})
SHOWN = 3
MOST_LETTERS = 80  # of the place of a figure
DEEPEST = 12  # of what a probe writes; records/codec.py bounds it, too
EXPECTED = "possible figures"


def findings(subject: str, values: object) -> list[Finding]:
    """UNKNOWN where a measurement has such figures; no finding where it has none."""
    wrong = list(figures(values))
    if not wrong:
        return []
    more = f" and {len(wrong) - SHOWN} more" if len(wrong) > SHOWN else ""
    shown = ", ".join(wrong[:SHOWN]) + more
    why = f"impossible figures: {shown}; so the measurement or its record is damaged"
    return [Finding(subject, "figures", Status.UNKNOWN, EXPECTED, f"{len(wrong)} impossible", why, "measure again")]


def figures(values: object, where: str = "", depth: int = 0) -> Iterator[str]:
    """ "series[0].steps[3].fps is -4993" for each."""
    if depth > DEEPEST:
        return
    if is_missing(values):
        if missing_of(values).detail in NO_NUMBERS:
            yield f"{where} is {missing_of(values).detail}"
    elif isinstance(values, dict):
        for key, value in values.items():
            yield from figures(value, f"{where}.{key}" if where else str(key), depth + 1)
    elif isinstance(values, (list, tuple)):
        for index, value in enumerate(values):
            yield from figures(value, f"{where}[{index}]", depth + 1)
    elif isinstance(values, (int, float)) and not isinstance(values, bool) and not _possible(values, where):
        size = f"{values:.4g}" if abs(values) < LARGEST else "10^15 or more"  # an int may be too large for a float
        yield f"{where[-MOST_LETTERS:]} is {size}"


def _possible(value: Any, where: str) -> bool:
    if (isinstance(value, float) and not math.isfinite(value)) or abs(value) >= LARGEST:
        return False
    return value >= 0 or where.rpartition(".")[2] in MAY_BE_NEGATIVE
