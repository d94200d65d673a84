"""Profile + host ─► Wanted: concrete versions and settings for one machine, or PlanRefused with every reason."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gpuprep import __version__, catalogue
from gpuprep.agent.host_paths import CUDNN_PREFIX, NCCL_PREFIX, PROGRAM_LINKS
from gpuprep.catalogue import Board, OsRelease, Tool, clouds
from gpuprep.catalogue.agent import agent_libraries
from gpuprep.catalogue.roles import (
    container_packages,
    cuda_packages,
    cuda_pin,
    driver_packages,
    driver_stream,
    fabric_packages,
    has_full_libraries,
    python_lacks,
)
from gpuprep.desired import host_rules, modules
from gpuprep.desired import profile_rules as rules
from gpuprep.desired.modules import DKMS, PREBUILT
from gpuprep.desired.nearest import Nearest
from gpuprep.desired.profile import CodecWish, MountWish, Profile, SigningWish, TuningWish
from gpuprep.desired.profile_rules import OPEN, PROPRIETARY, Refusal, driver_rules
from gpuprep.errors import PlanRefused
from gpuprep.records import ClockPair, Missing, PciDevice, Snapshot

__all__ = ["Wanted", "WantedGpu", "build_key", "check_profile", "resolve", "tuning_document"]

MOST_DISKS = 4  # that a sentence names
ANY = "any"


@dataclass(frozen=True)
class WantedGpu:
    """One GPU of the host: its PCI data, and its data in the catalogue."""

    pci_address: str
    pci_device_id: str
    model: str  # "t4"; "" for a GPU that the catalogue lacks
    name: str  # "T4"; of a GPU that the catalogue lacks, what lspci calls it
    catalogue_clocks: ClockPair | None  # None: the catalogue has no pair, the device's highest is meant
    nvenc_engines: int | None  # None: the catalogue does not know


@dataclass(frozen=True)
class WantedAgent:
    version: str
    libraries: Mapping[str, str]  # in the agent's environment: name ► version


@dataclass(frozen=True)
class WantedDriver:
    source: str
    version: str  # branch "550" or exact "550.163.01", as wished
    archive_version: str  # the newest fitting one the catalogue knows
    flavour: str  # "open" | "proprietary"
    hold: bool
    gpu_firmware: bool
    packages: tuple[str, ...]
    signing: SigningWish | None = None  # as in the profile
    stream: str = ""  # of dnf's module nvidia-driver, "580-open"; "": the source has no such module
    modules: str = "dkms"  # "dkms" | "prebuilt"
    prebuilt: tuple[str, ...] = ()  # packages of the prebuilt modules; never held: new kernels need newer ones
    libraries: str = "compute"  # "compute" | "full"
    rollback: str = "ask"  # "auto" | "ask" | "never"
    reboot_minutes: int = 15


@dataclass(frozen=True)
class WantedCuda:
    version: str  # "12.4" | "none"
    major: str  # "12"; "" without CUDA
    hold: bool
    packages: tuple[str, ...]
    pinned: tuple[str, ...] = ()  # packages with one name for all versions, which apt must keep to `pin`
    pin: str = ""  # "12.8.*"; "": apt pins nothing


@dataclass(frozen=True)
class WantedCudnn:
    version: str  # "9.10.2.21" | "none"
    sha256: Mapping[str, str]  # architecture ► sha256 of the wheel
    prefix: str


@dataclass(frozen=True)
class WantedNccl:
    version: str = "none"  # "2.28.9" | "none"
    sha256: Mapping[str, str] = field(default_factory=dict)  # architecture ► sha256 of the wheel
    prefix: str = NCCL_PREFIX


@dataclass(frozen=True)
class WantedContainers:
    toolkit: str = "none"  # "1.20.0" | "none"
    hold: bool = True
    packages: tuple[str, ...] = ()


@dataclass(frozen=True)
class Wanted:
    """The wanted state of one host. No value is "auto"; "none" means: leave this part alone."""

    profile: str
    os_key: str  # "debian-13"
    gpus: tuple[WantedGpu, ...]
    agent: WantedAgent
    driver: WantedDriver
    cuda: WantedCuda
    cudnn: WantedCudnn
    codec: CodecWish  # as in the profile
    build_key: str  # of the FFmpeg that `codec` asks for
    tuning: TuningWish  # as in the profile
    extras: Tool  # all tools and the framework together
    mount: MountWish | None
    min_free_mib: Mapping[str, int]  # by mount point: room the steps not yet done need
    installs: bool  # False: gpuprep has no packages for this host; what is there is judged as it was found
    decisions: tuple[str, ...]  # what was chosen for the user, and why; sentences
    nccl: WantedNccl = WantedNccl()
    containers: WantedContainers = WantedContainers()

    @property
    def ffmpeg_directory(self) -> str:
        return f"{self.codec.prefix}/ffmpeg/{self.codec.ffmpeg}-{self.build_key}"

    @property
    def headers_directory(self) -> str:
        return f"{self.codec.prefix}/nv-codec-headers/{self.codec.headers}"

    @property
    def cudnn_directory(self) -> str:
        return f"{self.cudnn.prefix}/{self.cudnn.version}-cuda{self.cuda.major}"

    @property
    def nccl_directory(self) -> str:
        return f"{self.nccl.prefix}/{self.nccl.version}-cuda{self.cuda.major}"


@dataclass(frozen=True)
class _Choice:
    """Versions chosen for one host from its OS release. None: the release offers nothing that fits."""

    release: OsRelease | None
    flavour: str
    why_flavour: str
    driver: str | None  # exact
    cuda: str | None
    modules: str = DKMS

    @property
    def archive(self) -> OsRelease | None:
        """The release, if everything that the profile asks for can be installed from it; else None."""
        return None if self.driver is None or self.cuda is None else self.release

    @property
    def cuda_major(self) -> str:
        return "" if self.cuda is None or self.cuda == "none" else str(catalogue.parse(self.cuda)[0])


def check_profile(profile: Profile) -> list[str]:
    """Refusals that need no host, as lines `key.path: reason; works: the nearest thing that works`."""
    return [str(refusal) for refusal in rules.check_profile(profile)]


def resolve(
    profile: Profile, snapshot: Snapshot, *, judging: bool = False, steps: Collection[str] | None = None
) -> Wanted:
    """The profile's wishes as concrete versions for this host. Raises PlanRefused with all reasons; touches nothing.

    `judging`: nothing will be installed, so obstacles to installing (an OS without packages, a full disk) are no reason
    to refuse; if the archive offers no version, the installed version becomes the wish. `steps`: those that the run may
    do, and must have room for (None: all).
    """
    profile = modules.with_source(profile, snapshot)
    refusals: list[Refusal] = []
    obstacles: list[Refusal] = []
    boards = host_rules.gpus(profile, snapshot, refusals)
    gpus = [board for board in boards if board is not None]
    refusals += host_rules.wish(profile, snapshot, [gpu.model for gpu in gpus])
    here = Nearest(profile, snapshot, [gpu.model for gpu in gpus])
    release = host_rules.offer(here, obstacles)
    obstacles += host_rules.codec_libraries(profile, release)
    choice = _choose(profile, snapshot, gpus, release, obstacles, judging=judging)
    if judging and _installed_by_others(profile, snapshot, choice):  # as on a system that gpuprep has no packages for
        choice = _choose(profile, snapshot, gpus, None, obstacles, judging=judging)
    cudnn = WantedCudnn(*host_rules.cudnn(here, choice.cuda_major, obstacles), CUDNN_PREFIX)
    nccl = WantedNccl(*host_rules.nccl(profile, snapshot, choice.cuda_major, obstacles))
    containers = _containers(profile, refusals)
    extras = host_rules.extras(profile, choice.release, obstacles)
    key = build_key(choice.release.key if choice.release else "", snapshot.os.architecture, profile.codec)
    needing = {} if judging else {
        step: is_done
        for step, is_done in _done(profile, snapshot, choice, key, cudnn.version, nccl.version).items()
        if steps is None or step.partition(" ")[0] in steps
    }  # fmt: skip
    min_free_mib = host_rules.free_space(profile, snapshot, needing, obstacles)
    obstacles += modules.refusals(here, release, choice.driver) + host_rules.full_libraries(
        here, release, choice.driver
    )
    can_be = modules.offered(profile, snapshot, release, choice.driver)
    instead = "; or driver.modules: prebuilt" if can_be and profile.driver.signing is None else ""
    obstacles += host_rules.obstacles_on_host(here, prebuilt=choice.modules == PREBUILT, instead=instead)
    refusals += host_rules.tuning(profile, snapshot, gpus)
    if not judging:
        refusals += obstacles
    if refusals or not (choice.archive or judging):
        raise PlanRefused(
            [str(refusal) for refusal in dict.fromkeys(refusals)],
            "nothing was changed on the host; change the profile or the host as named, then run again",
            where=snapshot.hostname,
        )
    return Wanted(
        profile=profile.name,
        os_key=choice.release.key if choice.release else f"{snapshot.os.id}-{snapshot.os.version_id}",
        gpus=_gpus(snapshot, boards),
        agent=WantedAgent(__version__, _libraries(choice)),
        driver=_driver(profile, snapshot, choice),
        cuda=_cuda(profile, choice),
        cudnn=cudnn,
        nccl=nccl,
        containers=containers,
        codec=profile.codec,
        build_key=key,
        tuning=profile.tuning,
        extras=extras,
        mount=profile.extras.mount,
        min_free_mib=min_free_mib,
        installs=choice.archive is not None,
        decisions=(
            *_decisions(profile, gpus, choice),
            *_sudo(profile, snapshot),
            *_firmware(profile, snapshot),
            *_local_disks(profile, snapshot),
            *_others_at_work(snapshot),
        ),
    )


def _choose(
    profile: Profile,
    snapshot: Snapshot,
    gpus: Sequence[Board],
    release: OsRelease | None,
    obstacles: list[Refusal],
    *,
    judging: bool,
) -> _Choice:
    flavour, why_flavour = _flavour(profile, gpus, release)
    here = Nearest(profile, snapshot, [gpu.model for gpu in gpus])
    driver = host_rules.driver(here, release, flavour, obstacles) if release else None
    cuda = host_rules.cuda(here, release, obstacles) if release else None
    if release:
        obstacles += host_rules.too_old_or_new(here, release, flavour, driver, cuda)
    if driver is not None and profile.driver.version == "auto":
        obstacles += driver_rules(profile, driver, cuda)
    on_host = catalogue.host_version(snapshot.cuda.nvcc_version)
    if judging and cuda is None and profile.cuda.version != "none" and isinstance(on_host, str):
        cuda = on_host
    return _Choice(release, flavour, why_flavour, driver, cuda, modules.chosen(profile, snapshot, release, driver))


def _installed_by_others(profile: Profile, snapshot: Snapshot, choice: _Choice) -> bool:
    """A driver is loaded, gpuprep was never here, and not one package of the profile's driver is installed."""
    if choice.archive is None or snapshot.provenance is not None:
        return False
    packages = _named(choice.archive, profile, choice)
    loaded = snapshot.driver.loaded_version is not None
    return loaded and not any(name in snapshot.packages for name in packages)


