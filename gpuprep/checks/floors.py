"""The profile's thresholds, and limits from what healthy boards reach, as findings show them: figure and source."""

from __future__ import annotations

from dataclasses import dataclass

from gpuprep.catalogue import Board
from gpuprep.catalogue.boards import on_machines
from gpuprep.catalogue.topologies import Healthy
from gpuprep.checks.evidence import Evidence

MOST_DECIMALS = 7  # figures that differ by less count as equal


# Share of a floor of gpuprep itself: below it FAIL, up to the floor WARN. Such a floor rests on fewer than ten
# machines, and of 166 pairs of sources in tests/cases/published no healthy machine fell below 73 % of another source's
# floor.
FAIL_SHARE = 0.7


@dataclass(frozen=True)
class Floor:
    percent: float
    source: str  # "profile a100, SuperBench", or "A100 SXM4 40 GB, 6 machines, published 81 to 96 %, 5 sources"
    fail_share: float = 1.0
    usual: float | None = None  # per cent that healthy boards of this kind usually reach

    @property
    def fails(self) -> float:
        """Per cent, below which a figure is FAIL."""
        return self.fail_share * self.percent

    def of(self, peak: float, unit: str) -> str:
        """ "≥ 75 % of 312 TFLOPS (profile a100, SuperBench)" """
        return f"≥ {self.percent:g} % of {figure(peak)} {unit} ({self.source})"


def floor(evidence: Evidence, name: str, board: Board | None = None) -> Floor | None:
    """The threshold `name` ("fp16_percent_of_peak"); None if the profile has none.

    Priority: a user's profile, then the board's own floor, then gpuprep's profiles.
    """
    threshold = evidence.thresholds.get(name)
    if threshold is None:
        return None
    own = board.floors.get(name.removesuffix("_percent_of_peak")) if board else None
    if board and own and threshold.shipped:
        return Floor(own.percent, f"{board.name}, {own.words}", FAIL_SHARE, own.usual)
    words = ", ".join(filter(None, [f"profile {evidence.wanted.profile}", threshold.source]))
    return Floor(threshold.percent, words, FAIL_SHARE if threshold.shipped else 1.0)


def fault_below(percent: float) -> str:
    """What a WARN adds to its reason: why a figure below the limit is no FAIL."""
    return f"; healthy machines differ: below {percent:.3g} % it is a fault"


def is_shipped(evidence: Evidence, name: str) -> bool:
    """Whether a threshold is gpuprep's own. A user's threshold in a profile has priority over healthy boards."""
    return name in evidence.thresholds and evidence.thresholds[name].shipped


def below(percent: float, warn: Floor | None, fail: Floor | None) -> str:
    """Status of a figure that is `percent` lower: "FAIL", "WARN" or "PASS". A figure at the limit has reached it."""
    slack = 1e-9
    if fail is not None and percent >= fail.percent - slack:
        return "FAIL"
    return "WARN" if warn is not None and percent >= warn.percent - slack else "PASS"


def figure(value: float) -> str:
    """A number with three significant digits."""
    return f"{value:.{_decimals(value)}f}"


def apart(value: float, limit: float, decimals: int | None = None) -> tuple[str, str]:
    """Both numbers of a comparison, with the same number of digits, enough to show which is larger.

    From `decimals` on; without it three significant digits. 39.96 and 40 ► "39.96" and "40.00", never both "40".
    """
    least = _decimals(max(abs(value), abs(limit))) if decimals is None else decimals
    texts = ("", "")
    for digits in range(least, least + MOST_DECIMALS):
        texts = (f"{value:.{digits}f}", f"{limit:.{digits}f}")
        one, other = map(float, texts)
        if (one > other, one < other) == (value > limit, value < limit):
            break
    return texts


def percents(percent: float, limit: float) -> tuple[str, str]:
    """A share and its limit in per cent, with as few digits as show on which side of the limit the share is."""
    shown = f"{limit:.3g}"
    for digits in range(MOST_DECIMALS):
        text = f"{percent:.{digits}f}"
        if (float(text) > float(shown), float(text) < float(shown)) == (percent > limit, percent < limit):
            return text, shown
    return apart(percent, limit, 1)


def _decimals(value: float) -> int:
    return 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2


# ---------------------------------------------------------------- limits from what healthy boards reach

# Two limits for a speed: below the first it is not PASS, below the second it is FAIL.
# A board that is 15 % slow is never PASS, and healthy boards differ by a few per cent from each other.
PASS_SHARE = 0.88
SLACK = 1e-9
# Readings are rounded, and clocks vary: this much above the impossible is still possible.
ROUNDING = 1.01


@dataclass(frozen=True)
class Limits:
    """Per cent of the peak. At `passes` and above: PASS. Below `fails`: FAIL. Between the two: WARN."""

    passes: float
    fails: float
    source: str

    def of(self, peak: float, percent: float) -> str:
        """ "≥ 82 % of 4800 GB/s (H200 SXM 141 GB, healthy boards reach 93 %)", beside the `percent` reached."""
        return f"≥ {percents(percent, self.passes)[1]} % of {figure(peak)} GB/s ({self.source})"

    def beside(self, status: str) -> str:
        """What a finding adds to its reason: why a figure below the limit is no FAIL."""
        return fault_below(self.fails) if status == "WARN" and self.fails < self.passes else ""

    def status(self, percent: float) -> str:
        if percent >= self.passes - SLACK:
            return "PASS"
        return "FAIL" if percent < self.fails - SLACK else "WARN"


def healthy_limits(least: Floor, healthy: Healthy | None, subject: str = "") -> Limits:
    """Limits from a floor, and from what healthy boards reach, if known. `subject` names these boards."""
    if healthy is None:
        return Limits(least.percent, least.fails, least.source)
    passes = max(PASS_SHARE * healthy.percent, least.percent)
    which = "healthy boards" if healthy.machines else "healthy boards like it"
    source = f"{subject}: {which} reach {healthy.percent:.3g} %, {on_machines(healthy.machines)}"
    return Limits(passes, least.fail_share * passes, source)
