"""An NCCL measurement and its judge."""

from __future__ import annotations

import dataclasses
from typing import Any

from builders import bare_snapshot, resolved

from gpuprep.checks import nccl, probes
from gpuprep.checks.evidence import Evidence
from gpuprep.records import Finding, Missing

Values = dict[str, Any]


def judged(values: Values | Missing, profile: str = "h200") -> list[Finding]:
    snapshot = dataclasses.replace(bare_snapshot(), gpus=Missing("not_read"))  # these figures are of any host
    evidence = Evidence(resolved(profile, gpus=[profile]), snapshot, {"nccl": values})
    assert probes.JUDGES["nccl"] is nccl.findings
    return nccl.findings(evidence)