def _libraries(choice: _Choice) -> dict[str, str]:
    lacks = python_lacks(choice.release) if choice.release else ()
    return {name: pin for name, pin in agent_libraries(choice.cuda_major).items() if name not in lacks}


def _driver(profile: Profile, snapshot: Snapshot, choice: _Choice) -> WantedDriver:
    wish, archive = profile.driver, choice.archive
    return WantedDriver(
        source=wish.source,
        version=_driver_version(profile, snapshot, choice.driver),
        archive_version=choice.driver or "",
        flavour=choice.flavour,
        hold=wish.hold,
        gpu_firmware=wish.gpu_firmware,
        packages=_driver_packages(archive, profile, choice, snapshot) if archive else (),
        signing=wish.signing,
        stream=driver_stream(archive, wish.source, choice.flavour, choice.driver or "") if archive else "",
        modules=choice.modules,
        prebuilt=modules.packages(profile, snapshot, archive, choice.flavour, choice.driver or "")
        if archive and choice.modules == PREBUILT
        else (),
        libraries=wish.libraries,
        rollback=wish.rollback,
        reboot_minutes=wish.reboot_minutes,
    )


def _driver_packages(
    archive: OsRelease, profile: Profile, choice: _Choice, snapshot: Snapshot
) -> tuple[str, ...]:  # fmt: skip
    fabric = fabric_packages(archive, profile.driver.source, choice.driver or "") if snapshot.nvswitches else ()
    return _named(archive, profile, choice) + fabric


