"""One simulated GPU: its clocks, power and video engines under load, from the state of the simulated NVML.

A lowered power limit, a set clock and a fault have the same effect as on hardware. Standard library only.
"""

from __future__ import annotations

import contextlib
import hashlib
from pathlib import Path
from typing import Any, Dict, Iterator

from gpuprep.agent.gpu import simstate

ARCHITECTURES = {5: "volta", 6: "turing", 7: "ampere", 9: "hopper"}  # NVML's numbers
# NVML's event reasons
IDLE, APPLICATION_CLOCKS, SW_POWER_CAP = 1, 2, 4
# Power grows with clock times voltage squared, and voltage with the clock, though less: between a square and a cube.
POWER_EXPONENT = 2.2
NOISE = 0.006  # of a figure, either way


class Gpu:
    """One GPU as it is now. `work` is a data type ("fp16"), "memory" or "video": it decides the power."""

    def __init__(self, index: int, section: Dict[str, str], folder: Path = simstate.FOLDER) -> None:
        self.index = index
        self._state = section
        self.folder = folder
        self.model = simstate.performance(section)
        self.uuid = section.get("uuid", "")
        part = simstate.instance(section)  # with MIG on, programs see an instance
        self.name = section.get("name", "") + (f" MIG {part.profile}" if part else "")
        self.memory_share = part.eighths / 8 if part else 1.0
        self.pci_device_id = f"{self.number('pci_id') >> 16:04x}"
        self.pci_subsystem_id = f"{self.number('pci_subsystem') >> 16:04x}"
        self.lost = bool(self.number("fault_gpu_lost"))
        self.sms = part.multiprocessors if part else self.number("multiprocessors")
        self.architecture = ARCHITECTURES.get(self.number("architecture"), "")
        self.l2_mib = int(self.model.get("l2_mib", 0))
        self.max_graphics_clock_mhz = self.number("max_graphics")
        self.max_memory_clock_mhz = self.number("max_memory")
        self.power_limit_watts = self.number("power_limit_mw", self.number("power_default_mw")) / 1000

    def number(self, key: str, otherwise: int = 0) -> int:
        """A value of the state; `otherwise` if the state does not have it."""
        return int(self._state.get(key) or otherwise)

    # ------------------------------------------------------------ clocks and power

    def _asked_graphics_mhz(self) -> int:
        """The highest clock that application clocks and locked clocks allow."""
        asked = self.number("app_graphics", self.number("default_graphics"))
        return min(self.number("locked_graphics_max", asked), self.max_graphics_clock_mhz)

    def _enforced_watts(self) -> float:
        return min(self.power_limit_watts, self.number("fault_power_cap_mw", 10**9) / 1000)

    def _power_at(self, mhz: float, work: str) -> float:
        idle = self.number("power_usage_mw") / 1000
        full = float(self.model.get("watts", {}).get(work, idle))
        return float(idle + (full - idle) * (mhz / max(self.max_graphics_clock_mhz, 1)) ** POWER_EXPONENT)

    def graphics_clock_mhz(self, work: str = "fp16") -> int:
        """The clock under steady load: the set clock, lowered by faults and until the power limit holds."""
        mhz = self._asked_graphics_mhz() * self.number("fault_clock_percent", 100) // 100
        lowest = self.number("idle_graphics")
        while mhz > lowest and self._power_at(mhz, work) > self._enforced_watts():
            mhz -= 5
        return max(mhz, lowest)

    def memory_clock_mhz(self) -> int:
        asked = self.number("app_memory", self.number("default_memory"))
        asked = min(self.number("locked_memory_max", asked), self.max_memory_clock_mhz)
        return asked * self.number("fault_memory_clock_percent", 100) // 100

    def video_clock_mhz(self, work: str = "video") -> int:
        return self.graphics_clock_mhz(work) * self.number("video_clock_percent", 93) // 100 // 15 * 15

    def power_watts(self, work: str = "fp16") -> float:
        return round(min(self._power_at(self.graphics_clock_mhz(work), work), self._enforced_watts()), 1)

    def temperature_c(self, work: str = "fp16") -> int:
        """Temperature under load: 20 degrees below the slowdown at full power, or higher if a fault sets it higher."""
        idle, slowdown = self.number("temperature"), self.number("temperature_slowdown")
        share = self.power_watts(work) / max(self.number("power_max_mw") / 1000, 1)
        return max(idle, round(34 + share * (slowdown - 20 - 34)))

    def event_reasons(self, work: str = "fp16") -> int:
        """NVML's bit mask under load: reasons of a fault, the power cap, or a set clock below the highest."""
        reasons = self.number("event_reasons", IDLE) & ~IDLE
        clock, asked = self.graphics_clock_mhz(work), self._asked_graphics_mhz()
        if clock < asked * self.number("fault_clock_percent", 100) // 100:
            reasons |= SW_POWER_CAP
        elif asked < self.max_graphics_clock_mhz:
            reasons |= APPLICATION_CLOCKS
        return reasons

    def noisy(self, figure: float, *what: object) -> float:
        """The figure with a small measuring error, which is always the same for the same `what`."""
        digest = hashlib.sha256(repr((self.uuid, *what)).encode()).digest()
        return figure * (1 + NOISE * (int.from_bytes(digest[:4], "big") / 2**31 - 1))

    @property
    def video(self) -> Dict[str, Any]:
        """Engines and their rates, as in sim/gpus.yml."""
        return dict(self.model.get("video", {}))

    # ------------------------------------------------------------ load

    @contextlib.contextmanager
    def load(self, work: str = "fp16", memory_mib: int = 1024) -> Iterator[None]:
        """Put a load on this GPU: NVML then shows its clocks, use, power, temperature, reasons, link and process."""
        values = {
            "graphics": self.graphics_clock_mhz(work),
            "memory": self.memory_clock_mhz(),
            "power_mw": round(self.power_watts(work) * 1000),
            "temperature": self.temperature_c(work),
            "event_reasons": self.event_reasons(work),
            "utilization": 99,
            "memory_mib": memory_mib,
        }
        with simstate.load(self.index, values, self.folder):
            yield


def current(gpu: Gpu) -> Gpu:
    """The same GPU as it is now; its old state if it is gone."""
    sections = simstate.gpu_sections(simstate.read(gpu.folder))
    return Gpu(gpu.index, sections[gpu.index], gpu.folder) if gpu.index < len(sections) else gpu
