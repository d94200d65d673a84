"""What the facts of a machine say, as lines of text that rules/machine.yml and the other rules read."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpuprep.agent.facts import packagestate
from gpuprep.agent.host_paths import TUNING
from gpuprep.catalogue import Board
from gpuprep.checks import health
from gpuprep.checks.installed import nextboot
from gpuprep.desired.host_rules import board_at, clock_off, nvidia_gpus
from gpuprep.doctor import Diagnosis
from gpuprep.records import BootFacts, Finding, Missing, Snapshot, Status

GRAVITY = {Status.FAIL: "lost", Status.WARN: "degraded"}
SMALL_MIB = 200  # free room below which packages, modules and initramfs cannot be written
KEEP_SETTINGS = ("nvidia-persistenced.service", "gpuprep-tune.service", "nvidia-fabricmanager.service")
FEW_INODES = 1000  # more files are in one package of kernel headers
NAMED = 3  # files of one package
PERSISTENCE = re.compile(r'"persistence":\s*true')  # in tuning.json
COMMAND = re.compile(r"`([^`]+)`")  # in a remedy
NO_GSP = ("maxwell", "pascal", "volta")  # architectures that the open kernel modules do not support


def lines(snapshot: Snapshot) -> str:
    """One line for each fact that may be wrong; a sound machine has none."""
    return "\n".join(f"facts: {line}" for line in _lines(snapshot))


def of_gpus(snapshot: Snapshot) -> list[Diagnosis]:
    """What the GPUs say of themselves, by the checks of `validate` and `drift`. Xids are read in the kernel's log."""
    return [
        Diagnosis(
            finding.key, GRAVITY[finding.status], "confirmed", finding.reason, (_evidence(finding),),
            (finding.remedy,), "", "NVML",
        )
        for finding in health.findings(None, snapshot)
        if finding.status in GRAVITY and "xid" not in finding.property
    ]  # fmt: skip


def of_next_boot(snapshot: Snapshot) -> list[Diagnosis]:
    """Why the next restart would lose the GPU or the machine, by the checks that need no profile."""
    if not nvidia_gpus(snapshot):
        return []
    boot = snapshot.kernel.boot
    decides = f" (what decides: {boot.setting})" if isinstance(boot, BootFacts) else "\n"
    return [
        Diagnosis(
            finding.key, "unusable", "confirmed", finding.reason.removesuffix(decides),
            (decides[2:-1] if finding.reason.endswith(decides) else _evidence(finding),),
            tuple(COMMAND.findall(finding.remedy)) or (finding.remedy,), "Do not restart this machine before that.",
            "boot loader and files of the next boot",
        )
        for finding in nextboot.of_machine(snapshot)
        if finding.status is Status.FAIL
    ]  # fmt: skip


def _evidence(finding: Finding) -> str:
    return f"{finding.key}: {finding.actual}, expected: {finding.expected}"


def _lines(snapshot: Snapshot) -> Iterator[str]:
    devices = nvidia_gpus(snapshot)
    if not devices:
        yield "no NVIDIA GPU is on the PCI bus"
        return
    yield from _driver(snapshot, [board_at(snapshot, device) for device in devices])
    yield from _next_boot(snapshot)
    yield from _signatures(snapshot)
    if not isinstance(snapshot.gpus, Missing) and len(snapshot.gpus) < len(devices):
        yield f"the driver has {len(snapshot.gpus)} of {len(devices)} GPUs that are on the PCI bus"
    manager = snapshot.units.get("nvidia-fabricmanager.service")
    if snapshot.nvswitches and (manager is None or manager.active != "active"):
        state = "not installed" if manager is None else manager.active
        yield f"{snapshot.nvswitches} NVSwitches are on the PCI bus, and nvidia-fabricmanager is {state}"
    yield from _packages(snapshot)
    if not isinstance(snapshot.containers, Missing):
        for path in snapshot.containers.absent:
            yield f'failed to stat CDI host device "{path}": no such file or directory'
    for folder, mib in snapshot.disk_free_mib.items():
        if mib < SMALL_MIB:
            yield f"{folder} has {mib} MiB free"
    for folder, place in ({} if isinstance(snapshot.folders, Missing) else snapshot.folders).items():
        if place.read_only:
            yield f"{folder}: Read-only file system"
        elif isinstance(place.inodes_free, int) and place.inodes_free < FEW_INODES:
            yield f"{folder} has {place.inodes_free} inodes free"
    yield from _settings(snapshot)
    yield from filter(None, [clock_off(snapshot)])
    for name, unit in snapshot.units.items():
        if name in KEEP_SETTINGS and unit.enabled in ("masked", "masked-runtime"):
            yield f"Unit {name} is masked"


