"""All facts of this machine as one Snapshot."""

from __future__ import annotations

import os
import platform
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timezone
from pathlib import Path
from typing import Dict, Iterator, List, Optional, Tuple, Union

from gpuprep import __version__
from gpuprep.agent import inuse, turn
from gpuprep.agent.facts import (
    apt,
    cloud,
    codec,
    configlines,
    containers,
    cuda,
    disks,
    driver,
    machineidentity,
    managed,
    manifest,
    modprobe,
    osfacts,
    packages,
    parse,
    repositories,
    shells,
    signatures,
    xids,
)
from gpuprep.agent.facts.digests import Digests
from gpuprep.agent.facts.loader import Loader, unlisted
from gpuprep.agent.facts.simulation import source
from gpuprep.agent.gpu.nvml import Nvml
from gpuprep.agent.programs.run import run
from gpuprep.records import (
    DRIVER_LIBRARIES,
    LIBRARIES,
    NOT_READ,
    ConfigLine,
    FactsRequest,
    GpuFacts,
    Missing,
    ModprobeLine,
    OptStr,
    ShellFacts,
    Snapshot,
    Source,
    UnitFacts,
    UseFacts,
)

READERS = 7  # as many as snapshot() begins
PROGRAMS = ("/usr/bin/nvidia-smi", "/usr/bin/nvidia-persistenced")


def read_gpus() -> Tuple[Union[Tuple[GpuFacts, ...], Missing], OptStr]:
    """(the GPUs, or Missing if NVML fails; NVML's driver version)."""
    with Nvml() as nvml:
        gpus = nvml.gpus()
        version = driver.as_optional(nvml.driver_version())
        return gpus if isinstance(gpus, Missing) else tuple(gpu.facts() for gpu in gpus), version


def snapshot(request: FactsRequest) -> Snapshot:
    """All facts. Parts that wait for programs or for the driver are read in parallel, which saves most of the time."""
    began = datetime.now(timezone.utc)
    asked = datetime.fromisoformat(request.asked_at) if request.asked_at else None
    with ThreadPoolExecutor(READERS) as beside:
        kernel_read = beside.submit(osfacts.kernel_facts)
        gpus_read = beside.submit(read_gpus)
        packages_read = beside.submit(packages.installed, request.packages)
        manager_read = beside.submit(packages.manager)
        apt_read = beside.submit(apt.facts) if packages.uses_apt() else None
        paths = shells.read_paths()
        modules_read = beside.submit(shells.python_modules, request.python_modules, paths.login)
        loader = Loader(paths.login_libraries)
        pci_gpus, nvswitches, other_gpus = osfacts.pci()
        shell_facts = shells.shell_facts(paths)
        digests = Digests()
        cuda_facts = cuda.cuda_facts(shell_facts.login_shell["nvcc"], loader, paths.login)
        libraries = loader.libraries(DRIVER_LIBRARIES, LIBRARIES)
        disk_free_mib, folders = osfacts.folders((*parse.DISK_PATHS, *request.folders))
        kernel = kernel_read.result()
        commands = {name: shells.which(name, paths.login) for name in request.commands}
        modprobe_lines, config_lines, units = modprobe.lines(), configlines.lines(), managed.unit_facts()
        certifiable = _certifiable(kernel.running, libraries, cuda_facts.nvcc_path)
        image = f"/boot/vmlinuz-{kernel.next_boot}"
        named = _nameable(modprobe_lines, config_lines, units, commands, shell_facts)
        nameable = [image, *certifiable, *named]
        owners_read = beside.submit(packages.owners, nameable)
        gpus, nvml_version = gpus_read.result()
        driver_read = driver.driver_facts(
            kernel.running, kernel.next_boot, osfacts.fallback(kernel), osfacts.loaded_modules(), loader,
            nvml_version, modprobe_lines,
        )  # fmt: skip
        facts = Snapshot(
            taken_at=datetime.now(timezone.utc).isoformat(timespec="seconds"),
            source=source(),
            agent_version=__version__,
            hostname=platform.node(),
            os=osfacts.os_facts(),
            kernel=kernel,
            virtualization=osfacts.virtualization(),
            is_root=os.getuid() == 0,
            pci_gpus=pci_gpus,
            nvswitches=nvswitches,
            driver=driver_read,
            packages=packages_read.result(),
            package_files=packages.files(packages_read.result(), digests),
            gpus=gpus,
            locked_clocks=managed.read_locked_clocks(),
            libraries=libraries,
            cuda=cuda_facts,
            cudnn=cuda.cudnn_facts(loader, digests),
            codec=codec.codec_facts(shell_facts.login_shell["ffmpeg"], digests),
            shells=shell_facts,
            units=units,
            files=managed.file_texts(),
            commands=commands,
            python_modules=modules_read.result(),
            mounts=osfacts.mounts(),
            disk_free_mib=disk_free_mib,
            cloud_init=osfacts.cloud_init(),
            provenance=managed.provenance(),
            agent_installed_version=managed.installed_agent_version(),
            agent_libraries=managed.agent_libraries(),
            xids=xids.xids(simulated=source() is Source.SIMULATED),
            modprobe=modprobe_lines,
            signatures=signatures.facts((kernel.running, kernel.next_boot), request.certificates),
            apt=apt_read.result() if apt_read else None,
            digests=digests.of_all(certifiable),
            other_gpus=other_gpus,
            identity=machineidentity.identity(simulated=source() is Source.SIMULATED),
            cloud=cloud.facts(simulated=source() is Source.SIMULATED),
            containers=containers.facts(),
            nvidia_repositories=repositories.nvidia(),
            blank_disks=disks.blank(simulated=source() is Source.SIMULATED),
            package_manager=manager_read.result(),
            folders=folders,
            config_lines=config_lines,
            owners=owners_read.result(),
            unlisted=unlisted(libraries, config_lines),
            built=manifest.folders(request.prefixes),
            driver_change=managed.driver_change(),
            clock_ahead_seconds=int((began - asked).total_seconds()) if asked else NOT_READ,
            use=_use(gpus) if request.use else NOT_READ,
            driver_libraries=driver.libraries(loader, driver_read.module_version or driver_read.loaded_version),
        )
    digests.keep()
    return facts