def _named(archive: OsRelease, profile: Profile, choice: _Choice) -> tuple[str, ...]:
    """The names of the driver's packages. Unavailable prebuilt modules or libraries are refused elsewhere."""
    source, version = profile.driver.source, choice.driver or ""
    prebuilt = choice.modules == PREBUILT and archive.sources[source].prebuilt
    full = profile.driver.libraries == "full" and has_full_libraries(archive, source, version)
    return driver_packages(
        archive, source, choice.flavour, version,
        modules=PREBUILT if prebuilt else DKMS, libraries="full" if full else "compute",
    )  # fmt: skip


def _driver_version(profile: Profile, snapshot: Snapshot, driver: str | None) -> str:
    if profile.driver.version != "auto":
        return profile.driver.version
    version = driver or catalogue.host_version(snapshot.driver.loaded_version)
    return str(catalogue.branch(version)) if isinstance(version, str) else ANY


def _cuda(profile: Profile, choice: _Choice) -> WantedCuda:
    wish, archive = profile.cuda, choice.archive
    if archive is None or choice.cuda is None or choice.cuda == "none":
        return WantedCuda(choice.cuda or wish.version, choice.cuda_major, wish.hold, ())
    packages = cuda_packages(archive, profile.driver.source, choice.cuda)
    pinned, pin = cuda_pin(archive, profile.driver.source, choice.cuda)
    return WantedCuda(choice.cuda, choice.cuda_major, wish.hold, packages, pinned, pin)


