"""What the model of each simulated GPU measures is judged as hardware would be: healthy, and made slow."""

from __future__ import annotations

from typing import Any

import pytest
from gemmrecords import judge, one
from test_gemm_simulated import Boot, booted, measured

from gpuprep.records import Finding, Status

__all__ = ["booted"]  # the fixture
SPEED = "gpu 0.gemm_"


def alone(values: dict[str, Any]) -> dict[str, Any]:
    """NVML of these tests always shows two other processes, a T4's clock and limit: they are not the model's."""
    for gpu in values["gpus"]:
        gpu["other_processes"] = []
        gpu["power_limit_watts"] = None
        for gemm in gpu["gemms"]:
            gemm["graphics_clock_mhz"] = None
    return values


def speeds(key: str, booted: Boot, **faults: object) -> list[Finding]:
    booted(key, **faults)
    found = judge(key, alone(measured(quick=True)))
    assert one(found, "gpu 0.gemm_results").status is Status.PASS
    return [f for f in found if f.key.startswith(SPEED) and f.property not in ("gemm_results", "gemm_errors")]


@pytest.mark.parametrize("key", ["t4", "v100", "a100", "h200"])
def test_a_healthy_gpu_passes(key: str, booted: Boot) -> None:
    found = speeds(key, booted)
    assert len(found) >= 3
    assert {f.key: f.reason for f in found if f.status is not Status.PASS} == {}


@pytest.mark.parametrize("key", ["t4", "v100", "a100", "h200"])
def test_a_gpu_at_a_third_of_its_speed_fails_in_every_type(key: str, booted: Boot) -> None:
    found = speeds(key, booted, fault_compute_percent=33)
    assert {f.key for f in found if f.status is not Status.FAIL} == set()
