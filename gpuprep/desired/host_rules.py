"""Does the profile fit one host: what does its OS offer, and what on the host prevents it?

Each function appends to `refusals` every impossible combination, so that a user sees all reasons at once.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from gpuprep import catalogue
from gpuprep.agent.facts.nextboot import MOK_OF_DKMS, MOK_OF_UBUNTU
from gpuprep.agent.facts.packagestate import of_others
from gpuprep.catalogue import Board, Model, OsRelease, Tool, clouds
from gpuprep.catalogue import ffmpeg as build
from gpuprep.catalogue.packagenames import X86
from gpuprep.catalogue.roles import codec_libraries_absent, has_full_libraries
from gpuprep.desired.nearest import ANOTHER_SYSTEM, Nearest
from gpuprep.desired.profile import Profile, SigningWish
from gpuprep.desired.profile_rules import (
    OPEN,
    PROPRIETARY,
    Refusal,
    Works,
    codec_rules,
    driver_rules,
    listed,
    mig_that_fits,
    parts_that_need_others,
    refuse,
    silicon,
)
from gpuprep.records import ClockPair, GpuFacts, Missing, PciDevice, Snapshot, Source
from gpuprep.untrusted.plaintext import command

NVIDIA = "10de"
NCCL_LIBRARY = "libnccl.so.2"
# What systemd-detect-virt says where the kernel is another system's.
WITHOUT_KERNEL = (
    "docker", "podman", "lxc", "lxc-libvirt", "systemd-nspawn", "container-other", "openvz", "proot", "wsl",
)  # fmt: skip
LARGE_PAGES = "+64k"  # ends the name of Red Hat's kernels for arm64 with pages of 64 KiB
OWN_FOLDER = "/opt/gpuprep"  # in the catalogue it stands for the profile's codec.prefix, too
MOST_PACKAGES = 8  # that a sentence names
# The host's clock against the controller's: what is said, and what packages and certificates would be refused for.
CLOCK_SAID_SECONDS, CLOCK_REFUSED_SECONDS = 300, 3600
CLOCK_UNITS = (("days", 86400), ("hours", 3600), ("minutes", 60))
SET_CLOCK = (
    "`sudo timedatectl set-ntp true` on the host (with chrony: `sudo chronyc makestep`), or this computer's clock set"
    " if that one is wrong"
)
LEAST_INODES = 5000  # a kernel's headers alone are more than ten thousand files
VGPU = re.compile(r"^GRID |-\d+[ABCQ]$")  # names of parts of GPUs: "GRID T4-16Q", "NVIDIA A10-24Q"


def nvidia_gpus(snapshot: Snapshot) -> tuple[PciDevice, ...]:
    """Display controllers (class 03) of NVIDIA: no NVSwitches, no audio functions."""
    return tuple(
        device
        for device in snapshot.pci_gpus
        if device.vendor_id.lower() == NVIDIA and device.class_code.lower().removeprefix("0x").startswith("03")
    )


def board_at(snapshot: Snapshot, device: PciDevice) -> Board | None:
    """The board in this slot: by its PCI ids, and by NVML if a driver is loaded. None: the catalogue lacks it."""
    read = () if isinstance(snapshot.gpus, Missing) else snapshot.gpus
    facts = next((gpu for gpu in read if gpu.pci_address == device.address and gpu.pci_device_id), None)
    subsystem = "" if isinstance(device.subsystem_id, Missing) else device.subsystem_id
    if facts is None:
        return catalogue.board(device.device_id, subsystem, device.name if isinstance(device.name, str) else "")
    return catalogue.board_of(facts, device.device_id, subsystem)


def title(snapshot: Snapshot, device: PciDevice) -> str:
    """The name of a GPU that the catalogue lacks: from lspci's database, from NVML, or its PCI ids."""
    read = () if isinstance(snapshot.gpus, Missing) else snapshot.gpus
    nvml = next((gpu.name for gpu in read if gpu.pci_address == device.address), "")
    listed_name = device.name if isinstance(device.name, str) else ""
    return listed_name or nvml or f"GPU {device.vendor_id}:{device.device_id}"


def gpus(profile: Profile, snapshot: Snapshot, refusals: list[Refusal]) -> list[Board | None]:
    """The boards of the host, in PCI order; None for a board that the catalogue lacks. Refuses a host without a GPU."""
    devices = nvidia_gpus(snapshot)
    if not devices:
        others = () if isinstance(snapshot.other_gpus, Missing) else snapshot.other_gpus
        only = f", only {listed(title(snapshot, other) for other in others)}" if others else ""
        refusals.append(
            refuse(
                "host.gpus",
                f"no NVIDIA GPU on the PCI bus{only}",
                "a machine with a GPU attached (AWS g4dn for T4, p3 for V100, Google a2-highgpu-1g for A100)",
            )
        )
    boards = [board_at(snapshot, device) for device in devices]
    models = [board.model for board in boards if board is not None]
    for key in sorted({model.key for model in models} - set(profile.gpus)):
        refusals.append(_wrong_model(profile, catalogue.models()[key], [model.key for model in models]))
    return boards


