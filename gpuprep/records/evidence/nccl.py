"""What the nccl probe measured: collectives over all GPUs of the machine. docs/records.md, nccl."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Optional, Union

from gpuprep.records import Missing
from gpuprep.records.evidence import NOT_RECORDED, Error, Figure, Size, Word
from gpuprep.records.evidence.bandwidth import Pcie
from gpuprep.records.evidence.shared import Library, NamedGpu, Probe, Process

Count = Union[int, Missing]


@dataclass(frozen=True)
class NcclGpu(NamedGpu):
    """Clock, power and temperature are the highest during the run."""

    other_processes: Union[tuple[Union[Process, Missing], ...], Missing] = NOT_RECORDED
    pcie: Union[Pcie, Missing] = NOT_RECORDED
    graphics_clock_mhz: Figure = NOT_RECORDED
    power_watts: Figure = NOT_RECORDED
    temperature_c: Figure = NOT_RECORDED
    event_reasons: Figure = NOT_RECORDED  # NVML's bit mask


@dataclass(frozen=True)
class Link:
    """Number of active NVLinks from one GPU to another, or to switches."""

    start: Optional[int] = field(default=None, metadata={"key": "from"})
    end: Optional[int] = field(default=None, metadata={"key": "to"})
    nvlinks: Figure = NOT_RECORDED


@dataclass(frozen=True)
class Variable:
    """One environment variable, NCCL_*."""

    name: str = ""
    value: str = ""


@dataclass(frozen=True)
class Transport:
    """The transport of some channels: "P2P/CUMEM", "SHM/direct"."""

    name: str = ""
    count: Optional[int] = None


@dataclass(frozen=True)
class Chosen:
    """NCCL's choices, from its log."""

    channels: Optional[int] = None
    nvls_channels: Optional[int] = None  # 0: the switches' multicast (NVLS) is not used
    transports: tuple[Transport, ...] = ()


@dataclass(frozen=True)
class Point:
    """One collective in one size. `wrong`: number of wrong elements among the `checked`."""

    operation: Word = "?"
    bytes: Size = None
    microseconds: Figure = NOT_RECORDED
    algbw_gb_per_s: Figure = NOT_RECORDED
    busbw_gb_per_s: Figure = NOT_RECORDED
    checked: Count = NOT_RECORDED
    wrong: Count = NOT_RECORDED
    repeats: Size = None


@dataclass(frozen=True)
class Stopped:
    """NCCL hung: what it was doing, and how long the probe waited for it."""

    doing: str = ""
    seconds: Figure = NOT_RECORDED


@dataclass(frozen=True)
class Nccl:
    """`published`: source of figures from elsewhere; no probe writes it."""

    quick: Optional[bool] = None
    version: Optional[str] = None
    libraries: tuple[Library, ...] = ()
    environment: tuple[Variable, ...] = ()
    gpus: tuple[Union[NcclGpu, Missing], ...] = ()
    links: tuple[Link, ...] = ()
    most_bytes: Size = None  # the largest buffer that the free memory allowed
    chosen: Optional[Chosen] = None
    warnings: tuple[str, ...] = ()
    points: tuple[Union[Point, Missing], ...] = ()
    stopped: Optional[Stopped] = None
    published: str = ""
    error: Error = ""


PROBE = Probe("nccl", Nccl, 60, "cuda", "collectives over all GPUs (NCCL)")
