"""What the model of each simulated GPU measures is judged as hardware would be: healthy, and made slow."""

from __future__ import annotations

from typing import Any

import pytest
from gemmrecords import judge, one
from simulatedboot import Boot, booted, measured

from gpuprep import records
from gpuprep.agent.probes import simulated

__all__ = ["booted"]  # the fixture
SPEED = "gpu 0.gemm_"
NO_DATA_TYPE = ("gemm_results", "gemm_errors", "gemm_at_its_clock")


def alone(values: dict[str, Any], model: simulated.SimulatedGpu) -> dict[str, Any]:
    """NVML of these tests shows an idle GPU, two other processes, a T4's clocks, watts and limit: here the model's."""
    for gpu in values["gpus"]:
        gpu["other_processes"] = []
        gpu["power_limit_watts"] = None
        gpu["max_graphics_clock_mhz"] = model.number("max_graphics")
        for gemm in gpu["gemms"]:
            gemm["graphics_clock_mhz"] = float(model.graphics_clock_mhz(gemm["dtype"]))
            gemm["memory_clock_mhz"] = float(model.memory_clock_mhz())
            gemm["power_watts"] = model.power_watts(gemm["dtype"])
            gemm["event_reasons"] = model.event_reasons(gemm["dtype"])
    return values


def speeds(key: str, booted: Boot, **faults: object) -> list[records.Finding]:
    (model,) = simulated.gpus(booted(key, **faults))
    found = judge(key, alone(measured(quick=True), model))
    assert one(found, "gpu 0.gemm_results").status is records.Status.PASS
    return [f for f in found if f.key.startswith(SPEED) and f.property not in NO_DATA_TYPE]


@pytest.mark.parametrize("key", ["t4", "v100", "a100", "h200"])
def test_a_healthy_gpu_passes(key: str, booted: Boot) -> None:
    found = speeds(key, booted)
    assert len(found) >= 3
    assert {f.key: f.reason for f in found if f.status is not records.Status.PASS} == {}


@pytest.mark.parametrize("key", ["t4", "v100", "a100", "h200"])
def test_a_gpu_at_a_third_of_its_speed_fails_in_every_type(key: str, booted: Boot) -> None:
    found = speeds(key, booted, fault_compute_percent=33)
    assert {f.key for f in found if f.status is not records.Status.FAIL} == set()