def _wrong_model(profile: Profile, model: Model, present: Sequence[str]) -> Refusal:
    together = sorted(set(present))
    titles = listed(catalogue.models()[key].title for key in profile.gpus if key in catalogue.models())
    if len(together) > 1:
        works = f"a profile that lists all of this host's models: gpus: [{', '.join(together)}]"
    else:
        works = f"--profile {model.profile}, or a profile of your own with gpus: [{model.key}]"
    return refuse("gpus", f"the host's GPU is {model.title}, and profile {profile.name} is for {titles}", works)


def wish(profile: Profile, snapshot: Snapshot, models: Sequence[Model]) -> list[Refusal]:
    """Refusals of wishes in the profile that this host's GPU models cannot have."""
    distinct = [catalogue.models()[key] for key in dict.fromkeys(model.key for model in models)]
    here = Nearest(profile, snapshot, distinct)
    known = here.release is not None
    works = Works(here.driver(profile.driver.version), here.cuda(profile.cuda.version)) if known else Works()
    refusals = silicon(profile, distinct, works)
    wished = None if profile.driver.version == "auto" else profile.driver.version
    cuda_wish = None if profile.cuda.version == "auto" else profile.cuda.version
    refusals += driver_rules(
        profile, wished, cuda_wish, works if here.has(here.source, profile.driver.version) else None
    )
    return refusals + codec_rules(profile) + parts_that_need_others(profile)


def codec_libraries(profile: Profile, release: OsRelease | None) -> list[Refusal]:
    """Refusals of FFmpeg libraries in the profile that this system does not offer."""
    if release is None or profile.codec.ffmpeg == "none" or not profile.codec.libraries:
        return []
    absent = codec_libraries_absent(release)
    return [
        refuse("codec.libraries", f"{release.title} has no {name}: {absent[name]}", _without(profile, name))
        for name in profile.codec.libraries
        if name in absent
    ]


def _without(profile: Profile, name: str) -> str:
    others = [f"{kind}.{part}" for kind, parts in profile.codec.parts.items() for part in parts
              if name in build.needed(kind, part)]  # fmt: skip
    parts = f" and codec.parts without {', '.join(others)}" if others else ""
    return f"codec.libraries without {name}{parts}, or a Debian or Ubuntu host"


def offer(here: Nearest, refusals: list[Refusal]) -> OsRelease | None:
    """What the archive of the host's OS release has; refused if the roles do not support the release."""
    os, source = here.snapshot.os, here.source
    release = here.release
    if release is None:
        *most, last = [entry.title for entry in catalogue.archives().values()]
        supported = f"{', '.join(most)} and {last}"
        name = f"{os.id} {os.version_id}".strip() + (f" ({os.pretty_name})" if os.pretty_name else "")
        reason = f"unsupported OS {name}: the catalogue has no packages for it"
        refusals.append(refuse("host.os", reason, f"{supported}; `gpuprep validate` judges any system as it is"))
        return None
    if os.architecture not in release.architectures:
        reason = f"unsupported architecture {os.architecture}: the catalogue has no packages of {release.title} for it"
        if why := release.unserved.get(os.architecture):
            reason += f" ({why})"
        elsewhere = _served_on(os.architecture)
        works = f"{release.title} on {listed(release.architectures)}"
        refusals.append(refuse("host.os", reason, f"{works}, or {elsewhere}" if elsewhere else works))
    if source not in release.sources:
        reason = f"the catalogue has no packages of source {source} for {release.system}"
        if why := release.lacks.get(source):
            reason += f": {why}"
        refusals.append(refuse("driver.source", reason, ", or ".join(here.other_sources(listing=False))))
        return None
    return release


def _served_on(architecture: str) -> str:
    """The systems that are served on an architecture, where it is not the usual one: "Debian 12 and ... on aarch64"."""
    releases = [entry for entry in catalogue.archives(architecture).values() if entry.architecture != X86]
    titles = [entry.title for entry in releases if entry.architecture == architecture]
    return f"{listed(titles)} on {architecture}" if titles else ""


def driver(here: Nearest, release: OsRelease, flavour: str, refusals: list[Refusal]) -> str | None:
    """The newest driver of the archive that fits the profile."""
    profile = here.profile
    offered = release.sources[profile.driver.source]
    drivers = offered.drivers
    wanted = offered.auto or "auto" if profile.driver.version == "auto" else profile.driver.version
    fitting = [d for d in drivers if wanted == "auto" or catalogue.matches(d.version, wanted)]
    if profile.driver.version != "auto" and not here.suits(catalogue.branch(wanted)):
        return None  # refused because of the GPUs, whatever the archive has
    if not fitting and (unlisted := here.unlisted_driver(here.source, wanted)):
        fitting = [unlisted]
    if not fitting:
        refusals.append(_no_such_driver(here, release, wanted))
        return None
    served = [d.version for d in fitting if flavour in d.modules]
    if served:
        # An archive may have open modules only in an older version. Module and libraries must have one version, so the
        # older one is chosen. The role chooses by the same rule from what the archive has on that day.
        return served[0]
    other = OPEN if flavour == PROPRIETARY else PROPRIETARY
    ways = [f"driver.flavour {other}"] if other in here.common_flavours() & set(fitting[0].modules) else []
    if branches := here.fitting(here.branches(profile.driver.source)):
        ways.append(f"driver.version {listed(map(str, branches))}")
    where = place(release, profile.driver.source)
    reason = f"the catalogue has no {flavour} kernel modules of driver {fitting[0].version} in {where}"
    if broken := next((d for d in fitting if flavour in d.broken), None):
        reason = f"the {flavour} kernel modules {broken.version} of {release.title}: {broken.broken[flavour]}"
    refusals.append(refuse("driver.flavour", reason, ", or ".join(ways or here.other_sources())))
    return None


