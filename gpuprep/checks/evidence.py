"""What the probes of one host said, as the checks of measurements take it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Union

from gpuprep.checks.common import unknown
from gpuprep.desired.state import Wanted
from gpuprep.records import Finding, Missing, Snapshot
from gpuprep.records.baseline import Baseline

Values = Union[dict[str, Any], Missing]


@dataclass(frozen=True)
class Evidence:
    """`results` has one entry for each probe that was asked for; one that gave no answer is Missing.

    The forms of the values are docs/records.md. `thresholds` are the profile's, in per cent.
    """

    wanted: Wanted
    snapshot: Snapshot
    results: Mapping[str, Values]
    thresholds: Mapping[str, Any] = field(default_factory=dict)
    baseline: Baseline = field(default_factory=dict)  # of this host; {} where it has none, or is simulated

    def not_measured(self, uuids: Collection[str]) -> list[str]:
        """GPUs that NVML showed and that are not among `uuids`: ["gpu 1"]; [] where NVML showed none."""
        facts = self.snapshot.gpus
        return [] if isinstance(facts, Missing) else [f"gpu {gpu.index}" for gpu in facts if gpu.uuid not in uuids]


def absent_gpus(
    evidence: Evidence, subject: str, measured: Sequence[Mapping[str, Any]], unreadable: int = 0
) -> list[Finding]:
    """UNKNOWN where a GPU that NVML showed was not measured, or an entry is none; nothing where all are there."""
    absent = evidence.not_measured({str(gpu.get("uuid")) for gpu in measured})
    if not absent and not unreadable:
        return []
    gone = Missing("not_recorded", f"{', '.join(absent)} was not measured" if absent else "an entry that is no GPU")
    return [unknown(subject, "gpus", gone, expected="every GPU measured", remedy="measure again")]
