"""The GPU and the other processes on it as values of a measurement: docs/records.md, "Shared forms"."""

from __future__ import annotations

import os
from typing import Any, Dict

from gpuprep.agent.gpu.nvml import Gpu
from gpuprep.records import Missing, to_json_value

NAMES = ("index", "uuid", "name", "pci_device_id", "pci_subsystem_id")


def named(facts: Any) -> Dict[str, Any]:
    """The "gpu" of a measurement, from GpuFacts or from a simulated GPU, which has the same fields."""
    return {name: getattr(facts, name) for name in NAMES}


def other_processes(gpu: Gpu) -> Any:
    """Other processes with a context on this GPU: ProcessOnGpu as plain values, or Missing."""
    processes = gpu.processes()
    if isinstance(processes, Missing):
        return processes
    return [to_json_value(process) for process in processes if process.pid != os.getpid()]
