"""What a profile says, as dataclasses: the wanted state, thresholds, waivers, the nightly check. No YAML, no files:
the host's own nightly check uses these, too. desired/loading/__init__.py makes them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional, Union

from gpuprep.records import ClockPair

__all__ = [
    "ClockPair",
    "CodecWish",
    "ContainersWish",
    "CudaWish",
    "CudnnWish",
    "DriftWish",
    "DriverWish",
    "ExtrasWish",
    "GemmWish",
    "MountWish",
    "NcclWish",
    "NotifyWish",
    "ProbesWish",
    "Profile",
    "SigningWish",
    "Threshold",
    "Thresholds",
    "TuningWish",
    "Waiver",
]


@dataclass(frozen=True)
class SigningWish:
    """The key with which DKMS signs the driver's modules, for Secure Boot. Paths on the host; gpuprep makes no key."""

    key: str  # the private key, root's alone
    certificate: str  # of that key, as DER; enrolled by the owner of the machine


@dataclass(frozen=True)
class DriverWish:
    source: str  # "auto" | "distribution" | "nvidia"
    version: str  # "auto" | branch "550" | exact "550.163.01"
    flavour: str  # "auto" | "open" | "proprietary"
    hold: bool
    gpu_firmware: bool  # False sets NVreg_EnableGpuFirmware=0
    signing: Optional[SigningWish] = None  # None: as DKMS does by itself
    modules: str = "auto"  # "auto" | "dkms" | "prebuilt"
    libraries: str = "compute"  # "compute" | "full": also what displays, OpenGL and Vulkan need
    rollback: str = "ask"  # what the host does where a changed driver does not work: "auto" | "ask" | "never"
    reboot_minutes: int = 15  # the longest wait for the host to come back from a restart


@dataclass(frozen=True)
class CudaWish:
    version: str  # "auto" | "none" | "12.4"
    hold: bool


@dataclass(frozen=True)
class CudnnWish:
    version: str  # "auto" | "none" | "9.10.2.21"
    source: str  # "pypi"


@dataclass(frozen=True)
class NcclWish:
    version: str = "none"  # "none" | "auto": on hosts with several GPUs | "2.28.9"
    source: str = "pypi"


@dataclass(frozen=True)
class ContainersWish:
    toolkit: str = "none"  # NVIDIA's container toolkit: "none" | "auto": the newest known | "1.20.0"
    hold: bool = True


@dataclass(frozen=True)
class CodecWish:
    headers: str  # "12.1.14.0"
    ffmpeg: str  # "none" | "7.1.5"
    prefix: str  # "/opt/gpuprep"
    npp: bool
    nvenc: str  # "auto" | "required": required is refused on GPUs without an encoder
    parts: dict[str, tuple[str, ...]]  # "encoders", "decoders", "filters", "hwaccels", "muxers", ... -> names
    libraries: tuple[str, ...] = ()  # of the system: "gnutls", "x264", ...


@dataclass(frozen=True)
class TuningWish:
    persistence: bool
    clocks: Union[str, ClockPair]  # "max" | "default" | a pair
    power_limit_watts: Union[str, int]  # "default" | watts
    ecc: str  # "keep" | "enabled" | "disabled"
    compute_mode: str  # "default" | "exclusive_process" | "prohibited"
    profiling_counters: str  # "open" | "restricted"
    mig: Union[str, dict[str, int]] = "keep"  # "keep" | "disabled" | instances of each GPU by profile: {"1g.10gb": 7}


@dataclass(frozen=True)
class MountWish:
    device: str
    path: str
    fstype: str
    options: str


@dataclass(frozen=True)
class ExtrasWish:
    tools: tuple[str, ...]  # names of catalogue/extras.yml: "python3", "gcc", "tmux", "opencv"
    framework: str  # "none" | "torch"
    mount: Optional[MountWish]


@dataclass(frozen=True)
class GemmWish:
    main_dtype: str  # "auto" | "fp16": also measured under sustained load
    shapes: tuple[tuple[int, int, int], ...]  # m, n, k; (): large ones that fit the GPU


@dataclass(frozen=True)
class ProbesWish:
    gemm: GemmWish


@dataclass(frozen=True)
class NotifyWish:
    """Receivers of a report when the verdict of the night check changes. Empty: no report."""

    webhook: str  # URL that gets the JSON document by POST
    token_file: str  # file on the host; its content goes along as `Authorization: Bearer`
    command: str  # shell command on the host; the document is its stdin


@dataclass(frozen=True)
class DriftWish:
    """Settings of the night check on the host itself."""

    at: str  # "02:30", local time of the host
    random_delay_minutes: int
    probe: str  # "none" | "quick": also measure, where no other process uses a GPU
    keep: int  # results kept on the host
    textfile_directory: str  # of node_exporter, on the host; "": no metrics
    notify: NotifyWish


@dataclass(frozen=True)
class Waiver:
    """Accepts a finding on some hosts until a date."""

    finding: str  # "gpu 0.power_limit"; * and ? stand for any characters
    hosts: str  # pattern of host names, likewise
    justification: str
    expires: str  # the last day on which it holds, "2026-12-31" (UTC)


@dataclass(frozen=True)
class Threshold:
    """A limit of a speed, in per cent."""

    percent: float
    source: str = ""  # where the figure is from: "SuperBench"
    shipped: bool = False  # a profile of gpuprep sets it, not one of the user


Thresholds = dict[str, Threshold]  # by key of the profile: "fp16_percent_of_peak"


@dataclass(frozen=True)
class Profile:
    name: str
    description: str
    gpus: tuple[str, ...]  # catalogue models this profile is for: ("t4",)
    driver: DriverWish
    cuda: CudaWish
    cudnn: CudnnWish
    codec: CodecWish
    tuning: TuningWish
    extras: ExtrasWish
    probes: ProbesWish
    thresholds: Thresholds
    drift: DriftWish
    waivers: tuple[Waiver, ...]
    path: str  # the file it was read from
    sha256: str  # of the resolved content
    nccl: NcclWish = NcclWish()
    containers: ContainersWish = ContainersWish()
