"""tuning.json: what the role gpu_tuning wants of every GPU of this machine."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Dict, List, Optional, Protocol, Union

from gpuprep.agent.gpu.mig import Instance, MigProfile
from gpuprep.records import ClockPair, DecodeError, GpuFacts, Missing, from_json
from gpuprep.untrusted.limits import file_text

ALLOWED = {
    "clocks": ("max", "default"),
    "power_limit_watts": ("default",),
    "ecc": ("keep", "enabled", "disabled"),
    "compute_mode": ("default", "exclusive_process", "prohibited"),
    "mig": ("keep", "disabled"),
}


@dataclass(frozen=True)
class TuningSettings:
    persistence: bool
    clocks: Union[str, ClockPair]
    power_limit_watts: Union[str, int]
    ecc: str
    compute_mode: str
    mig: Union[str, Dict[str, int]] = "keep"  # or profile ► how many instances of it: {"1g.10gb": 7}
    models: Dict[str, ClockPair] = field(default_factory=dict)  # PCI device id ("1eb8") ─► the model's best pair


def load(path: Path) -> TuningSettings:
    """Read tuning.json. Raises DecodeError that names the field; OSError if the file does not exist."""
    try:
        settings = from_json(TuningSettings, file_text(path))
    except DecodeError as error:
        raise DecodeError(f"{path}: {error}") from error
    for name, allowed in ALLOWED.items():
        value = getattr(settings, name)
        if isinstance(value, str) and value not in allowed:
            raise DecodeError(f"{path}: {name}: {value!r} is none of {', '.join(allowed)}")
    return settings


# ---------------------------------------------------------------- the GPU that is tuned

# The interface of a GPU that tuning needs. nvml.Gpu implements it; tests have other implementations.


class Device(Protocol):
    """Setters return None if the GPU took the setting, else Missing with the reason."""

    index: int

    def facts(self) -> GpuFacts: ...
    def set_persistence(self, on: bool) -> Optional[Missing]: ...
    def set_application_clocks(self, pair: ClockPair) -> Optional[Missing]: ...
    def reset_application_clocks(self) -> Optional[Missing]: ...
    def lock_graphics_clock(self, mhz: int) -> Optional[Missing]: ...
    def lock_memory_clock(self, mhz: int) -> Optional[Missing]: ...
    def unlock_graphics_clock(self) -> Optional[Missing]: ...
    def unlock_memory_clock(self) -> Optional[Missing]: ...
    def set_power_limit(self, watts: float) -> Optional[Missing]: ...
    def set_ecc(self, on: bool) -> Optional[Missing]: ...
    def set_compute_mode(self, mode: str) -> Optional[Missing]: ...
    def set_mig(self, on: bool) -> Optional[Missing]: ...
    def mig_profiles(self) -> Union[List[MigProfile], Missing]: ...
    def mig_instances(self) -> Union[List[Instance], Missing]: ...
    def create_instance(self, profile: MigProfile, start: int) -> Optional[Missing]: ...
    def destroy_instance(self, instance: Instance) -> Optional[Missing]: ...


# ---------------------------------------------------------------- a line of the report

# One line of a tuning report.


@dataclass(frozen=True)
class Row:
    """One property of one GPU.

    `how`: clocks "application" or "locked"; persistence "daemon" or "legacy".
    `reboot_needed`: the setting is taken, and shows after the next reboot (ECC, MIG).
    """

    gpu: int
    uuid: str
    property: str
    wanted: str
    before: str
    after: str
    changed: bool
    as_wanted: bool
    how: str = ""
    error: str = ""
    reboot_needed: bool = False


def shown(reading: Union[str, Missing, None]) -> str:
    """A reading as text; for Missing its reason and NVML's message; "" for None."""
    if isinstance(reading, Missing):
        return f"{reading.reason}: {reading.detail}" if reading.detail else reading.reason
    return reading or ""