def _done(
    profile: Profile, snapshot: Snapshot, choice: _Choice, build_key: str, cudnn: str, nccl: str
) -> dict[str, bool]:
    """Step, as the catalogue's disk_mib names it ► whether what it writes is there: another version is written anew."""
    module = catalogue.host_version(snapshot.driver.module_version)
    nvcc = catalogue.host_version(snapshot.cuda.nvcc_version)
    driver = _driver_version(profile, snapshot, choice.driver)
    return {
        "driver": isinstance(module, str)
        and (driver == ANY or catalogue.matches(module, driver))
        and snapshot.driver.module_flavour in (None, choice.flavour),
        f"cuda {profile.driver.source}": choice.cuda in (None, "none")
        or (isinstance(nvcc, str) and catalogue.matches(nvcc, choice.cuda)),
        "cudnn": cudnn == "none" or snapshot.cudnn.wheel_version == cudnn,
        "nccl": nccl == "none" or f"/{nccl}-cuda" in str(snapshot.libraries.get(host_rules.NCCL_LIBRARY)),
        "codec": profile.codec.ffmpeg == "none" or snapshot.codec.build_key == build_key,
    }


def _containers(profile: Profile, refusals: list[Refusal]) -> WantedContainers:
    wish = profile.containers
    if wish.toolkit == "none":
        return WantedContainers()
    known = catalogue.container_toolkits()
    version = known[0] if wish.toolkit == "auto" else wish.toolkit
    if version not in known:
        reason = f"the catalogue has no container toolkit {version}"
        refusals.append(rules.refuse("containers.toolkit", reason, rules.listed([*known, "auto"])))
    return WantedContainers(version, wish.hold, container_packages())


