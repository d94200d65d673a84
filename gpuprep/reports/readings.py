"""What a report reads of a record: a probe's last answer, and figures as text."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeVar

from gpuprep.checks.ffmpegneeds import licence_of
from gpuprep.records import Missing, ProbeResult, RunRecord
from gpuprep.records.evidence import measured
from gpuprep.records.evidence.codec import Codec
from gpuprep.records.evidence.decode import Figure

_T = TypeVar("_T")


def probe(record: RunRecord, name: str) -> ProbeResult | None:
    """The last answer of one probe, or None where it was not run."""
    return next((result for result in reversed(record.measurements) if result.probe == name), None)


def answer(record: RunRecord, kind: type[_T], name: str) -> _T:
    """What the probe `name` measured; an empty `kind` where it gave no answer."""
    hashable: Any = kind
    found: _T = _decoded(hashable, _Same(probe(record, name)))
    return found


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
    values = measured(kind, same.result.values if same.result else None)
    return kind() if isinstance(values, Missing) else values


def licence(record: RunRecord) -> str:
    """Of the FFmpeg that was asked for its parts, by configure's options; "" where it was not asked."""
    return licence_of(answer(record, Codec, "codec"))


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
