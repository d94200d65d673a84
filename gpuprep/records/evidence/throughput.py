"""What the throughput probe measured: frames per second of more and more sessions. docs/records.md, throughput."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional, Union

from gpuprep.records import Missing
from gpuprep.records.evidence import NOT_RECORDED, Column, Error, Figure, Size
from gpuprep.records.evidence.shared import Ffmpeg, NamedGpu, Probe, Process


@dataclass(frozen=True)
class Engines:
    """Number of the GPU's engines of each kind in the catalogue."""

    nvenc: Optional[int] = None
    nvdec: Optional[int] = None


@dataclass(frozen=True)
class Before:
    """Utilisation in per cent before the probe began."""

    encoder_utilization_percent: Optional[float] = None
    decoder_utilization_percent: Optional[float] = None


@dataclass(frozen=True)
class Pcie:
    """The link to the host when the probe began, and the maximum of device and slot."""

    generation: Size = None
    width: Size = None
    max_generation: Size = None
    max_width: Size = None


@dataclass(frozen=True)
class ThroughputGpu(NamedGpu):
    engines: Union[Engines, Missing, None] = None
    max_video_clock_mhz: Figure = NOT_RECORDED
    before: Before = Before()
    other_processes: Union[tuple[Union[Process, Missing], ...], Missing] = NOT_RECORDED
    memory_total_mib: Figure = NOT_RECORDED
    pcie: Union[Pcie, Missing, None] = None
    error: Error = ""


@dataclass(frozen=True)
class Step:
    """One number of sessions at once, in their steady state. Utilisations are per cent."""

    sessions: Optional[int] = None
    died: Union[int, Missing, None] = None
    died_because: str = ""
    fps: Figure = NOT_RECORDED  # of all sessions together
    fps_each: Column = ()
    frames: Optional[int] = None
    seconds: Figure = NOT_RECORDED
    start_seconds: Figure = NOT_RECORDED
    encoder_utilization_percent: Figure = NOT_RECORDED
    decoder_utilization_percent: Figure = NOT_RECORDED
    video_clock_mhz: Figure = NOT_RECORDED
    event_reasons: Optional[int] = None  # NVML's bit mask
    power_watts: Figure = NOT_RECORDED
    temperature_c: Figure = NOT_RECORDED
    cpu_percent: Figure = NOT_RECORDED
    io_wait_percent: Figure = NOT_RECORDED
    gpu_utilization_percent: Figure = NOT_RECORDED  # of the SMs: the time in which any kernel ran
    memory_used_mib: Figure = NOT_RECORDED
    pcie_to_gpu_mb_per_s: Figure = NOT_RECORDED
    pcie_from_gpu_mb_per_s: Figure = NOT_RECORDED


@dataclass(frozen=True)
class Quality:
    """An encoder's output at one bit rate, compared with the clip. dB, over all pictures."""

    codec: str = ""
    preset: str = ""
    encoder: str = ""
    asked_kbps: Figure = NOT_RECORDED
    bit_rate_kbps: Figure = NOT_RECORDED
    frames: Optional[int] = None
    psnr_db: Figure = NOT_RECORDED
    xpsnr_db: Figure = NOT_RECORDED


@dataclass(frozen=True)
class Latency:
    """Milliseconds from a picture's input to its output, for one session at 30 pictures per second."""

    kind: str = ""  # "decode" | "encode" | "transcode" | "software"
    codec: str = ""
    preset: str = ""
    frames: Optional[int] = None
    median_ms: Figure = NOT_RECORDED
    p95_ms: Figure = NOT_RECORDED
    how: str = ""


@dataclass(frozen=True)
class Clip:
    """The clip that every session of a series read. Its bit rate decides how fast it is decoded."""

    name: str = ""  # of the agent's clips: "h264-1080p"
    codec: str = ""
    width: Size = None
    height: Size = None
    fps: Figure = NOT_RECORDED
    bit_rate_kbps: Figure = NOT_RECORDED  # of the file, sound included


@dataclass(frozen=True)
class Series:
    gpu: Union[ThroughputGpu, Missing, None] = None  # None: the record has one GPU
    kind: str = ""  # "decode" | "encode" | "transcode" | "ladder" | "download" | "software"
    codec: str = ""
    preset: str = ""
    width: Optional[int] = None
    height: Optional[int] = None
    engines: Optional[int] = None  # sessions that fill them
    clip: Union[Clip, Missing, None] = None  # None: a record made before it was recorded
    command: str = ""
    outcome: str = ""
    decisive_line: str = ""
    steps: tuple[Step, ...] = ()


@dataclass(frozen=True)
class Throughput:
    quick: Optional[bool] = None
    published: str = ""  # where figures are from of which no more than the speed is known
    ffmpeg: Union[Ffmpeg, Missing, None] = None
    gpu: Optional[ThroughputGpu] = None
    gpus: tuple[Union[ThroughputGpu, Missing], ...] = ()
    series: tuple[Series, ...] = ()
    capacity: bool = False  # whether all was measured by which one plans
    latency: tuple[Latency, ...] = ()
    quality: tuple[Quality, ...] = ()


PROBE = Probe(
    "throughput", Throughput, 80, "codec", "aggregate throughput of the video engines", timeout_seconds=900, clips=True
)  # fmt: skip
