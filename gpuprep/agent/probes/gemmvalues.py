"""Builds the values of a matrix product (docs/records.md, "gemm")."""

from __future__ import annotations

from typing import Any, Dict, List, Optional

from gpuprep.agent.compute.sampler import Sampler
from gpuprep.agent.probereports import measured, tell
from gpuprep.agent.probes.burst import Burst
from gpuprep.agent.probes.gemmtypes import DataType, Shape
from gpuprep.agent.probes.gpuforms import named
from gpuprep.records import GpuFacts, Missing

NOT_MEASURED = Missing("not_measured", "the product did not run")
SAMPLED = ("graphics_clock_mhz", "memory_clock_mhz", "power_watts", "temperature_c", "event_reasons", "telemetry")


def product_values(
    kind: DataType,
    shape: Shape,
    burst: Optional[Burst] = None,
    algorithm: Optional[Dict[str, Any]] = None,
    error: Optional[str] = None,
) -> Dict[str, Any]:
    """Values of one product. Without `burst` every figure is Missing and `error` has the reason."""
    nothing = NOT_MEASURED if error is None else Missing("command_failed", error)
    return {
        "dtype": kind.dtype,
        "accumulate": kind.accumulate,
        "m": shape.m,
        "n": shape.n,
        "k": shape.k,
        "layout": "TN",
        "tflops": nothing if burst is None else round(shape.operations / burst.milliseconds / 1e9, 3),
        "rel_stdev_percent": nothing if burst is None else burst.rel_stdev_percent,
        "iterations": nothing if burst is None else burst.iterations,
        "microseconds": nothing if burst is None else round(burst.milliseconds * 1000, 2),
        "algorithm": nothing if algorithm is None else algorithm,
        **dict.fromkeys(SAMPLED, nothing),
        "exact": nothing,
        "max_relative_error": nothing,
        "error_tolerance": kind.tolerance,
        "sustained": None,
        "error": error,
    }


def figures(sampler: Sampler, index: int, since: float = 0.0) -> Dict[str, Any]:
    """NVML's readings: means from second `since` on, the highest temperature, all event reasons, and the samples."""
    return {
        "graphics_clock_mhz": sampler.mean(index, "graphics_clock_mhz", since),
        "memory_clock_mhz": sampler.mean(index, "memory_clock_mhz", since),
        "power_watts": sampler.mean(index, "power_watts", since),
        "temperature_c": sampler.highest(index, "temperature_c"),
        "event_reasons": sampler.event_reasons(index),
        "telemetry": sampler.telemetry(index),
    }


def gpu_values(facts: GpuFacts, processes: Any, sms: Any, l2_mib: Any) -> Dict[str, Any]:
    """Values of one GPU, still without products."""
    return {
        **named(facts),
        "sms": sms,
        "l2_mib": l2_mib,
        "max_graphics_clock_mhz": facts.max_graphics_clock_mhz,
        "power_limit_watts": facts.power.current_watts,
        "other_processes": processes,
        "gemms": [],
        "error": None,
    }


# ---------------------------------------------------------------- progress

# Reports the progress of the matrix products: finished data types, and their figures.


class Pace:
    """Progress of one of several GPUs. Other GPUs are assumed to have as many data types as this GPU."""

    def __init__(self, gpu: int, gpus: int) -> None:
        self._gpu, self._gpus = gpu, gpus
        self.types = 0
        self.done = 0

    def known(self, row: Dict[str, Any]) -> None:
        """Report the GPU's values that are known before its products."""
        measured(row, "gpus", self._gpu)

    def ended(self, error: Optional[str]) -> None:
        """Report the end of the GPU's products; `error`: why the rest was given up."""
        measured(error, "gpus", self._gpu, "error")

    def measured(self, gemms: List[Dict[str, Any]]) -> None:
        """Report the last of `gemms`, which is new."""
        measured(gemms[-1], "gpus", self._gpu, "gemms", len(gemms) - 1)

    def tell(self, what: str) -> None:
        where = f"GPU {self._gpu}: " if self._gpus > 1 else ""
        tell(
            f"{where}{what}",
            done=self._gpu * self.types + self.done,
            of=self._gpus * self.types,
            unit="types of matrix products",
        )
