"""Reads a record for a report: a probe's last answer, and figures as text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeVar

from gpuprep.checks import plausible
from gpuprep.checks.ffmpegneeds import licence_of
from gpuprep.records import Missing, ProbeResult, RunRecord
from gpuprep.records.evidence import Figure, is_no_number, measured
from gpuprep.records.evidence.codec import Codec

_T = TypeVar("_T")
IMPOSSIBLE = Missing("impossible")
NOTHING = "–"  # what is shown where there is no reading


def probe(record: RunRecord, name: str) -> ProbeResult | None:
    """The last answer of one probe, or None where it was not run."""
    return next((result for result in reversed(record.measurements) if result.probe == name), None)


def answer(record: RunRecord, kind: type[_T], name: str, *, whole: bool = False) -> _T:
    """What the probe `name` measured, also if it did not finish; an empty `kind` if it measured nothing.

    `whole`: only if it finished, for formats that cannot say that it did not.
    """
    result = probe(record, name)
    hashable: Any = kind
    evidence: _T = _decoded(hashable, _Same(None if whole and result and is_partial(result) else result))
    return evidence


def unfinished(record: RunRecord) -> str:
    """One sentence on the probes that did not finish; "" if all did.

    Every page with figures shows it.
    """
    names = [result.probe for result in record.measurements if is_partial(result)]
    if not names:
        return ""
    sentence = f"{', '.join(names)} did not finish"
    return f"{sentence}: the figures are what had been measured by then, and no check judged them"


def held_to(record: RunRecord) -> str:
    """The run with which drift compares the host instead of this one, and why; "" if it is this one, or none."""
    facts = record.history
    if facts is None or not facts.held_to:
        return ""
    why = f"this one {'; '.join(facts.doubts)}" if facts.doubts else "chosen by `gpuprep baseline set`"
    return f"run {facts.held_to} ({why})"


def is_partial(result: ProbeResult) -> bool:
    return result.partial is not None and isinstance(result.values, Missing)


@dataclass(frozen=True, eq=False)
class _Same:
    """An answer as a dict key: equal only to itself. Answers never change after they are read."""

    result: ProbeResult | None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.result is other.result

    def __hash__(self) -> int:
        return id(self.result)


@lru_cache(maxsize=16)  # cache size: a page reads each answer many times
def _decoded(kind: Any, same: _Same) -> Any:
    result = same.result
    values = measured(kind, _possible(result.values) if result else None)
    if isinstance(values, Missing) and result and is_partial(result):
        values = measured(kind, _possible(result.partial))
    return kind() if isinstance(values, Missing) else values


def _possible(values: Any) -> Any:
    """The values of a probe; a negative figure is impossible: it becomes Missing and is shown so.

    The checks call it UNKNOWN (checks/plausible.py).
    """
    return _without_negative(values, "") if next(plausible.figures(values), None) else values


def _without_negative(values: Any, key: str) -> Any:
    if isinstance(values, Mapping):
        return {name: _without_negative(value, name) for name, value in values.items()}
    if isinstance(values, (list, tuple)):
        return [_without_negative(value, key) for value in values]
    number = isinstance(values, (int, float)) and not isinstance(values, bool)
    return IMPOSSIBLE if number and values < plausible.LEAST.get(key, 0) else values


def licence(record: RunRecord) -> str:
    """The licence of the measured FFmpeg, by configure's options; "" if they were not read."""
    return licence_of(answer(record, Codec, "codec"))


def entries(listed: tuple[_T | Missing, ...]) -> list[_T]:
    """Those that could be read."""
    return [entry for entry in listed if not isinstance(entry, Missing)]


def known(value: Figure | None) -> float | None:
    return None if isinstance(value, Missing) else value


def figure(value: Figure | None, digits: int | None = None) -> str:
    """Three significant digits, or `digits` after the point; "–" without a reading.

    "impossible" for a reading that is negative, not finite, or at least 10^15.
    """
    if value == IMPOSSIBLE or is_no_number(value):
        return IMPOSSIBLE.reason
    if value is None or isinstance(value, Missing):
        return NOTHING
    if digits is None:
        digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2
    return f"{value:.{digits}f}"
