"""A host's own past: the figures of its first run that passed, which later runs are compared with.

Figures are comparable only where GPU, probe and libraries are the same; that is the key.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gpuprep.records import Compared

# "fp16 8192x8192x8192 TN" ► TFLOPS; more is better in all of them
Figures = Mapping[str, float]


@dataclass(frozen=True)
class BaselineKey:
    gpu_uuid: str
    probe: str  # "gemm"
    versions: str  # "gpuprep 0.1.0, cublasLt 13.1.0, quick"


@dataclass(frozen=True)
class BaselineFigure:
    value: float
    run_id: str  # the run that it was measured in
    set_at: str  # UTC, ISO 8601


Measured = Mapping[BaselineKey, Figures]
Baseline = Mapping[BaselineKey, Mapping[str, BaselineFigure]]


def compared(measured: Measured, baseline: Baseline) -> tuple[Compared, ...]:
    """Each figure of now that the baseline has, too."""
    return tuple(
        Compared(key.gpu_uuid, key.probe, name, now, past[name].value, past[name].run_id)
        for key, past in baseline.items()
        for name, now in measured.get(key, {}).items()
        if name in past
    )
