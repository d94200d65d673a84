"""A pynvml whose answers are given, in the place of the agent's own, and what the agent reads through it."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import pynvml
import pytest

from gpuprep.agent.facts import system
from gpuprep.agent.gpu import nvml
from gpuprep.records import GpuFacts, Missing, OptStr

Answers = dict[str, Any]


def refuse(code: int) -> Callable[..., Any]:
    def call(*_: object) -> Any:
        raise pynvml.NVMLError(code)

    return call


def t4_answers() -> Answers:
    """What a T4 with driver 550 answers; functions are called, other values are returned."""
    clocks = {0: 585, 2: 5001}
    return {
        "nvmlInit": None,
        "nvmlShutdown": None,
        "nvmlSystemGetDriverVersion": "550.163.01",
        "nvmlDeviceGetCount": 1,
        "nvmlDeviceGetHandleByIndex": lambda index: f"handle {index}",
        "nvmlDeviceGetPciInfo": types.SimpleNamespace(
            busId="00000000:00:1E.0", pciDeviceId=0x1EB810DE, pciSubSystemId=0x12A210DE
        ),
        "nvmlDeviceGetUUID": "GPU-1",
        "nvmlDeviceGetName": b"Tesla T4",
        "nvmlDeviceGetSerial": "123",
        "nvmlDeviceGetMemoryInfo": types.SimpleNamespace(total=15360 * 2**20, used=451 * 2**20),
        "nvmlDeviceGetPersistenceMode": 1,
        "nvmlDeviceGetApplicationsClock": lambda _, kind: clocks[kind],
        "nvmlDeviceGetDefaultApplicationsClock": lambda _, kind: clocks[kind],
        "nvmlDeviceGetSupportedMemoryClocks": [5001, 405],
        "nvmlDeviceGetSupportedGraphicsClocks": lambda _, memory: [1590, 585] if memory == 5001 else [300],
        "nvmlDeviceGetMaxClockInfo": 1590,
        "nvmlDeviceGetClockInfo": lambda _, kind: {0: 300, 2: 405, 3: 540}[kind],
        "nvmlDeviceGetPowerManagementLimit": 70000,
        "nvmlDeviceGetPowerManagementDefaultLimit": 70000,
        "nvmlDeviceGetPowerManagementLimitConstraints": [60000, 70000],
        "nvmlDeviceGetEccMode": [1, 0],
        "nvmlDeviceGetComputeMode": 3,
        "nvmlDeviceGetTemperatureV": 31,
        "nvmlDeviceGetCurrentClocksEventReasons": 1,
    }


class FakePynvml(types.SimpleNamespace):
    NVMLError = pynvml.NVMLError

    def __init__(self, answers: Answers) -> None:
        super().__init__(asked=[])
        for name, answer in answers.items():
            setattr(self, name, self._recorded(name, answer))

    def _recorded(self, name: str, answer: Any) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            self.asked.append(name)
            return answer(*arguments) if callable(answer) else answer

        return call


def install(monkeypatch: pytest.MonkeyPatch, answers: Answers) -> FakePynvml:
    """From now on NVML answers so. `asked` of what comes back has the names of its calls."""
    fake = FakePynvml(answers)
    monkeypatch.setattr(nvml, "pynvml", fake)
    return fake


def gpu(index: int = 0) -> nvml.Gpu:
    return nvml.Gpu(index)


def read_gpus() -> tuple[tuple[GpuFacts, ...] | Missing, OptStr]:
    """(the facts of all GPUs, the driver's version), as the agent reads them."""
    return system.read_gpus()
