"""Is this machine simulated? Its GPUs are stand-ins then, and what is read or measured on it says so."""

from __future__ import annotations

from pathlib import Path

from gpuprep.agent import host_paths
from gpuprep.records import Source

SIMULATION_MARK = Path(host_paths.SIMULATION_MARK)


def source() -> Source:
    return Source.SIMULATED if SIMULATION_MARK.exists() else Source.MEASURED
