"""Profile + host ─► Wanted: concrete versions and settings for one machine, or PlanRefused with every reason. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gpuprep import __version__, catalogue
from gpuprep.catalogue import Gpu, OsRelease
from gpuprep.catalogue.agent import agent_libraries
from gpuprep.desired import host_rules
from gpuprep.desired import profile_rules as rules
from gpuprep.desired.profile import MountWish, Profile
from gpuprep.desired.profile_rules import OPEN, PROPRIETARY, Refusal, driver_rules
from gpuprep.errors import PlanRefused
from gpuprep.records import ClockPair, Snapshot

__all__ = ["Wanted", "WantedGpu", "build_key", "check_profile", "resolve", "tuning_document"]

CUDNN_PREFIX = "/opt/gpuprep/cudnn"
ANY = "any"


@dataclass(frozen=True)
class WantedGpu:
    """One GPU of the host as PCI shows it, and what the catalogue says of it."""

    pci_address: str
    pci_device_id: str
    model: str  # "t4"
    name: str  # "T4"
    catalogue_clocks: ClockPair | None  # None: the catalogue has no pair, the device's highest is meant
    nvenc_engines: int


@dataclass(frozen=True)
class Wanted:
    """What one host shall be. Nothing in it is "auto"; "none" means: leave this part alone."""

    profile: str
    profile_sha256: str
    os_id: str  # "debian"
    os_key: str  # "debian-13"
    architecture: str  # "x86_64"
    gpus: tuple[WantedGpu, ...]
    agent_version: str

    driver_source: str
    driver_version: str  # branch "550" or exact "550.163.01", as wished
    driver_archive_version: str  # the newest fitting one the catalogue knows
    driver_flavour: str  # "open" | "proprietary"
    driver_hold: bool
    driver_gpu_firmware: bool
    driver_packages: tuple[str, ...]
    profiling_counters: str  # "open" | "restricted"

    cuda_version: str  # "12.4" | "none"
    cuda_hold: bool
    cuda_packages: tuple[str, ...]

    cudnn_version: str  # "9.10.2.21" | "none"
    cudnn_cuda_major: str
    cudnn_sha256: Mapping[str, str]  # architecture ► sha256 of the wheel
    cudnn_prefix: str

    ffmpeg_version: str  # "7.1.5" | "none"
    headers_version: str
    codec_prefix: str
    npp: bool
    parts: Mapping[str, tuple[str, ...]]
    build_key: str

    persistence: bool
    clocks: str | ClockPair  # "max" | "default" | a pair
    power_limit_watts: str | int  # "default" | watts
    ecc: str
    compute_mode: str

    extras_packages: tuple[str, ...]
    extras_commands: tuple[str, ...]
    extras_python_modules: tuple[str, ...]
    mount: MountWish | None

    min_free_mib: Mapping[str, int]  # by mount point: room the steps not yet done need
    installs: bool = True  # False: gpuprep has no packages for this host; what is there is judged as it was found
    decisions: tuple[str, ...] = ()  # what was chosen for the user, and why; sentences
    agent_libraries: Mapping[str, str] = field(default_factory=dict)  # in the agent's environment: name ► version

    @property
    def ffmpeg_directory(self) -> str:
        return f"{self.codec_prefix}/ffmpeg/{self.ffmpeg_version}-{self.build_key}"

    @property
    def cudnn_directory(self) -> str:
        return f"{self.cudnn_prefix}/{self.cudnn_version}-cuda{self.cudnn_cuda_major}"


def check_profile(profile: Profile) -> list[str]:
    """What can be refused without a host, as lines `key.path: reason; works: the nearest thing that works`."""
    return [str(refusal) for refusal in rules.check_profile(profile)]


def resolve(profile: Profile, snapshot: Snapshot, *, judging: bool = False) -> Wanted:
    """The wish made concrete for this host. Raises PlanRefused with all reasons; touches nothing.

    `judging`: nothing shall be installed, so what stands in the way of that (an OS without packages, a full disk) is
    no reason to refuse; where the archive has no answer, what is on the host is taken as the wish.
    """
    refusals: list[Refusal] = []
    gpus = host_rules.gpus(profile, snapshot, refusals)
    refusals += host_rules.wish(profile, [gpu.model for gpu in gpus])
    obstacles: list[Refusal] = []
    offer = host_rules.offer(profile, snapshot, obstacles)
    flavour, why_flavour = _flavour(profile, gpus)
    driver = host_rules.driver(profile, offer, flavour, obstacles) if offer else None
    cuda = host_rules.cuda(profile, offer, obstacles) if offer else None
    if driver is not None and profile.driver.version == "auto":
        obstacles += driver_rules(profile, driver, cuda)
    found_cuda = catalogue.host_version(snapshot.cuda.nvcc_version)
    if judging and cuda is None and profile.cuda.version != "none" and isinstance(found_cuda, str):
        cuda = found_cuda
    cuda_major = str(catalogue.parse(cuda)[0]) if cuda not in (None, "none") and cuda else ""
    checksums = host_rules.cudnn(profile, snapshot, cuda_major, obstacles)
    extras = host_rules.extras(profile, offer, obstacles)
    key = build_key(
        offer.key if offer else "",
        snapshot.os.architecture,
        profile.codec.ffmpeg,
        profile.codec.headers,
        profile.codec.npp,
        profile.codec.parts,
    )
    needs = host_rules.free_space(profile, snapshot, key, obstacles)
    obstacles += host_rules.in_the_way(profile, snapshot)
    refusals += host_rules.tuning(profile, snapshot, gpus)
    installs = offer is not None and driver is not None and cuda is not None
    if not judging:
        refusals += obstacles
    if refusals or not (installs or judging):
        raise PlanRefused(
            [str(refusal) for refusal in dict.fromkeys(refusals)],
            "nothing was changed on the host; change the profile or the host as named, then run again",
            where=snapshot.hostname,
        )
    driver_packages, cuda_packages = (
        catalogue.packages(snapshot.os.id, profile.driver.source, flavour) if installs else ((), ())
    )
    codec, tuning = profile.codec, profile.tuning
    return Wanted(
        profile=profile.name,
        profile_sha256=profile.sha256,
        os_id=snapshot.os.id,
        os_key=offer.key if offer else f"{snapshot.os.id}-{snapshot.os.version_id}",
        architecture=snapshot.os.architecture,
        gpus=_wanted_gpus(snapshot, gpus),
        agent_version=__version__,
        driver_source=profile.driver.source,
        driver_version=_driver_version(profile, snapshot, driver),
        driver_archive_version=driver or "",
        driver_flavour=flavour,
        driver_hold=profile.driver.hold,
        driver_gpu_firmware=profile.driver.gpu_firmware,
        driver_packages=driver_packages,
        profiling_counters=tuning.profiling_counters,
        cuda_version=cuda or profile.cuda.version,
        cuda_hold=profile.cuda.hold,
        cuda_packages=() if cuda == "none" else cuda_packages,
        cudnn_version=profile.cudnn.version,
        cudnn_cuda_major=cuda_major,
        cudnn_sha256=checksums,
        cudnn_prefix=CUDNN_PREFIX,
        ffmpeg_version=codec.ffmpeg,
        headers_version=codec.headers,
        codec_prefix=codec.prefix,
        npp=codec.npp,
        parts=codec.parts,
        build_key=key,
        persistence=tuning.persistence,
        clocks=tuning.clocks,
        power_limit_watts=tuning.power_limit_watts,
        ecc=tuning.ecc,
        compute_mode=tuning.compute_mode,
        extras_packages=extras.packages,
        extras_commands=extras.commands,
        extras_python_modules=extras.python_modules,
        mount=profile.extras.mount,
        min_free_mib=needs,
        installs=installs,
        decisions=_decisions(profile, gpus, offer, driver, flavour, why_flavour, cuda),
        agent_libraries=agent_libraries(cuda_major),
    )


def _driver_version(profile: Profile, snapshot: Snapshot, driver: str | None) -> str:
    if profile.driver.version != "auto":
        return profile.driver.version
    found = driver or catalogue.host_version(snapshot.driver.loaded_version)
    return str(catalogue.branch(found)) if isinstance(found, str) else ANY


def build_key(
    os_key: str, architecture: str, ffmpeg: str, headers: str, npp: bool, parts: Mapping[str, Sequence[str]]
) -> str:
    """12 hex digits that name one FFmpeg build: the same for hosts that may share it. Order of parts is no matter."""
    document = {
        "os": os_key,
        "arch": architecture,
        "ffmpeg": ffmpeg,
        "headers": headers,
        "npp": npp,
        "parts": {kind: sorted(names) for kind, names in parts.items()},
    }
    canonical = json.dumps(document, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()[:12]


def tuning_document(wanted: Wanted) -> dict[str, Any]:
    """What /etc/gpuprep/tuning.json shall say; the agent on the host applies it at every boot."""
    clocks = wanted.clocks
    return {
        "persistence": wanted.persistence,
        "clocks": clocks if isinstance(clocks, str) else _pair(clocks),
        "power_limit_watts": wanted.power_limit_watts,
        "ecc": wanted.ecc,
        "compute_mode": wanted.compute_mode,
        "models": {gpu.pci_device_id: _pair(gpu.catalogue_clocks) for gpu in wanted.gpus if gpu.catalogue_clocks},
    }


def _pair(pair: ClockPair) -> dict[str, int]:
    return {"memory_mhz": pair.memory_mhz, "graphics_mhz": pair.graphics_mhz}


def _wanted_gpus(snapshot: Snapshot, gpus: Sequence[Gpu]) -> tuple[WantedGpu, ...]:
    devices = host_rules.nvidia_gpus(snapshot)
    return tuple(
        WantedGpu(d.address, d.device_id.lower(), g.model.key, g.name, g.clocks, g.model.nvenc_engines)
        for d, g in zip(devices, gpus, strict=True)
    )


def _flavour(profile: Profile, gpus: Sequence[Gpu]) -> tuple[str, str]:
    """The kernel modules' flavour for all GPUs together, and why. One GPU that needs proprietary ones decides."""
    if profile.driver.flavour != "auto":
        return profile.driver.flavour, "the profile asks for it"
    needing = [g for g in gpus if OPEN not in catalogue.limits(g.model.architecture).module_flavours]
    if needing:
        return PROPRIETARY, f"{needing[0].model.title} cannot use the open ones"
    wish = profile.driver.version
    if wish != "auto" and catalogue.branch(wish) >= catalogue.open_only_from_branch():
        return OPEN, f"from R{catalogue.open_only_from_branch()} on there are no others"
    if profile.driver.source == "distribution":
        # Debian's archive of these branches: its security updates moved the proprietary modules and left the open
        # ones behind (archives.yml), and module and library must be of one version.
        return PROPRIETARY, "the distribution keeps these in step with its libraries and kernels"
    return OPEN, "NVIDIA recommends them from Turing on"


def _decisions(
    profile: Profile,
    gpus: Sequence[Gpu],
    offer: OsRelease | None,
    driver: str | None,
    flavour: str,
    why_flavour: str,
    cuda: str | None,
) -> tuple[str, ...]:
    if offer is None or driver is None or cuda is None:
        return ()
    offered = offer.sources[profile.driver.source].drivers
    said = []
    if profile.driver.version == "auto":
        said.append(f"driver branch {catalogue.branch(driver)}: what the archive has ({driver})")
    wish = profile.driver.version
    newest = next(d.version for d in offered if wish == "auto" or catalogue.matches(d.version, wish))
    if newest != driver:
        said.append(f"driver {driver}, not {newest}: the archive has {flavour} kernel modules only of the older one")
    if profile.driver.flavour == "auto":
        said.append(f"{flavour} kernel modules: {why_flavour}")
    if profile.cuda.version == "auto":
        said.append(f"CUDA {cuda}: what the archive has")
    silent = sorted({g.model.title for g in gpus if g.model.nvenc_engines == 0})
    if silent and profile.codec.ffmpeg != "none":
        said.append(f"{', '.join(silent)} has no NVENC engine: FFmpeg gets the encoders, this GPU cannot use them")
    return tuple(said)
