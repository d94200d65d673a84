"""A model of the speed of a simulated GPU, for simulated VMs only.

The figures are near published ones (sim/gpus.yml names them) at the clocks that agent/gpu/simgpu.py gives; they prove
nothing about a real GPU, and every result made from them has the source `simulated` (agent/facts/simulation.py).
"""

from __future__ import annotations

from pathlib import Path
from typing import Dict, List, Optional, Union

from gpuprep.agent.facts.simulation import SIMULATION_MARK
from gpuprep.agent.gpu import simgpu, simstate
from gpuprep.records import Missing


def available() -> bool:
    """Is this a simulated VM whose driver is loaded?"""
    return SIMULATION_MARK.exists() and bool(gpus())


def gpus(folder: Optional[Path] = None) -> List[SimulatedGpu]:
    """The GPUs that NVML counts, including lost GPUs; [] if no driver is loaded."""
    folder = folder or simstate.FOLDER
    sections = simstate.gpu_sections(simstate.read(folder))
    return [SimulatedGpu(index, section, folder) for index, section in enumerate(sections)]


class SimulatedGpu(simgpu.Gpu):
    """The figures of one GPU as it is now."""

    def tflops(self, dtype: str, accumulate: str = "", sample: int = 0) -> Union[float, Missing]:
        """10^12 operations per second of a large, aligned product (`dtype` of docs/records.md) at the clock under load.

        Each `sample` differs a little. Missing("not_supported") if the GPU has no such unit.
        """
        rate = self.model.get("fma", {}).get(dtype)
        if rate is None:
            return Missing("not_supported", f"{self.name} has no unit for {dtype}")
        peak = self.sms * rate * 2 * self.graphics_clock_mhz(dtype) * 1e6 / 1e12
        share = self.model["efficiency"][dtype] * self.number("fault_compute_percent", 100) / 1e4
        return self.noisy(peak * share, dtype, accumulate, sample)

    def memory_gb_per_s(self, kind: str, sample: int = 0) -> float:
        """GB/s of `kind` (`copy`: bytes read and written, `read` or `triad`) at the memory clock under load."""
        figure = float(self.model.get("memory", {}).get(kind, 0.0)) * self.memory_share
        clock = self.memory_clock_mhz() / max(self.max_memory_clock_mhz, 1)
        return self.noisy(figure * clock * self.number("fault_memory_percent", 100) / 100, kind, sample)

    def pcie(self) -> Dict[str, int]:
        """Generation and width of the link under load; idle, the generation falls to 1."""
        highest = self.number("pcie_generation")
        return {
            "generation": min(highest, self.number("fault_pcie_generation", highest)),
            "width": self.number("pcie_width_now"),
            "max_generation": highest,
            "max_width": self.number("pcie_width"),
        }

    def host_gb_per_s(self, direction: str, sample: int = 0) -> float:
        """GB/s of copies `h2d` or `d2h` with pinned memory, limited by the link."""
        link = self.pcie()
        share = link["width"] / max(link["max_width"], 1) * 2.0 ** (link["generation"] - link["max_generation"])
        return self.noisy(float(self.model.get("host", {}).get(direction, 0.0)) * share, direction, sample)

    def peer_gb_per_s(self, other: SimulatedGpu, sample: int = 0) -> float:
        """GB/s from this GPU to another GPU of the machine."""
        figures = [float(gpu.model.get("peer", 11.0)) * gpu._links_up_share() for gpu in (self, other)]
        return self.noisy(min(figures), "peer", other.index, sample)

    def _links_up_share(self) -> float:
        return self.nvlinks / max(self.number("nvlinks"), 1) if self.number("nvlinks") else 1.0

    @property
    def nvlinks(self) -> int:
        """Number of active NVLinks."""
        return self.number("nvlinks_up", self.number("nvlinks"))