def full_libraries(here: Nearest, release: OsRelease | None, driver: str | None) -> list[Refusal]:
    """A refusal if the profile asks for all libraries and gpuprep does not know them for this source; else []."""
    profile = here.profile
    if profile.driver.libraries != "full" or release is None or driver is None:
        return []
    if has_full_libraries(release, profile.driver.source, driver):
        return []
    reason = f"gpuprep does not know the packages for displays, OpenGL and Vulkan of {place(release, here.source)}"
    return [refuse("driver.libraries", reason, "compute")]


def place(release: OsRelease, source: str) -> str:
    """A source of packages in words: "the archive of Debian 12"."""
    return f"NVIDIA's repository for {release.system}" if source == "nvidia" else f"the archive of {release.system}"


def _no_such_driver(here: Nearest, release: OsRelease, wanted: str) -> Refusal:
    drivers = release.sources[here.source].drivers
    every = dict.fromkeys(catalogue.branch(driver.version) for driver in drivers)
    branches = [str(branch) for branch in every if here.suits(branch)]
    near = [driver.version for driver in drivers if catalogue.branch(driver.version) == catalogue.branch(wanted)]
    has = near or [driver.version for driver in drivers]
    shown = listed(has) if len(has) < 5 else f"branches {listed(branches)}" if not near else listed([*has[:4], "older"])
    full = catalogue.archives(release.architecture)[release.key].sources[here.source].drivers
    fabric = " with Fabric Manager" if any(catalogue.matches(driver.version, wanted) for driver in full) else ""
    reason = f"the catalogue has no driver {wanted}{fabric} in {place(release, here.source)}, only {shown}"
    branch = str(catalogue.branch(wanted))
    if why := release.sources[here.source].unsuited.get(branch):
        reason = f"{place(release, here.source)} has packages of branch {branch}, and {why}"
    return refuse("driver.version", reason, here.driver(wanted))


def too_old_or_new(
    here: Nearest, release: OsRelease, flavour: str, driver: str | None, cuda: str | None
) -> list[Refusal]:
    """Refusals of an automatically chosen driver or CUDA that is too old or too new for these models."""
    profile, refusals = here.profile, []
    yourself = "gpuprep validate, after you have installed it yourself"
    for model in {model.key: model for model in here.models}.values():
        limits = catalogue.limits(model.architecture)
        family = f"{model.title} ({model.architecture.title()})"
        if profile.driver.version == "auto" and driver and catalogue.branch(driver) < limits.minimum_branch:
            need = f"{family} needs driver branch {limits.minimum_branch} or newer"
            reason = f"{need}, and the catalogue has {driver} in {place(release, profile.driver.source)}"
            refusals.append(refuse("driver.version", reason, yourself))
        last = limits.maximum_branch
        if profile.driver.version == "auto" and driver and last and catalogue.branch(driver) > last:
            reason = f"R{last} is the last driver branch for {family}, and the catalogue has"
            reason += f" {catalogue.branch(driver)} or newer in {place(release, profile.driver.source)}"
            refusals.append(refuse("driver.version", reason, here.driver("auto")))
        if cuda is not None and cuda != "none" and profile.cuda.version == "auto":
            if limits.maximum_cuda and catalogue.parse(cuda) > catalogue.parse(limits.maximum_cuda):
                reason = f"CUDA {limits.maximum_cuda} is the last one for {family}, and"
                reason += f" the catalogue has {cuda} in {place(release, profile.driver.source)}"
                refusals.append(refuse("cuda.version", reason, here.cuda()))
            if catalogue.parse(cuda) < catalogue.parse(limits.minimum_cuda):
                reason = f"the first CUDA for {family} is {limits.minimum_cuda}, and the catalogue has {cuda}"
                reason += f" in {place(release, profile.driver.source)}"
                refusals.append(refuse("cuda.version", reason, f"{here.cuda()}, or {yourself}"))
        if profile.driver.flavour == "auto" and flavour not in limits.module_flavours:
            flavours = listed(limits.module_flavours)
            reason = f"{family} works only with {flavours} kernel modules, and another GPU here does not"
            refusals.append(refuse("host.gpus", reason, "GPUs of one kind in a machine"))
    return refusals