def build_key(os_key: str, architecture: str, codec: CodecWish) -> str:
    """12 hex digits that name one FFmpeg build, equal for hosts that may share it. The order of parts is irrelevant."""
    document: dict[str, Any] = {
        "os": os_key,
        "arch": architecture,
        "ffmpeg": codec.ffmpeg,
        "headers": codec.headers,
        "npp": codec.npp,
        "parts": {kind: sorted(names) for kind, names in codec.parts.items()},
    }
    if codec.libraries:  # without libraries the key is that of versions without codec.libraries
        document["libraries"] = sorted(codec.libraries)
    canonical = json.dumps(document, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()[:12]


def tuning_document(wanted: Wanted) -> dict[str, Any]:
    """The content of /etc/gpuprep/tuning.json; the agent on the host applies it at every boot."""
    tuning = wanted.tuning
    return {
        "persistence": tuning.persistence,
        "clocks": tuning.clocks if isinstance(tuning.clocks, str) else _pair(tuning.clocks),
        "power_limit_watts": tuning.power_limit_watts,
        "ecc": tuning.ecc,
        "compute_mode": tuning.compute_mode,
        "mig": tuning.mig,
        "models": {gpu.pci_device_id: _pair(gpu.catalogue_clocks) for gpu in wanted.gpus if gpu.catalogue_clocks},
    }


def _pair(pair: ClockPair) -> dict[str, int]:
    return {"memory_mhz": pair.memory_mhz, "graphics_mhz": pair.graphics_mhz}


def _gpus(snapshot: Snapshot, boards: Sequence[Board | None]) -> tuple[WantedGpu, ...]:
    devices = host_rules.nvidia_gpus(snapshot)
    return tuple(_gpu(snapshot, device, board) for device, board in zip(devices, boards, strict=True))


def _gpu(snapshot: Snapshot, device: PciDevice, board: Board | None) -> WantedGpu:
    address, device_id = device.address, device.device_id.lower()
    if board is None:
        return WantedGpu(address, device_id, "", host_rules.title(snapshot, device), None, None)
    return WantedGpu(address, device_id, board.model.key, board.name, board.clocks, board.model.nvenc_engines)


def _flavour(profile: Profile, gpus: Sequence[Board], release: OsRelease | None) -> tuple[str, str]:
    """(flavour of the kernel modules for all GPUs, why). If one GPU needs proprietary modules, all get them."""
    if profile.driver.flavour != "auto":
        return profile.driver.flavour, "the profile asks for it"
    needing = [g for g in gpus if OPEN not in catalogue.limits(g.model.architecture).module_flavours]
    if needing:
        return PROPRIETARY, f"{needing[0].model.title} cannot use the open ones"
    needing = [g for g in gpus if PROPRIETARY not in catalogue.limits(g.model.architecture).module_flavours]
    if needing:
        return OPEN, f"{needing[0].model.title} works with no others"
    wish = profile.driver.version
    if wish != "auto" and catalogue.branch(wish) >= catalogue.open_only_from_branch():
        return OPEN, f"from R{catalogue.open_only_from_branch()} on there are no others"
    if release is None or release.sources[profile.driver.source].flavour == PROPRIETARY:
        return PROPRIETARY, "the distribution keeps these in step with its libraries and kernels"
    return OPEN, "NVIDIA recommends them from Turing on"


def _why_prebuilt(profile: Profile) -> str:
    why = "the profile asks for it"
    if profile.driver.modules == modules.AUTO:
        why = "Secure Boot is on, and refuses what DKMS builds; the system's maker signs these"
    return f"prebuilt kernel modules: {why}. The driver is of the version that they are built for, which may be older"


def _sudo(profile: Profile, snapshot: Snapshot) -> tuple[str, ...]:
    """A note on sudo's PATH: on Red Hat's systems sudo finds programs only in the system's own folders."""
    path = snapshot.shells.sudo_path
    if profile.codec.ffmpeg == "none" or not isinstance(path, str) or PROGRAM_LINKS in path.split(":"):
        return ()
    return (
        f"`sudo ffmpeg` will not find FFmpeg: sudo looks in {path} alone (secure_path); type `sudo "
        f"{PROGRAM_LINKS}/ffmpeg`, or add {PROGRAM_LINKS} to secure_path (`sudo visudo`)",
    )


def _firmware(profile: Profile, snapshot: Snapshot) -> tuple[str, ...]:
    """A note for a T4 on AWS: there the GPU's firmware can cause an Xid. gpuprep never turns it off by itself."""
    known = clouds.machine_of(snapshot)
    if known is None or not known.firmware_off or not profile.driver.gpu_firmware:
        return ()
    return (
        f"the GPU's firmware stays on, and {known.cloud}'s own images for {known.type} turn it off:"
        " `driver.gpu_firmware: false` with `driver.flavour: proprietary` does that, too",
    )


def _local_disks(profile: Profile, snapshot: Snapshot) -> tuple[str, ...]:
    """A note that names unused local disks of a cloud machine; gpuprep makes no file system on them."""
    disks = snapshot.blank_disks
    if isinstance(disks, Missing) or not disks or profile.extras.mount is not None:
        return ()
    sizes = ", ".join(f"{disk.device} ({disk.size_bytes / 1e9:.0f} GB)" for disk in disks[:MOST_DISKS])
    more = f" and {len(disks) - MOST_DISKS} more" if len(disks) > MOST_DISKS else ""
    return (
        f"empty local NVMe: {sizes}{more}, blank again after each stop of the machine. To use it:"
        f" `sudo mkfs.ext4 -L scratch {disks[0].device}`, and in the profile"
        " extras.mount: {device: LABEL=scratch, path: /scratch, fstype: ext4}",
    )


def _others_at_work(snapshot: Snapshot) -> tuple[str, ...]:
    """A note that names who holds the package manager's lock, which the roles wait for."""
    there = snapshot.package_manager
    if isinstance(there, Missing) or isinstance(there.holders, Missing) or not there.holders:
        return ()
    lock, who = next(iter(there.holders.items()))
    return (f"{who} works with the packages now and holds {lock}: provision waits for it, 10 minutes at most",)


def _decisions(profile: Profile, gpus: Sequence[Board], choice: _Choice) -> tuple[str, ...]:
    driver, cuda, flavour = choice.driver, choice.cuda, choice.flavour
    if choice.release is None or driver is None or cuda is None:
        return ()
    offered = choice.release.sources[profile.driver.source].drivers
    decisions = []
    if profile.driver.version == "auto":
        decisions.append(f"driver branch {catalogue.branch(driver)}: what the archive has ({driver})")
    wish = profile.driver.version
    fitting = str(catalogue.branch(driver)) if wish == "auto" else wish
    newest = next((d.version for d in offered if catalogue.matches(d.version, fitting)), "")
    where = host_rules.place(choice.release, profile.driver.source)
    unlisted = [f"driver {driver}"] if not newest else []
    if cuda != "none" and cuda not in choice.release.sources[profile.driver.source].cuda:
        unlisted.append(f"CUDA {cuda}")
    decisions += [
        f"{part}: the catalogue does not list it in {where}; it is accepted without a check, and `provision` stops if "
        "that source does not offer it"
        for part in unlisted
    ]
    if newest and newest != driver:
        decisions.append(
            f"driver {driver}, not {newest}: the archive has {flavour} kernel modules only of the older one"
        )
    if profile.driver.flavour == "auto":
        decisions.append(f"{flavour} kernel modules: {choice.why_flavour}")
    if choice.modules == PREBUILT:
        decisions.append(_why_prebuilt(profile))
    if profile.cuda.version == "auto":
        decisions.append(f"CUDA {cuda}: what the archive has")
    silent = sorted({g.model.title for g in gpus if g.model.nvenc_engines == 0})
    if silent and profile.codec.ffmpeg != "none":
        decisions.append(f"{', '.join(silent)} has no NVENC engine: FFmpeg gets the encoders, this GPU cannot use them")
    return tuple(decisions)
