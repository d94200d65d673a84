"""A recorded bandwidth measurement and its judge."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from builders import bare_snapshot, resolved, shipped

from gpuprep.checks import bandwidth
from gpuprep.checks.evidence import Evidence
from gpuprep.desired.profile import Threshold
from gpuprep.records import Finding, Missing


def judged(values: dict[str, Any] | Missing, profile: str = "h200", **thresholds: float | None) -> list[Finding]:
    from gpuprep.checks import probes

    known = {name: value for name, value in shipped(profile).thresholds.items() if name not in thresholds}
    known |= own({name: percent for name, percent in thresholds.items() if percent is not None})
    wanted = resolved(profile, gpus=[profile])
    snapshot = dataclasses.replace(bare_snapshot(), gpus=Missing("not_read"))  # these figures are of any host
    evidence = Evidence(wanted, snapshot, {"bandwidth": values}, known)
    assert probes.JUDGES["bandwidth"] is bandwidth.findings
    return bandwidth.findings(evidence)


def own(percents: Mapping[str, float]) -> dict[str, Threshold]:
    """As a user's profile has them."""
    return {name: Threshold(percent) for name, percent in percents.items()}