def cuda(here: Nearest, release: OsRelease, refusals: list[Refusal]) -> str | None:
    profile = here.profile
    offered = release.sources[profile.driver.source].cuda
    wanted = profile.cuda.version
    if wanted == "none" or here.takes_cuda(here.source, wanted):
        return wanted
    if wanted == "auto":
        return offered[0]
    reason = f"the catalogue has no CUDA {wanted} in {place(release, profile.driver.source)}"
    refusals.append(refuse("cuda.version", reason, here.cuda(wanted)))
    return None


def cudnn(here: Nearest, cuda_major: str, refusals: list[Refusal]) -> tuple[str, Mapping[str, str]]:
    """(version, sha256 of its wheels for this CUDA major by architecture); without CUDA as the profile says."""
    snapshot, version = here.snapshot, here.profile.cudnn.version
    if version == "none" or not cuda_major:
        return "none" if here.profile.cuda.version == "none" else version, {}
    known, fitting = catalogue.cudnn_checksums(), here.cudnn(cuda_major)
    wanted = next(iter(fitting), "") if version == "auto" else version
    checksums = known.get(wanted, {}).get(cuda_major, {})
    if snapshot.os.architecture in checksums:
        return wanted, checksums
    if version == "auto" and any(refusal.key == "cuda.version" for refusal in refusals):
        return version, {}  # of the CUDA that these GPUs cannot have
    named = "" if version == "auto" else f" {version}"
    reason = f"the catalogue has no cuDNN{named} for CUDA {cuda_major} on {snapshot.os.architecture}"
    sources = here.release.sources.values() if here.release else ()
    had = {str(catalogue.parse(toolkit)[0]) for offer in sources for toolkit in offer.cuda}
    other = [
        f"CUDA {m}"
        for m in ("12", "11")
        if m in had and any(snapshot.os.architecture in majors.get(m, {}) for majors in known.values())
    ]
    refusals.append(refuse("cudnn.version", reason, listed(fitting or ["cudnn.version: none", *other])))
    return version, {}


def nccl(
    profile: Profile, snapshot: Snapshot, cuda_major: str, refusals: list[Refusal]
) -> tuple[str, Mapping[str, str]]:
    """(version, sha256 of its wheels for this CUDA major by architecture); "none" for auto on a host with one GPU."""
    version = profile.nccl.version
    nothing: tuple[str, Mapping[str, str]] = ("none", {})
    if version == "none" or not cuda_major or (version == "auto" and len(nvidia_gpus(snapshot)) < 2):
        return nothing
    architecture = snapshot.os.architecture
    known = {v: majors.get(cuda_major, {}) for v, majors in catalogue.nccl_checksums().items()}
    fitting = [v for v, wheels in known.items() if architecture in wheels]
    wanted = next(iter(fitting), "") if version == "auto" else version
    if wanted in fitting:
        return wanted, known[wanted]
    reason = f"the catalogue has no NCCL {version} for CUDA {cuda_major} on {architecture}"
    refusals.append(refuse("nccl.version", reason, listed([*fitting, "none"])))
    return nothing


def extras(profile: Profile, release: OsRelease | None, refusals: list[Refusal]) -> Tool:
    """The tools and the framework as one Tool."""
    known = catalogue.tools(rpm=release is not None and release.rpm)
    chosen = []
    for name in profile.extras.tools:
        if name in known:
            chosen.append(known[name])
        else:
            where = f" for {release.title}" if release is not None and name in catalogue.tools() else ""
            reason = f"the catalogue has no tool {name!r}{where}"
            refusals.append(refuse("extras.tools", reason, listed(known)))
    framework = profile.extras.framework
    if framework != "none" and release is not None:
        offered = catalogue.framework(framework)
        if release.key in offered:
            chosen.append(offered[release.key])
        else:
            titles = [catalogue.archives()[key].title for key in offered]
            reason = f"the catalogue has no {framework} built with CUDA in the archive of {release.title}"
            refusals.append(refuse("extras.framework", reason, f"none, or {framework} on {listed(titles)}"))
    return Tool(
        tuple(dict.fromkeys(p for tool in chosen for p in tool.packages)),
        tuple(dict.fromkeys(c for tool in chosen for c in tool.commands)),
        tuple(dict.fromkeys(m for tool in chosen for m in tool.python_modules)),
    )


# ---------------------------------------------------------------- the machine itself


def _offered(snapshot: Snapshot) -> bool:
    """True unless headers of the running kernel are known, or likely, to be unavailable.

    Before the package lists are fetched (a fresh cloud image), the package manager cannot report headers. Then a kernel
    that belongs to no package counts as one without headers.
    """
    kernel = snapshot.kernel
    if not isinstance(kernel.headers_available, Missing):
        # These keep old kernels in another archive, which the role searches.
        return kernel.headers_available or snapshot.os.id in ("rocky", "almalinux")
    image = f"linux-image-{kernel.running}"
    return (
        snapshot.os.id not in ("debian", "ubuntu")
        or image in snapshot.packages
        or f"{image}-unsigned" in snapshot.packages
    )


