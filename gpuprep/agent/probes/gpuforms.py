"""How a GPU is named in a measurement, and who else uses it: docs/records.md, "Shared forms"."""

from __future__ import annotations

import os
from typing import Any, Dict

from gpuprep.agent.gpu.nvml import Gpu
from gpuprep.records import Missing, to_json_value

NAMES = ("index", "uuid", "name", "pci_device_id", "pci_subsystem_id")


def named(facts: Any) -> Dict[str, Any]:
    """The "gpu" of GpuFacts, or of a simulated GPU, whose fields are called the same."""
    return {name: getattr(facts, name) for name in NAMES}


def other_processes(gpu: Gpu) -> Any:
    """Who has a context on this GPU besides us: ProcessOnGpu as plain values, or Missing."""
    processes = gpu.processes()
    if isinstance(processes, Missing):
        return processes
    return [to_json_value(process) for process in processes if process.pid != os.getpid()]
