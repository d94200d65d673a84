"""Judges the measurements of a run: each probe by the module of its name in judges/."""

from __future__ import annotations

import importlib
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from gpuprep.checks import judges, plausible
from gpuprep.checks.baseline import findings as compared_with_baseline
from gpuprep.checks.evidence import Evidence, Values
from gpuprep.desired.profile import Threshold
from gpuprep.desired.state import Wanted
from gpuprep.records import Finding, Missing, ProbeResult, Snapshot
from gpuprep.records.baseline import Baseline
from gpuprep.records.evidence.kinds import PROBES


def judge(probe: str) -> Any:
    """The module that judges a probe. It has

    findings(evidence)    for a report, in its order
    parts(measurement)    names of what the probe measured on each GPU; only where a probe measures figures
    """
    return importlib.import_module(f"{judges.__name__}.{probe}")


def findings(
    wanted: Wanted,
    snapshot: Snapshot,
    probed: Sequence[ProbeResult],
    asked: Collection[str],
    thresholds: Mapping[str, Threshold],
    baseline: Baseline | None = None,
) -> list[Finding]:
    """Findings of all probes that ran; UNKNOWN for a probe that ran and gave no values."""
    absent = Missing("command_failed", "the probe gave no result")
    results: dict[str, Values] = dict.fromkeys(asked, absent)
    results.update({result.probe: result.values for result in probed})
    evidence = Evidence(wanted, snapshot, results, thresholds, baseline or {})
    findings = [
        finding for probe in PROBES if probe.name in results for finding in judge(probe.name).findings(evidence)
    ]
    return findings + plausible.findings(results) + compared_with_baseline(evidence)
