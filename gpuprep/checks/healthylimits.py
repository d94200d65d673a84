"""Two limits for a speed, relative to healthy boards: below the first it is not PASS, below the second it is FAIL."""

from __future__ import annotations

from dataclasses import dataclass

from gpuprep.checks.floors import Floor, figure, percents

# A board that is 15 % slow is never PASS, and healthy boards differ by a few per cent from each other.
PASS_SHARE = 0.88
# Of what healthy boards reach; below it the board is defective, if its clocks were known to be full.
FAIL_SHARE = 0.75
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

    def status(self, percent: float) -> str:
        if percent >= self.passes - SLACK:
            return "PASS"
        return "FAIL" if percent < self.fails - SLACK else "WARN"


def limits(least: Floor, healthy_percent: float | None, subject: str = "", *, undisturbed: bool = False) -> Limits:
    """Limits from a floor, and from the per cent that healthy boards reach, if known.

    `subject` names these boards. `undisturbed`: the record shows nothing that could have slowed the board.
    """
    if healthy_percent is None:
        return Limits(least.percent, least.percent, least.source)
    fails = max(least.percent, FAIL_SHARE * healthy_percent) if undisturbed else least.percent
    passes = max(PASS_SHARE * healthy_percent, fails)
    return Limits(passes, min(fails, passes), f"{subject}: healthy boards reach {healthy_percent:.3g} %")