def _use(gpus: Union[Tuple[GpuFacts, ...], Missing]) -> UseFacts:
    found = inuse.state(_answer, _on_gpus(gpus), turn.running())
    return UseFacts(
        programs=tuple(found["programs"]),
        jobs=tuple(found["jobs"]),
        users=tuple(found["users"]),
        unknown=found["unknown"],
    )


def _on_gpus(gpus: Union[Tuple[GpuFacts, ...], Missing]) -> Optional[Dict[int, Tuple[str, List[int]]]]:
    """Process ► its name and its GPUs; None if NVML cannot say that of every GPU."""
    on: Dict[int, Tuple[str, List[int]]] = {}
    if isinstance(gpus, Missing):
        return None
    for gpu in gpus:
        if isinstance(gpu.processes, Missing):
            return None
        for process in gpu.processes:
            on.setdefault(process.pid, (process.name, []))[1].append(gpu.index)
    return on


def _answer(*command: str) -> Optional[str]:
    text = run(command)
    return text if isinstance(text, str) else None


def _nameable(
    modprobe_lines: Union[Tuple[ModprobeLine, ...], Missing],
    config_lines: Tuple[ConfigLine, ...],
    units: Dict[str, UnitFacts],
    commands: Dict[str, OptStr],
    shell_facts: ShellFacts,
) -> Iterator[str]:
    """Files that a finding may ask somebody to change or to remove, and commands that are gone."""
    if not isinstance(modprobe_lines, Missing):
        yield from (line.file for line in modprobe_lines)
    yield from (line.file for line in config_lines)
    for unit in units.values():
        yield from unit.files
    yield from map(str, apt.preference_files())
    for name, found in commands.items():
        if not isinstance(found, Missing):
            yield found or f"/usr/bin/{name}"
    for tools in (shell_facts.login_shell, shell_facts.non_login_shell, shell_facts.systemd_service):
        yield from (path for path in tools.values() if isinstance(path, str))


def _certifiable(kernel: str, libraries: Dict[str, OptStr], nvcc: OptStr) -> List[str]:
    """The files that run when a program uses the GPU, links resolved."""
    module = driver.module_file(kernel)
    beside = [str(path) for path in Path(module).parent.glob("nvidia*.ko*")] if isinstance(module, str) else []
    paths = [*libraries.values(), nvcc, *beside, *(path for path in PROGRAMS if Path(path).exists())]
    return [os.path.realpath(path) for path in paths if isinstance(path, str)]
