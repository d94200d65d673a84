"""The floor of a figure, read from the finding that judged it: what a bar of a page marks. Never judges.

A finding says its floor in words ("≥ 55 % of 1071 TFLOPS at 1980 MHz (profile h200)"). A record keeps these words, so
the floor is that of the day of the run, also after the profile was changed. Words that are not understood give none.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from gpuprep.records import Finding, Status
from gpuprep.reports.rows import Bandwidth, Gemm

NUMBER = r"(\d{1,9}(?:\.\d{1,6})?)"
SHARE = re.compile(rf"≥ ?{NUMBER} % of {NUMBER} (?:TFLOPS|TOPS|GB/s)\b")
RATE = re.compile(rf"at least {NUMBER} % [^%]{{0,200}}?of {NUMBER} fps\b")
SOUND = re.compile(rf", and {NUMBER} fps, ")  # below it a series is slow enough to tell
MOST_LETTERS = 500  # of a finding's words that are looked at


@dataclass(frozen=True)
class Floor:
    value: float  # in the unit of the figure
    status: Status  # the check's result for the figure
    percent: str = ""  # of the peak, as the finding says it


class Floors:
    """The floors of one record, by subject and property of a finding."""

    def __init__(self, findings: Iterable[Finding]) -> None:
        self._by_key: dict[tuple[str, str], Floor] = {}
        for finding in findings:
            if (value := read(finding.expected)) is not None:
                share = SHARE.search(finding.expected[:MOST_LETTERS])
                floor = Floor(value, finding.status, share[1] if share else "")
                self._by_key.setdefault((finding.subject, finding.property), floor)

    def of_gemm(self, row: Gemm, *, lasting: bool = False) -> Floor | None:
        sums = f"_accumulate_{row.accumulate}" if "+" in row.type else ""
        return self._by_key.get((f"gpu {row.gpu.index}", f"gemm_{row.dtype}{sums}{'_sustained' if lasting else ''}"))

    def of_bandwidth(self, row: Bandwidth) -> Floor | None:
        name = row.what.replace("device ", "memory_") if row.crosses == "memory" else row.what.replace(" ", "_")
        return self._by_key.get((f"gpu {row.gpu.index}", name))

    def of_series(self, subject: str) -> Floor | None:
        """Frames a second, in pictures of 1080p."""
        return self._by_key.get((subject, "fps"))


def read(expected: str) -> float | None:
    """The floor that these words of a finding name; None where they name none."""
    words = expected[:MOST_LETTERS]
    if match := SHARE.search(words):
        return float(match[1]) / 100 * float(match[2])
    if match := RATE.search(words):
        share = float(match[1]) / 100 * float(match[2])
        healthy = SOUND.search(words)
        return max(share, float(healthy[1])) if healthy else share
    return None
