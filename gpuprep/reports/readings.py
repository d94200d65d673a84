"""What a report reads of a record: a probe's last answer, and figures as text."""

from __future__ import annotations

from typing import TypeVar

from gpuprep.records import Missing, ProbeResult, RunRecord
from gpuprep.records.evidence import measured
from gpuprep.records.evidence.decode import Figure

_T = TypeVar("_T")


def probe(record: RunRecord, name: str) -> ProbeResult | None:
    """The last answer of one probe, or None where it was not run."""
    return next((result for result in reversed(record.measurements) if result.probe == name), None)


def answer(record: RunRecord, kind: type[_T], name: str) -> _T:
    """What the probe `name` measured; an empty `kind` where it gave no answer."""
    found = probe(record, name)
    values = measured(kind, found.values if found else None)
    return kind() if isinstance(values, Missing) else values


def entries(listed: tuple[_T | Missing, ...]) -> list[_T]:
    """Those that could be read."""
    return [entry for entry in listed if not isinstance(entry, Missing)]


def known(value: Figure | None) -> float | None:
    return None if isinstance(value, Missing) else value


def figure(value: Figure | None, digits: int | None = None) -> str:
    """Three figures that count, or `digits` behind the point; "–" where there is no reading."""
    if value is None or isinstance(value, Missing):
        return "–"
    if digits is None:
        digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2
    return f"{value:.{digits}f}"
