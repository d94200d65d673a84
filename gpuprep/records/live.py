"""What `gpuprep watch` reads repeatedly from a machine: a small part of its facts. Never stored."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Union

from gpuprep.records import Source, Xid
from gpuprep.records.gpu import ClockPair, Float, Int, OptStr, ProcessOnGpu, Str
from gpuprep.records.serialize import Missing


@dataclass(frozen=True)
class LiveGpu:
    """One GPU at one moment. For a lost GPU the texts are "" and the rest is Missing."""

    index: int
    uuid: str
    name: str
    pci_address: str
    graphics_clock_mhz: Int
    memory_clock_mhz: Int
    application_clocks: Union[ClockPair, Missing]  # what is set now
    power_watts: Float
    power_limit_watts: Float
    temperature_c: Int
    slowdown_temperature_c: Int
    event_reasons: Int
    gpu_utilization_percent: Int
    encoder_utilization_percent: Int
    decoder_utilization_percent: Int
    memory_used_mib: Int
    memory_total_mib: Int
    ecc_corrected: Int  # since the driver was loaded
    ecc_uncorrected: Int
    processes: Union[tuple[ProcessOnGpu, ...], Missing]
    more_processes: int = 0  # that are left out


@dataclass(frozen=True)
class LiveSample:
    taken_at: str  # UTC, ISO 8601
    source: Source
    driver: OptStr
    gpus: Union[tuple[LiveGpu, ...], Missing]
    xids: Union[tuple[Xid, ...], Missing]  # of this boot, the newest last; read less often than the rest
    hostname: Str = ""
