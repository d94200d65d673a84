"""A simulated GPU of this computer: the NVML stand-in's state, and the probe of products there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fakepynvml import install
from probereportsfortests import assert_same, listening, measure, plain
from samplerows import loaded_answers

from gpuprep.agent.compute import libraries
from gpuprep.agent.facts import simulation
from gpuprep.agent.gpu import nvml, simstate
from gpuprep.agent.probes import simulated
from gpuprep.sim import driver, gpus, nvmlstate

LOAD_CUBLASLT = libraries.load_cublaslt
TOOLKIT = {"nvcc": "/usr/bin/nvcc", "version": "12.4", "library_dirs": ["/usr/lib/x86_64-linux-gnu"]}


Boot = Callable[..., Path]


KEYS = [key for key, model in gpus.models().items() if not model.is_switch]  # of every GPU that can be simulated


def performance(key: str) -> dict[str, Any]:
    """What a simulated GPU's model says of its speed and power."""
    found: dict[str, Any] = gpus.models()[key].data["performance"]
    return found


def boot_with(folder: Path, *keys: str, loaded: bool = True, **values: Any) -> None:
    """GPUs right after a boot, at their highest clocks, with `values` put into the first one's state."""
    devices = gpus.devices("test", list(keys))
    addresses = tuple(device.bus_id for device in devices)
    kernel = driver.Loaded("550.163.01", False, addresses, {}) if loaded else None
    nvmlstate.write_boot(folder, kernel, devices)
    if not loaded:
        return
    with nvmlstate.changed(folder) as state:
        for number in range(len(keys)):
            section = state[f"gpu.{number}"]
            section["app_graphics"], section["app_memory"] = section["max_graphics"], section["max_memory"]
        state["gpu.0"].update({name: str(value) for name, value in values.items()})


@pytest.fixture
def booted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Boot:
    """A simulated VM with these GPUs; NVML answers as a T4 under load whatever they are."""

    def boot(*keys: str, **values: Any) -> Path:
        boot_with(tmp_path, *keys, **values)
        (tmp_path / "loads").mkdir(exist_ok=True)
        monkeypatch.setattr(simulated, "SIMULATION_MARK", tmp_path)
        monkeypatch.setattr(simstate, "FOLDER", tmp_path)
        monkeypatch.setattr(libraries, "toolkit", lambda: TOOLKIT)
        monkeypatch.setattr(libraries, "load_cublaslt", lambda major: f"{major}.4.5")
        answers: dict[str, Any] = {**loaded_answers(), "nvmlDeviceGetCount": len(keys)}
        install(monkeypatch, answers)
        return tmp_path

    return boot


def other_toolkit(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    """A booted machine has this toolkit, whose cuBLAS the loader is really asked for."""
    monkeypatch.setattr(libraries, "load_cublaslt", LOAD_CUBLASLT)
    monkeypatch.setattr(libraries, "toolkit", lambda: {**TOOLKIT, "version": version})


def measured(**arguments: Any) -> dict[str, Any]:
    with listening() as told:
        values = plain("gemm", measure("gemm", **arguments))
    assert_same(told, values, "libraries", "toolkit", "gpus")
    return values


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