def free_space(
    profile: Profile, snapshot: Snapshot, done: Mapping[str, bool], refusals: list[Refusal]
) -> dict[str, int]:
    """MiB that the steps not `done` need, summed by mount point; appends a refusal if less is free.

    `done` names steps as the catalogue's disk_mib does.
    """
    needs: dict[str, int] = {}
    causes: dict[str, list[str]] = {}
    written: dict[str, str] = {}
    for step in (name for name, is_done in done.items() if not is_done):
        for folder, mib in catalogue.disk_mib(step).items():
            at_prefix = step == "codec" and folder == OWN_FOLDER
            place = profile.codec.prefix if at_prefix else folder
            written.setdefault(place, step.partition(" ")[0])
            if not mib:
                continue
            mount = _mount_of(place, snapshot)
            needs[mount] = needs.get(mount, 0) + mib
            if (name := step.partition(" ")[0]) not in causes.setdefault(mount, []):
                causes[mount].append(name)
    if not done.get("driver", True) and _mount_of("/boot", snapshot) == "/boot":
        needs["/boot"], causes["/boot"] = catalogue.disk_mib("boot")["/boot"], ["driver and its initramfs"]
        written["/boot"] = "the initramfs"
    places = {} if isinstance(snapshot.folders, Missing) else snapshot.folders
    closed = {places[path].mount: path for path in reversed(written) if path in places and places[path].read_only}
    for folder in closed.values():  # one of each mount
        reason = f"{folder} is mounted read-only, and {written[folder]} would be written there"
        works = f"the folder mounted for writing (`findmnt -T {folder}` shows the mount)"
        refusals.append(refuse("host.disk", reason, works))
    for mount, mib in needs.items():
        inodes, least = _inodes_on(mount, snapshot), 100 if mount == "/boot" else LEAST_INODES
        if inodes is not None and inodes < least:
            reason = f"{mount} has room for {inodes} more files (inodes), and {', '.join(causes[mount])} need {least}"
            works = (
                f"files removed there (`sudo du --inodes -xS {command(mount)} | sort -n | tail` shows where they are)"
            )
            refusals.append(refuse("host.disk", reason, works))
        free = _free_on(mount, snapshot)
        if free is not None and free < mib:
            reason = f"{mount} has {free} MiB free, and {', '.join(causes[mount])} need {mib} MiB there"
            old = "old kernels removed (`sudo apt autoremove` or `sudo dnf remove --oldinstallonly`), or "
            works = f"{old if mount == '/boot' else ''}a disk with {mib - free} MiB more room"
            refusals.append(refuse("host.disk", reason, works))
    return needs


def _mount_of(path: str, snapshot: Snapshot) -> str:
    """The mount point that holds a folder: as the agent read it, links followed; else by the path's beginning."""
    if not isinstance(snapshot.folders, Missing) and path in snapshot.folders:
        return snapshot.folders[path].mount
    holding = [m.path for m in snapshot.mounts if path == m.path or path.startswith(m.path.rstrip("/") + "/")]
    return max(holding, key=len, default="/")


def _inodes_on(mount: str, snapshot: Snapshot) -> int | None:
    places = () if isinstance(snapshot.folders, Missing) else snapshot.folders.values()
    return min((p.inodes_free for p in places if p.mount == mount and isinstance(p.inodes_free, int)), default=None)


def _free_on(mount: str, snapshot: Snapshot) -> int | None:
    readings = [mib for path, mib in snapshot.disk_free_mib.items() if _mount_of(path, snapshot) == mount]
    return min(readings, default=None)


