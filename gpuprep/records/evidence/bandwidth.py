"""What the bandwidth probe measured: memory and links of each GPU, copies between GPUs. docs/records.md, bandwidth."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Optional, Union

from gpuprep.records import Missing
from gpuprep.records.evidence import NOT_RECORDED, Error, Figure, Size
from gpuprep.records.evidence.shared import Library, NamedGpu, Probe, Process, Telemetry


@dataclass(frozen=True)
class Pcie:
    """The link under load. `max_`: maximum of device and slot together; `device_`, `slot_`: of each alone."""

    generation: Size = None
    width: Size = None
    max_generation: Size = None
    max_width: Size = None
    device_generation: Size = None
    device_width: Size = None
    slot_generation: Size = None
    slot_width: Size = None


@dataclass(frozen=True)
class BandwidthGpu(NamedGpu):
    other_processes: Union[tuple[Union[Process, Missing], ...], Missing] = NOT_RECORDED
    copy_gb_per_s: Figure = NOT_RECORDED
    read_gb_per_s: Figure = NOT_RECORDED
    triad_gb_per_s: Figure = NOT_RECORDED
    h2d_gb_per_s: Figure = NOT_RECORDED
    d2h_gb_per_s: Figure = NOT_RECORDED
    buffer_mib: Size = None
    graphics_clock_mhz: Figure = NOT_RECORDED
    memory_clock_mhz: Figure = NOT_RECORDED
    event_reasons: Figure = NOT_RECORDED  # NVML's bit mask
    pcie: Union[Pcie, Missing] = NOT_RECORDED
    telemetry: Optional[Telemetry] = None
    error: Error = ""
    write_gb_per_s: Union[float, Missing, None] = None  # no probe of ours measures it; judged where it is there
    pinned: Optional[bool] = None  # the host's memory of the copies; None: older records, where it always was

    @property
    def memory(self) -> dict[str, Figure]:
        """Kind of access ► GB/s of the GPU's memory."""
        figures: dict[str, Figure] = {
            "device copy": self.copy_gb_per_s,
            "device read": self.read_gb_per_s,
            "device triad": self.triad_gb_per_s,
        }
        return figures if self.write_gb_per_s is None else {**figures, "device write": self.write_gb_per_s}

    @property
    def host(self) -> dict[str, Figure]:
        """Direction ► GB/s of copies to and from the host."""
        return {"host to device": self.h2d_gb_per_s, "device to host": self.d2h_gb_per_s}


@dataclass(frozen=True)
class Peer:
    """A copy from one GPU to another, in one direction."""

    start: Optional[int] = field(default=None, metadata={"key": "from"})
    end: Optional[int] = field(default=None, metadata={"key": "to"})
    can_access: Optional[bool] = None
    gb_per_s: Figure = NOT_RECORDED
    nvlinks: Figure = NOT_RECORDED
    error: Error = ""
    topology: str = ""  # the nearest thing above both: "PIX", "PXB", "PHB", "NODE", "SYS"; "" where it was not read


@dataclass(frozen=True)
class Bandwidth:
    """`published`: source of figures from elsewhere; no probe writes it."""

    quick: Optional[bool] = None
    libraries: tuple[Library, ...] = ()
    gpus: tuple[Union[BandwidthGpu, Missing], ...] = ()
    peers: tuple[Peer, ...] = ()
    published: str = ""


PROBE = Probe("bandwidth", Bandwidth, 50, "cuda", "memory and link bandwidth")
