"""The simulated GPU that the bandwidth probe measures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fakepynvml import install
from samplerows import loaded_answers
from simulatedboot import Boot

from gpuprep.agent.facts import simulation
from gpuprep.agent.gpu import nvml
from gpuprep.agent.probes import simulated


@pytest.fixture
def simulated_vm(booted: Boot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Boot:
    mark = tmp_path / "mark"
    mark.touch()
    monkeypatch.setattr(simulation, "SIMULATION_MARK", mark)

    def boot(*keys: str, **values: object) -> Path:
        """NVML names nobody on the GPU, and the clocks that the model has under load."""
        folder = booted(*keys, **values)
        first = simulated.gpus()[0]
        clocks = {nvml.MEMORY: first.memory_clock_mhz(), nvml.GRAPHICS: first.graphics_clock_mhz("memory")}
        answers: dict[str, Any] = {
            **loaded_answers(),
            "nvmlDeviceGetCount": len(keys),
            "nvmlDeviceGetClockInfo": lambda _, kind: clocks.get(kind, 0),
            **{f"nvmlDeviceGet{kind}RunningProcesses": [] for kind in ("Compute", "Graphics")},
        }
        install(monkeypatch, answers)
        return folder

    return boot