def obstacles_on_host(here: Nearest, *, prebuilt: bool = False, instead: str = "") -> list[Refusal]:
    """Refusals because of runfile drivers, NVSwitches, Secure Boot, kernels without headers, parts of GPUs.

    `prebuilt`: the modules are prebuilt, so they need neither headers nor a key. `instead`: how to get prebuilt modules
    if Secure Boot would refuse those of DKMS.
    """
    profile, snapshot, release = here.profile, here.snapshot, here.release
    signed = [name for name, offer in release.sources.items() if not offer.dkms] if release else []
    instead += "".join(f"; or {way}" for name in signed if name != here.source for way in here.way_to(name))
    if release and release.signed_driver and OPEN in here.flavours():
        instead += (
            f"; or {release.title}'s own signed driver, which gpuprep does not install: `{release.signed_driver}`"
        )
    refusals = [
        *_no_machine(snapshot), *_vgpu(snapshot), *_repositories(profile, snapshot), *_packages_half_done(snapshot),
        *_clock(snapshot),
    ]  # fmt: skip
    if snapshot.nvswitches and not catalogue.has_fabric_manager(snapshot.os.id, profile.driver.source):
        reason = (
            f"the GPUs are behind {snapshot.nvswitches} NVSwitches, and source {profile.driver.source} has no Fabric "
            "Manager for them (CUDA would end with error 802)"
        )
        elsewhere = here.driver(profile.driver.version)
        works = "a machine of the same GPUs without NVSwitch" if elsewhere == ANOTHER_SYSTEM else elsewhere
        refusals.append(refuse("host.nvswitches", reason, works))
    driver, kernel = snapshot.driver, snapshot.kernel
    if driver.runfile is not None:
        reason = f"a driver was installed by NVIDIA's .run file ({driver.runfile}), and packages would mix with it"
        refusals.append(refuse("host.driver", reason, f"{uninstall(driver.runfile)}, reboot, then run again"))
    if prebuilt:
        return refusals
    refusals += _secure_boot(profile, snapshot, instead)
    large = next((name for name in (kernel.running, kernel.next_boot) if str(name).endswith(LARGE_PAGES)), None)
    if release and release.rpm and large:
        reason = (
            f"{large} has memory pages of 64 KiB; the headers of such kernels are another package (kernel-64k-devel)"
        )
        works = (
            "the system's kernel with pages of 4 KiB (package kernel), made the default with"
            " `sudo grubby --set-default`, then a restart"
        )
        refusals.append(refuse("host.kernel", f"{reason}, which gpuprep does not install", works))
    headers = kernel.headers_running is True or _offered(snapshot)
    next_differs = isinstance(kernel.next_boot, str) and kernel.next_boot != kernel.running
    there = next_differs and kernel.headers_next_boot is not False
    built = catalogue.is_version(driver.module_version)
    if not (headers or there or built):
        reason = f"no headers for the running kernel {kernel.running}, and the package manager offers none"
        works = "install the newest kernel of the distribution with its headers, reboot into it, then run again"
        refusals.append(refuse("host.kernel", reason, works))
    return refusals


def uninstall(runfile: str) -> str:
    """The command that uninstalls a .run file's driver. The program has two names, and one may be missing."""
    return f"`{command('sudo', runfile, '--uninstall', '--silent')}`"


def certificate(signing: SigningWish | None, snapshot: Snapshot) -> str:
    """Path on the host of the certificate whose key signs DKMS's modules: the profile's, or DKMS's own."""
    if signing is not None:
        return signing.certificate
    return MOK_OF_UBUNTU if snapshot.os.id == "ubuntu" else MOK_OF_DKMS


def _secure_boot(profile: Profile, snapshot: Snapshot, instead: str) -> list[Refusal]:
    """A refusal if Secure Boot would refuse the modules that DKMS builds. A loaded driver proves that its key works."""
    signing = profile.driver.signing
    if snapshot.kernel.secure_boot is not True or (signing is None and _is_loaded(snapshot)):
        return []
    path, facts = certificate(signing, snapshot), snapshot.signatures
    known = () if isinstance(facts, Missing) else facts.certificates
    there = next((cert.enrolled for cert in known if cert.path == path), None)
    if there is True:
        return []
    enrol = f"sudo mokutil --import {path}, reboot, confirm it at the machine's console, then run again"
    if signing is None:
        reason = "Secure Boot is on: the kernel refuses the modules that DKMS builds, whose key it does not know"
        works = f"Secure Boot off, or the key enrolled: {enrol}; or an enrolled key in driver.signing{instead}"
        return [refuse("host.secure_boot", reason, works)]
    if isinstance(there, Missing) and there.reason != "not_installed":
        why = "mokutil is not installed" if there.reason == "command_not_found" else there.detail or there.reason
        reason = f"Secure Boot is on, and whether {path} is enrolled could not be read ({why})"
        return [refuse("driver.signing", reason, "install mokutil, then run again; or Secure Boot off")]
    if there is False:
        reason = f"Secure Boot is on, and {path} is not enrolled: the kernel would refuse the modules"
        return [refuse("driver.signing", reason, f"{enrol}; or Secure Boot off")]
    reason = f"Secure Boot is on, and there is no certificate {path} on the host"
    return [refuse("driver.signing", reason, f"copy key and certificate to the host, {enrol}; or Secure Boot off")]


def _is_loaded(snapshot: Snapshot) -> bool:
    return catalogue.is_version(snapshot.driver.loaded_version)


def _no_machine(snapshot: Snapshot) -> list[Refusal]:
    """A refusal of a container or WSL: its kernel, and so its driver, belongs to another system."""
    kind = snapshot.virtualization
    if snapshot.source is Source.SIMULATED or kind not in WITHOUT_KERNEL:
        return []
    if kind == "wsl":
        reason = "this is the Windows Subsystem for Linux: kernel and driver are those of Windows"
        return [refuse("host.kernel", reason, "NVIDIA's driver for Windows, installed in Windows; no driver in here")]
    reason = f"this is a container ({kind}): it has no kernel of its own to install a driver for"
    return [refuse("host.kernel", reason, "gpuprep on the machine that runs the container; `gpuprep validate` in here")]


def entry_off(path: str) -> str:
    """How an entry of the package manager's sources is turned off; its file stays, as it may have other entries."""
    how = {".repo": "write `enabled=0` into", ".sources": "write `Enabled: no` into"}.get(Path(path).suffix)
    return f"{how or 'write `#` before'} that entry of {path}"


