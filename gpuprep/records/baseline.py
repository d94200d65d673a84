"""A host's baseline: the figures of its first run that passed. Later runs are compared with them.

Figures can be compared only if GPU, probe and library versions are the same; these are the key.
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
    """Each present figure that the baseline also has."""
    return tuple(
        Compared(key.gpu_uuid, key.probe, name, now, past[name].value, past[name].run_id)
        for key, past in baseline.items()
        for name, now in measured.get(key, {}).items()
        if name in past
    )
