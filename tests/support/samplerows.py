"""Readings of a GPU under load."""

from __future__ import annotations

import itertools
import threading
import types
from typing import Any

from fakepynvml import Answers, t4_answers

from gpuprep.agent.compute import sampler

COLUMNS = sampler.COLUMNS  # of a reading
NOBODY = 2**22  # beyond every process id


class Scripted:
    """A GPU that answers `rows` one after the other, and then the last again; `asked` is set after `count` readings."""

    def __init__(self, index: int, rows: list[dict[str, Any]], count: int = 3) -> None:
        self.index = index
        self.rows = rows
        self.taken = itertools.count()
        self.count = count
        self.asked = threading.Event()

    def load(self) -> dict[str, Any]:
        number = next(self.taken)
        if number + 1 >= self.count:
            self.asked.set()
        return self.rows[min(number, len(self.rows) - 1)]


def row(**readings: Any) -> dict[str, Any]:
    return {**dict.fromkeys(COLUMNS, 0), **readings}


def loaded_answers() -> Answers:
    return {
        **t4_answers(),
        "nvmlDeviceGetClockInfo": lambda _, kind: {0: 930, 2: 5000, 3: 1200}[kind],
        "nvmlDeviceGetPowerUsage": 69500,
        "nvmlDeviceGetUtilizationRates": types.SimpleNamespace(gpu=99, memory=40),
        "nvmlDeviceGetEncoderUtilization": [41, 1000],
        "nvmlDeviceGetDecoderUtilization": [22, 1000],
        "nvmlDeviceGetEncoderStats": [3, 30, 1000],
        "nvmlDeviceGetComputeRunningProcesses": [types.SimpleNamespace(pid=NOBODY + 9, usedGpuMemory=300 * 2**20)],
        "nvmlDeviceGetGraphicsRunningProcesses": [types.SimpleNamespace(pid=NOBODY + 4, usedGpuMemory=None)],
        "nvmlSystemGetProcessName": lambda pid: f"name{pid - NOBODY}",
    }