def _repositories(profile: Profile, snapshot: Snapshot) -> list[Refusal]:
    """Refusals of NVIDIA repositories for another system, or beside the system's own archive: packages would mix."""
    release = catalogue.archive_of(snapshot.os)
    listed_here = snapshot.nvidia_repositories
    if release is None or isinstance(listed_here, Missing):
        return []
    own, refusals = catalogue.nvidia_folder(release), []
    for entry in listed_here:
        is_ours = Path(entry.file).name.startswith("gpuprep-")
        removal = f"{entry_off(entry.file)}, then run again"
        if entry.unverified and not is_ours:  # its own the role writes again
            reason = (
                f"{entry.file} has NVIDIA's repository with {entry.unverified}: its packages would be installed as root"
            )
            works = removal if profile.driver.source != "nvidia" else f"{removal}: provision adds it with NVIDIA's key"
            refusals.append(refuse("host.sources", f"{reason} without a check of their signature", works))
        elif entry.system != own:
            reason = f"{entry.file} has NVIDIA's repository for {entry.system}, and this is {release.title}"
            refusals.append(refuse("host.sources", f"{reason}: its packages would mix with this system's", removal))
        elif profile.driver.source != "nvidia" and not is_ours:
            reason = f"{entry.file} has NVIDIA's repository, and driver.source is {profile.driver.source}"
            works = f"driver.source: nvidia, or {removal}"
            refusals.append(refuse("host.sources", f"{reason}: apt or dnf would take parts of the driver there", works))
    return refusals


# As the role gpu_driver does: over a module that DKMS does not know, it installs its own only by force.
DKMS_TREE = (
    "`sudo mkdir -p /var/lib/dkms /usr/share/dkms/modules_to_force_install`, then `printf '%s\\n' nvidia nvidia-current"
    " nvidia-current-open nvidia-open nvidia-srv nvidia-srv-open | sudo tee"
    " /usr/share/dkms/modules_to_force_install/own`, then "
)


def configure_packages(snapshot: Snapshot) -> str:
    """The commands that configure what dpkg left. Without its tree DKMS refuses to work, and packages fail."""
    there = snapshot.package_manager
    left = () if isinstance(there, Missing) else there.unfinished
    told = any("dkms" in name or name.startswith("linux-") for name in left)  # a package of a kernel tells DKMS of it
    return f"{DKMS_TREE if told and not snapshot.driver.dkms else ''}`sudo dpkg --configure -a`"


def _packages_half_done(snapshot: Snapshot) -> list[Refusal]:
    """Refusals of packages that somebody left half done: the next step of apt or dnf would fail at them.

    While another program works with the packages there are none: the role waits and looks again.
    """
    there = snapshot.package_manager
    if isinstance(there, Missing) or (not isinstance(there.holders, Missing) and there.holders):
        return []
    refusals = []
    others = of_others(there.unfinished, there.ours)  # provision completes a step of its own
    if there.journal and (others or not there.ours):
        reason = f"dpkg was interrupted ({there.journal[0]}), and apt refuses all work until it is repaired"
        refusals.append(refuse("host.packages", reason, f"{configure_packages(snapshot)}, then run again"))
    again = [name for name, wrong in others.items() if wrong in ("half-installed", "reinst-required")]
    twice = [name for name, wrong in others.items() if wrong == "installed twice"]
    alone = [name for name, wrong in others.items() if wrong.startswith("installed without ")]
    other = [name for name in others if name not in (*again, *twice, *alone)]
    for names, works in (
        (again, "`sudo apt-get install --reinstall {}` (or `sudo dpkg --remove --force-remove-reinstreq {}`)"),
        (twice, "`sudo dnf remove --duplicates` (`sudo dnf check` shows all)"),
        (alone, "`sudo apt-get --fix-broken install`, which shows what it would do"),
        (other, f"{configure_packages(snapshot)}, which says why; or, if not needed: `sudo apt-get purge {{}}`"),
    ):
        if names:
            said = [f"{name} is {there.unfinished[name]}" for name in names[:MOST_PACKAGES]]
            more = f" and {len(names) - MOST_PACKAGES} more" if len(names) > MOST_PACKAGES else ""
            reason = f"{', '.join(said)}{more}: each later step of the package manager fails at it"
            remedy = works.replace("{}", " ".join(names[:MOST_PACKAGES]))
            refusals.append(refuse("host.packages", reason, f"{remedy}, then run again"))
    return refusals


def clock_off(snapshot: Snapshot, least: int = CLOCK_SAID_SECONDS) -> str:
    """How the host's clock differs from the controller's, as a sentence; "" if by less than `least` seconds."""
    ahead = snapshot.clock_ahead_seconds
    if isinstance(ahead, Missing) or abs(ahead) < least:
        return ""
    amount = next(f"{abs(ahead) / size:.0f} {unit}" for unit, size in CLOCK_UNITS if abs(ahead) >= 2 * size)
    return f"the host's clock is {amount} {'ahead of' if ahead > 0 else 'behind'} this computer's"