def _driver(snapshot: Snapshot, boards: list[Board | None]) -> Iterator[str]:
    driver, kernel = snapshot.driver, snapshot.kernel.running
    loaded, disk, library = driver.loaded_version, driver.module_version, driver.library_version
    if loaded is None and disk is None and library is None:
        yield "no NVIDIA driver is installed"
        yield from _not_possible(snapshot)
    elif disk is None and loaded is None:
        yield f"no nvidia module is on the disk for the running kernel {kernel}"
        if snapshot.kernel.headers_running is False:
            yield f"kernel headers for {kernel} cannot be found"
    elif loaded is None:
        yield "the nvidia module is on the disk and not loaded"
    if library is None and disk is not None:
        yield "libnvidia-ml.so.1: cannot open shared object file"
    if isinstance(loaded, str) and isinstance(library, str) and loaded != library:
        yield f"driver library {library} and loaded module {loaded} differ"
        if isinstance(disk, str) and disk != library:
            yield f"driver library {library} and module {disk} on the disk differ"
    libraries = snapshot.driver_libraries
    library_of_cuda = None if isinstance(libraries, Missing) else libraries.get("libcuda.so.1")
    module = disk if loaded is None else loaded
    if library_of_cuda and isinstance(module, str) and library_of_cuda.version is None:
        yield f"programs get {library_of_cuda.place}, which is not of driver {module}"
    if driver.nouveau_loaded:
        yield "already bound to nouveau"
    if driver.runfile and any(name.startswith(("nvidia-driver", "libnvidia-compute", "nvidia-dkms")) for name in
                              snapshot.packages):  # fmt: skip
        yield "/usr/bin/nvidia-uninstall and packages of the driver are both there"
    elif driver.runfile:
        yield f"a driver was installed by NVIDIA's .run file ({driver.runfile})"
    flavour = driver.module_flavour if loaded is None else driver.loaded_flavour
    if flavour == "open" and any(board and board.model.architecture in NO_GSP for board in boards):
        yield "open kernel modules on a GPU without GSP"


def _not_possible(snapshot: Snapshot) -> Iterator[str]:
    """Why no driver can be built or loaded on a machine that has none, in the words of plan's refusals."""
    kernel = snapshot.kernel
    if kernel.headers_running is False and kernel.headers_available is False:
        yield f"no headers for the running kernel {kernel.running}, and the package manager offers none"
    known = () if isinstance(snapshot.signatures, Missing) else snapshot.signatures.certificates
    if kernel.secure_boot is True and not any(certificate.enrolled is True for certificate in known):
        yield "Secure Boot is on: the kernel refuses the modules that DKMS builds, whose key it does not know"


def _settings(snapshot: Snapshot) -> Iterator[str]:
    """What gpuprep set on this machine and is no longer so."""
    if PERSISTENCE.search(str(snapshot.files.get(TUNING))) and not isinstance(snapshot.gpus, Missing):
        for gpu in snapshot.gpus:
            if gpu.persistence_mode is False:
                yield f"gpu {gpu.index}: persistence: wanted enabled, is disabled"
    ffmpeg, ours = snapshot.codec.ffmpeg_real_path, [] if isinstance(snapshot.built, Missing) else snapshot.built
    if ours and isinstance(ffmpeg, str) and not any(ffmpeg.startswith(f"{folder}/") for folder in ours):
        yield f"a plain ffmpeg starts another build, which may lack NVENC and NVDEC: {ffmpeg}"


def _next_boot(snapshot: Snapshot) -> Iterator[str]:
    following, version = snapshot.kernel.next_boot, snapshot.driver.module_next_boot_version
    library = snapshot.driver.library_version
    if not isinstance(following, str) or not isinstance(library, str):
        return
    if version is None and (following != snapshot.kernel.running or snapshot.driver.module_version is not None):
        yield f"the next boot starts kernel {following}, which has no nvidia module"
    elif isinstance(version, str) and version != library:
        yield f"the next boot starts kernel {following} with module {version}, and the libraries are {library}"
    if snapshot.driver.nouveau_in_initramfs is True:
        yield "the next boot's initramfs loads nouveau"


def _signatures(snapshot: Snapshot) -> Iterator[str]:
    if snapshot.kernel.secure_boot is not True or isinstance(snapshot.signatures, Missing):
        return
    for module in snapshot.signatures.modules:
        if module.signer is None:
            yield f"Secure Boot is on, and module {module.path} for kernel {module.kernel} is not signed"
        known = next((each for each in snapshot.signatures.certificates if each.path == module.verified_by), None)
        if known and known.enrolled is False:
            yield f"Secure Boot is on, and {known.path}, whose key signed module {module.path}, is not enrolled"


def _packages(snapshot: Snapshot) -> Iterator[str]:
    if not isinstance(snapshot.package_files, Missing):
        for package, said in snapshot.package_files.items():
            yield from (f"package {package} is not as it was installed: {one}" for one in said[:NAMED])
    if isinstance(snapshot.package_manager, Missing):
        return
    if not isinstance(snapshot.package_manager.holders, Missing):
        yield from filter(None, [packagestate.sentence(snapshot.package_manager.holders)])
    for package, state in snapshot.package_manager.unfinished.items():
        yield f"package {package}: {state}"
    if snapshot.package_manager.journal:
        yield "dpkg was interrupted, you must manually run dpkg --configure -a"
