"""Reading measurements safely: whatever is absent, missing or of another kind is a Missing, never an exception.

A record may come from an older gpuprep, from a probe that lost its GPU half way, or from elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Union

from gpuprep.records import Missing, ProbeResult, RunRecord

Number = Union[float, Missing]
NOT_READ = Missing("not_read", "the record does not say")


class View:
    """One object of a measurement; docs/records.md has the keys and their units."""

    def __init__(self, value: object) -> None:
        self.raw: Mapping[str, Any] = value if isinstance(value, Mapping) and "missing" not in value else {}
        self.missing: Missing | None = None if self.raw else (_missing(value) or NOT_READ)

    def __bool__(self) -> bool:
        return bool(self.raw)

    def number(self, key: str) -> Number:
        value = self.raw.get(key)
        if isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1e15:
            return float(value)  # NaN and infinity fail the comparison: no reading either
        return _missing(value) or NOT_READ

    def whole(self, key: str) -> int | None:
        value = self.number(key)
        return None if isinstance(value, Missing) else int(value)

    def text(self, key: str) -> str:
        """ "" where there is none."""
        value = self.raw.get(key)
        return value if isinstance(value, str) else ""

    def flag(self, key: str) -> bool | None:
        value = self.raw.get(key)
        return value if isinstance(value, bool) else None

    def view(self, key: str) -> View:
        return View(self.raw.get(key))

    def views(self, key: str) -> list[View]:
        """The objects of a list; entries that are no objects are left out."""
        return [found for found in (View(item) for item in self._list(key)) if found]

    def texts(self, key: str) -> list[str]:
        return [item for item in self._list(key) if isinstance(item, str)]

    def column(self, key: str) -> list[float | None]:
        """A column of telemetry; None where a reading failed."""
        return [
            float(item) if isinstance(item, (int, float)) and abs(item) < 1e15 else None for item in self._list(key)
        ]

    def _list(self, key: str) -> list[Any]:
        value = self.raw.get(key)
        return list(value) if isinstance(value, (list, tuple)) else []


def _missing(value: object) -> Missing | None:
    if isinstance(value, Missing):
        return value
    if isinstance(value, Mapping) and "missing" in value:
        return Missing(str(value["missing"]), str(value.get("detail", "")))
    return None


def probe(record: RunRecord, name: str) -> ProbeResult | None:
    """The last answer of one probe, or None where it was not run."""
    return next((result for result in reversed(record.measurements) if result.probe == name), None)


def values(record: RunRecord, name: str) -> View:
    found = probe(record, name)
    return View(found.values if found else None)


def known(value: Number) -> float | None:
    return None if isinstance(value, Missing) else value


def figure(value: Number | None, digits: int | None = None) -> str:
    """Three figures that count, or `digits` behind the point; "–" where there is no reading."""
    if value is None or isinstance(value, Missing):
        return "–"
    if digits is None:
        digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2
    return f"{value:.{digits}f}"