def _clock(snapshot: Snapshot) -> list[Refusal]:
    off = clock_off(snapshot, CLOCK_REFUSED_SECONDS)
    reason = f"{off}: archives, certificates and signatures would be refused as not yet valid or as expired"
    return [refuse("host.clock", reason, f"{SET_CLOCK}; then run again")] if off else []


def _vgpu(snapshot: Snapshot) -> list[Refusal]:
    """A refusal of vGPUs: known from the type of machine, or from the GPU's name if NVIDIA's vGPU driver is loaded."""
    known = clouds.machine_of(snapshot)
    read = () if isinstance(snapshot.gpus, Missing) else snapshot.gpus
    parts = [gpu.name for gpu in read if VGPU.search(gpu.name)]
    if parts and (known is None or not known.vgpu):
        reason = f"{parts[0]} is a part of a GPU (vGPU), which works only with the GRID driver of its host's version"
        return [refuse("host.gpus", reason, "a machine with whole GPUs; `gpuprep validate` judges this one as it is")]
    if known is None or not known.vgpu:
        return []
    reason = f"{known.title} has a part of a GPU (vGPU), which works only with {known.cloud}'s own GRID driver"
    return [refuse("host.cloud", reason, "a type of machine with whole GPUs")]


def tuning(profile: Profile, snapshot: Snapshot, boards: Sequence[Board]) -> list[Refusal]:
    """Refusals of clocks and power beyond the limits of the GPUs, or of the catalogue if there is no driver yet; and of
    MIG instances that a board does not have."""
    refusals = [r for gpu in boards for r in _mig(profile, gpu)]
    if isinstance(snapshot.gpus, Missing):
        return refusals + [r for gpu in boards for r in _by_catalogue(profile, gpu)]
    return refusals + [r for facts in snapshot.gpus for r in _by_device(profile, facts)]


def _mig(profile: Profile, gpu: Board) -> list[Refusal]:
    offered, wish = catalogue.mig_profiles(gpu.key), profile.tuning.mig
    reason = mig_that_fits(wish, offered) if offered and isinstance(wish, dict) else ""
    return [refuse("tuning.mig", f"{gpu.name} {reason}", f"some of {listed(offered)}")] if reason else []


def _by_catalogue(profile: Profile, gpu: Board) -> list[Refusal]:
    refusals = []
    pair, watts = profile.tuning.clocks, profile.tuning.power_limit_watts
    if gpu.boost_mhz and gpu.memory_mhz and isinstance(pair, ClockPair):
        most = ClockPair(gpu.memory_mhz, gpu.boost_mhz)
        above = pair.graphics_mhz > most.graphics_mhz or pair.memory_mhz > most.memory_mhz
        if above:
            reason = f"{gpu.name} runs at {_mhz(most)} MHz (memory,graphics) at most, not {_mhz(pair)}"
            refusals.append(refuse("tuning.clocks", reason, f"{_mhz(most)}, or max"))
    most_watts = gpu.power_maximum_watts or gpu.power_watts
    if isinstance(watts, int) and most_watts and watts > most_watts:
        reason = f"{gpu.name} takes {most_watts:g} W at most, not {watts}"
        refusals.append(refuse("tuning.power_limit_watts", reason, f"{most_watts:g}, or default"))
    return refusals


def _by_device(profile: Profile, facts: GpuFacts) -> list[Refusal]:
    refusals = []
    pair, watts = profile.tuning.clocks, profile.tuning.power_limit_watts
    supported = facts.supported_clocks
    if isinstance(pair, ClockPair) and not isinstance(supported, Missing) and supported and pair not in supported:
        near = listed(_mhz(p) for p in nearest_clocks(pair, supported))
        reason = f"gpu {facts.index} ({facts.name}) does not support {_mhz(pair)} MHz (memory,graphics)"
        refusals.append(refuse("tuning.clocks", reason, near))
    low, high = facts.power.min_watts, facts.power.max_watts
    if isinstance(watts, str) or isinstance(low, Missing) or isinstance(high, Missing) or low <= watts <= high:
        return refusals
    reason = f"gpu {facts.index} ({facts.name}) takes a power limit from {low:g} to {high:g} W, not {watts}"
    works = f"{(low if watts < low else high):g}, or default"
    return [*refusals, refuse("tuning.power_limit_watts", reason, works)]


def nearest_clocks(wanted: ClockPair, supported: Sequence[ClockPair], count: int = 3) -> list[ClockPair]:
    """The supported pairs nearest to the wanted pair. Memory first: a wrong memory clock changes more."""
    return sorted(
        supported,
        key=lambda p: (abs(p.memory_mhz - wanted.memory_mhz), abs(p.graphics_mhz - wanted.graphics_mhz)),
    )[:count]


def _mhz(pair: ClockPair) -> str:
    return f"{pair.memory_mhz},{pair.graphics_mhz}"
