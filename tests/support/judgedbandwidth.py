"""What one probe measured, judged as `validate` judges it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from builders import bare_snapshot, resolved, shipped

from gpuprep import checks
from gpuprep.desired.profile import Threshold
from gpuprep.desired.state import Wanted
from gpuprep.records import Finding, Missing, ProbeResult, Snapshot, Source


def figures(
    probe: str, values: Any, wanted: Wanted, host: Snapshot, thresholds: Mapping[str, Threshold] | None = None
) -> list[Finding]:
    """The findings of one measurement, without those of what no probe can give (test_impossible)."""
    result = ProbeResult(probe, Source.MEASURED, values, 1.0)
    found = checks.compare_figures(wanted, host, [result], thresholds=thresholds)
    return [one for one in found if one.key not in (f"{probe}.figures", f"{probe}.forms")]


def no_measurement(results: Mapping[str, Any]) -> list[Finding]:
    """The findings of what no probe can give, by probe and its values."""
    results_of_any = [ProbeResult(probe, Source.MEASURED, values, 1.0) for probe, values in results.items()]
    found = checks.compare_figures(resolved("t4"), any_host(), results_of_any)
    return [one for one in found if one.property == "figures"]


def judged(values: dict[str, Any] | Missing, profile: str = "h200", **thresholds: float | None) -> list[Finding]:
    known = {name: value for name, value in shipped(profile).thresholds.items() if name not in thresholds}
    known |= own({name: percent for name, percent in thresholds.items() if percent is not None})
    return figures("bandwidth", values, resolved(profile, gpus=[profile]), any_host(), known)


def any_host(**changes: Any) -> Snapshot:
    """Nothing is known of its GPUs: figures that somebody published."""
    return dataclasses.replace(bare_snapshot(), gpus=Missing("not_read"), pci_gpus=(), **changes)


def own(percents: Mapping[str, float]) -> dict[str, Threshold]:
    """As a user's profile has them."""
    return {name: Threshold(percent) for name, percent in percents.items()}
