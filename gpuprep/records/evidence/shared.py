"""Forms that several probes share: a GPU, a library, telemetry, processes. docs/records.md, "Shared forms"."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional

from gpuprep.records.evidence import Column, Size


@dataclass(frozen=True)
class NamedGpu:
    """A GPU wherever a measurement names one."""

    index: Optional[int] = None
    uuid: str = ""
    name: str = ""
    pci_device_id: str = ""
    pci_subsystem_id: str = ""  # "" where it was not read


@dataclass(frozen=True)
class Library:
    """A shared object that was really loaded into the probing process."""

    name: str = ""
    path: str = ""
    version: Optional[str] = None


@dataclass(frozen=True)
class Process:
    """Another process that used the GPU."""

    pid: Optional[int] = None
    name: str = ""
    memory_mib: Size = None
    owner: str = ""  # the user's name, or the id where it has none
    age_seconds: Optional[int] = None  # since the program was started


@dataclass(frozen=True)
class Telemetry:
    """Columns of equal length. `event_reasons` are NVML's bit masks, clocks MHz, utilisations per cent."""

    hz: Optional[float] = None
    seconds: Column = ()
    graphics_clock_mhz: Column = ()
    memory_clock_mhz: Column = ()
    video_clock_mhz: Column = ()
    power_watts: Column = ()
    temperature_c: Column = ()
    event_reasons: Column = ()
    gpu_utilization_percent: Column = ()
    encoder_utilization_percent: Column = ()
    decoder_utilization_percent: Column = ()


@dataclass(frozen=True)
class Ffmpeg:
    path: str = ""
    version: Optional[str] = None


@dataclass(frozen=True)
class AnyProbe:
    """The fields that measurements of several probes have."""

    quick: Optional[bool] = None
    libraries: tuple[Library, ...] = ()
    ffmpeg: Optional[Ffmpeg] = None
    gpu: Optional[NamedGpu] = None
    gpus: tuple[NamedGpu, ...] = ()


@dataclass(frozen=True)
class Probe:
    """What is known of a probe before it runs. Its files have its name: agent/probes/ measures, checks/judges/ judges.

    `evidence` is the dataclass of its values, `place` where it stands among the others in reports and in lists.
    """

    name: str
    evidence: type
    place: int
    step: str  # of a plan, which it tests: if the step is left out, the probe does not run
    what: str  # for the progress line
    measures: bool = True  # a figure, briefly with --quick; the others only say whether something works
    timeout_seconds: float = 600.0
    shares_turn: bool = False  # others that share may measure at the same time (agent/turn.py)
    clips: bool = False  # it reads clips, which can be made beforehand
