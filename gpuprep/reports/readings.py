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
    """What the probe `name` measured; of one that did not end what it had measured. An empty `kind`: nothing.

    `whole`: for a reader who does not see that it did not end. Then its figures are none.
    """
    result = probe(record, name)
    hashable: Any = kind
    evidence: _T = _decoded(hashable, _Same(None if whole and result and is_partial(result) else result))
    return evidence


def unfinished(record: RunRecord) -> str:
    """One sentence on the probes whose figures are not all that they measure; "" where there is none.

    Every page that shows figures has it.
    """
    names = [result.probe for result in record.measurements if is_partial(result)]
    if not names:
        return ""
    sentence = f"{', '.join(names)} did not come to {'its' if len(names) == 1 else 'their'} end"
    return f"{sentence}: the figures are what had been measured by then, and no check judged them"


def held_to(record: RunRecord) -> str:
    """Which run drift compares the host with in place of this one, and why; "" where it is this one, or none."""
    facts = record.history
    if facts is None or not facts.held_to:
        return ""
    why = f"this one {'; '.join(facts.doubts)}" if facts.doubts else "chosen by `gpuprep baseline set`"
    return f"run {facts.held_to} ({why})"


def is_partial(result: ProbeResult) -> bool:
    return result.partial is not None and isinstance(result.values, Missing)


@dataclass(frozen=True, eq=False)
class _Same:
    """An answer as a key: equal to itself alone. Nothing changes an answer once it is read."""

    result: ProbeResult | None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.result is other.result

    def __hash__(self) -> int:
        return id(self.result)


@lru_cache(maxsize=16)  # a page reads each answer many times; some records' answers are kept
def _decoded(kind: Any, same: _Same) -> Any:
    result = same.result
    values = measured(kind, _possible(result.values) if result else None)
    if isinstance(values, Missing) and result and is_partial(result):
        values = measured(kind, _possible(result.partial))
    return kind() if isinstance(values, Missing) else values


def _possible(values: Any) -> Any:
    """The values of a probe; a negative figure that it cannot have measured is Missing, and is shown as impossible.

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
    """Of the FFmpeg that was asked for its parts, by configure's options; "" where it was not asked."""
    return licence_of(answer(record, Codec, "codec"))


def entries(listed: tuple[_T | Missing, ...]) -> list[_T]:
    """Those that could be read."""
    return [entry for entry in listed if not isinstance(entry, Missing)]


def known(value: Figure | None) -> float | None:
    return None if isinstance(value, Missing) else value


def figure(value: Figure | None, digits: int | None = None) -> str:
    """Three figures that count, or `digits` behind the point; "–" where there is no reading.

    "impossible" is a reading that cannot be true: negative, not finite, or 10^15 and more.
    """
    if value == IMPOSSIBLE or is_no_number(value):
        return IMPOSSIBLE.reason
    if value is None or isinstance(value, Missing):
        return NOTHING
    if digits is None:
        digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2
    return f"{value:.{digits}f}"
