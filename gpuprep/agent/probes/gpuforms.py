"""The GPU and the other processes on it as values of a measurement: docs/records.md, "Shared forms"."""

from __future__ import annotations

import os
from typing import Any, Dict

from gpuprep.agent.gpu.nvml import Gpu
from gpuprep.records import Missing, to_json_value

NAMES = ("index", "uuid", "name", "pci_device_id", "pci_subsystem_id")


def named(facts: Any) -> Dict[str, Any]:
    """The "gpu" of a measurement, from GpuFacts or from a simulated GPU, which has the same fields.

    Of a GPU that MIG cuts, its first instance is measured (probes.run_probe chooses it): "NVIDIA H200 MIG 1g.18gb".
    """
    names = {name: getattr(facts, name) for name in NAMES}
    parts = getattr(facts, "mig_devices", ())
    if parts and not isinstance(parts, Missing):
        names["name"] = f"{facts.name} MIG {parts[0].profile}"
    return names


def other_processes(gpu: Gpu) -> Any:
    """Other processes with a context on this GPU: ProcessOnGpu as plain values, or Missing."""
    processes = gpu.processes()
    if isinstance(processes, Missing):
        return processes
    return [to_json_value(process) for process in processes if process.pid != os.getpid()]
