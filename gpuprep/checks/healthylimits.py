"""Two limits for a speed, relative to healthy boards: below the first it is not PASS, below the second it is FAIL."""

from __future__ import annotations

from dataclasses import dataclass

from gpuprep.catalogue.boards import on_machines
from gpuprep.catalogue.topologies import Healthy
from gpuprep.checks.floors import Floor, fault_below, figure, percents

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


def limits(least: Floor, healthy: Healthy | None, subject: str = "") -> Limits:
    """Limits from a floor, and from what healthy boards reach, if known. `subject` names these boards."""
    if healthy is None:
        return Limits(least.percent, least.fails, least.source)
    passes = max(PASS_SHARE * healthy.percent, least.percent)
    which = "healthy boards" if healthy.machines else "healthy boards like it"
    source = f"{subject}: {which} reach {healthy.percent:.3g} %, {on_machines(healthy.machines)}"
    return Limits(passes, least.fail_share * passes, source)
