"""An NCCL measurement and its judge."""

from __future__ import annotations

from typing import Any

from builders import resolved
from judgedbandwidth import any_host, figures

from gpuprep.records import Finding, Missing

Values = dict[str, Any]


def judged(values: Values | Missing, profile: str = "h200") -> list[Finding]:
    return figures("nccl", values, resolved(profile, gpus=[profile]), any_host())
