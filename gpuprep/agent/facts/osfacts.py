"""Reads facts of the machine without its GPUs: system, kernel, PCI, disks, cloud-init."""

from __future__ import annotations

import json
import os
import platform
import time
from pathlib import Path
from typing import Callable, Dict, List, Optional, Sequence, Tuple, Union

from gpuprep.agent import host_paths
from gpuprep.agent.facts import bootorder, nextboot, parse
from gpuprep.agent.facts.driver import built_for
from gpuprep.agent.facts.packages import headers_available
from gpuprep.agent.programs.run import read_text, run
from gpuprep.records import (
    Bool,
    BootFacts,
    BootFault,
    FolderFacts,
    KernelFacts,
    Missing,
    Mount,
    OptStr,
    OsFacts,
    PciDevice,
    Str,
)
from gpuprep.untrusted.plaintext import one_line

PCI_DEVICES = Path(host_paths.PCI_DEVICES)
NVIDIA = "10de"
GPU_CLASSES = ("0300", "0302")  # VGA, 3D controller
OTHER_CLASSES = (*GPU_CLASSES, "0380", "1200")  # other display controller, processing accelerator: AMD's
PCI_NAMES = (Path("/usr/share/misc/pci.ids"), Path("/usr/share/hwdata/pci.ids"))  # lspci's database: Debian, Red Hat
NVSWITCH_CLASS = "0680"  # other bridge
CLOUD_INIT_RUN = Path("/run/cloud-init")
MOST_OPTIONS = 4096  # letters of a kernel's command line that a record keeps, as x86 has room for half of them


def os_facts() -> OsFacts:
    values = parse.key_values(_text("/etc/os-release") or _text("/usr/lib/os-release"))
    return OsFacts(
        id=values.get("ID", "linux"),
        version_id=values.get("VERSION_ID", ""),
        codename=values.get("VERSION_CODENAME", ""),
        pretty_name=values.get("PRETTY_NAME", ""),
        architecture=platform.machine(),
        like=tuple(values.get("ID_LIKE", "").split()),
    )


def kernel_facts() -> KernelFacts:
    running = platform.release()
    answer = bootorder.next_boot(bootorder.Tree(), _grubby)
    following, boot = boot_facts(answer)
    headers = has_headers(running)
    return KernelFacts(
        running=running,
        next_boot=following,
        headers_running=headers,
        headers_next_boot=has_headers(following) if isinstance(following, str) else False,
        headers_available=True if headers else headers_available(running),
        secure_boot=secure_boot(),
        boot_id=boot_id(),
        uptime_seconds=round(time.clock_gettime(time.CLOCK_BOOTTIME), 2),  # not psutil: its clocks can be set
        boot=boot,
    )


def boot_facts(
    answer: bootorder.Answer, root: Path = Path("/"), built_for: Callable[[Path], str] = built_for
) -> Tuple[OptStr, Union[BootFacts, Missing, None]]:
    """(the kernel of the next boot, its entry). Both Missing where the boot loader's settings cannot be understood."""
    if answer.reason == "not_installed":
        return None, None
    if answer.problem:
        unknown = Missing(answer.reason, one_line(answer.problem, 300))
        return unknown, unknown
    faults = tuple(BootFault(fault.kind, fault.what) for fault in nextboot.faults(answer, root, built_for))
    return answer.kernel, BootFacts(
        answer.loader, one_line(answer.setting, 300), one_line(answer.title, 200), answer.image,
        answer.options[:MOST_OPTIONS], answer.once, answer.fallback or None, faults,
    )  # fmt: skip


def fallback(kernel: KernelFacts) -> OptStr:
    return kernel.boot.fallback if isinstance(kernel.boot, BootFacts) else kernel.boot


def _grubby() -> str:
    output = run(["grubby", "--default-kernel"])
    return "" if isinstance(output, Missing) else output


def has_headers(kernel: str) -> bool:
    """Whether the build folder exists that DKMS compiles against; a dangling link does not count."""
    return Path(f"/lib/modules/{kernel}/build").is_dir()


def boot_id() -> str:
    return _text(host_paths.BOOT_ID).strip()


def secure_boot() -> Bool:
    try:
        return nextboot.secure_boot()
    except OSError as error:
        return Missing("no_permission", str(error))


def virtualization() -> str:
    output = run(["systemd-detect-virt"], accept=(0, 1))
    return "unknown" if isinstance(output, Missing) else output.strip()


def pci(
    devices: Path = PCI_DEVICES, names: Sequence[Path] = PCI_NAMES
) -> Tuple[Tuple[PciDevice, ...], int, Tuple[PciDevice, ...]]:
    """(NVIDIA's GPUs, number of NVSwitches, GPUs of other makers), from /sys: pciutils may not be installed."""
    gpus: List[PciDevice] = []
    others: List[PciDevice] = []
    switches = 0
    for folder in sorted(devices.iterdir()) if devices.is_dir() else []:
        ids = [_hex(folder / name) for name in ("vendor", "device", "class", "subsystem_device")]
        vendor, device, class_code, subsystem = ids
        mine = vendor == NVIDIA
        switches += mine and class_code.startswith(NVSWITCH_CLASS)
        if class_code.startswith(GPU_CLASSES if mine else OTHER_CLASSES):
            link = folder / "driver"
            driver = os.path.basename(os.readlink(str(link))) if link.is_symlink() else None  # noqa: PTH115, PTH119
            name = pci_name(vendor, device, names)
            (gpus if mine else others).append(
                PciDevice(folder.name, vendor, device, class_code, driver, subsystem, name)
            )
    return tuple(gpus), switches, tuple(others)


def pci_name(vendor: str, device: str, names: Sequence[Path] = PCI_NAMES) -> Optional[str]:
    """The name that lspci prints: "NVIDIA Corporation AD102 [GeForce RTX 4090]". None without its database."""
    database = next((path for path in names if path.is_file()), None)
    if database is None:
        return None
    maker = ""
    with database.open(encoding="utf-8", errors="replace") as lines:  # 1.4 MB, and only a few lines of it are wanted
        for line in lines:
            if maker and line[:1] not in "\t#\n":
                break
            if maker and line.startswith(f"\t{device}  "):
                return f"{maker} {line[7:].strip()}"
            if line.startswith(f"{vendor}  "):
                maker = line[6:].strip()
    return None


def _hex(path: Path) -> str:
    text = read_text(path)
    return text.strip().lower()[2:] if isinstance(text, str) else ""


def mounts() -> Tuple[Mount, ...]:
    # By hand: a bare host has no psutil, and psutil believes /etc/mtab where that is a file.
    return parse.mounts(_text("/proc/self/mounts"))


def folders(paths: Sequence[str]) -> Tuple[Dict[str, int], Dict[str, FolderFacts]]:
    """(path ► MiB that an ordinary user may still write; path ► where it is). Root's reserve is not counted."""
    free: Dict[str, int] = {}
    places: Dict[str, FolderFacts] = {}
    for path in dict.fromkeys(paths):
        place = Path(os.path.realpath(path))
        while not os.path.isdir(place):  # noqa: PTH112 - Path's own raises where a folder may not be entered
            place = place.parent
        info = os.statvfs(place)
        while not os.path.ismount(place):
            place = place.parent
        free[path] = info.f_bavail * info.f_frsize // 2**20
        inodes = info.f_favail if info.f_files else None  # btrfs counts none
        places[path] = FolderFacts(str(place), bool(info.f_flag & os.ST_RDONLY), inodes)
    return free, places


def cloud_init(folder: Path = CLOUD_INIT_RUN) -> Str:
    """cloud-init's status, read from its files: its command takes a quarter of a second for the same."""
    if not folder.is_dir():
        installed = any(Path(path).exists() for path in ("/usr/bin/cloud-init", "/usr/local/bin/cloud-init"))
        return "running" if installed and not Path("/etc/cloud/cloud-init.disabled").exists() else "absent"
    if (folder / "disabled").exists():
        return "absent"
    text = read_text(folder / "result.json")
    if text is None:
        return "running"
    if isinstance(text, Missing):
        return text
    try:
        return "error" if json.loads(text)["v1"]["errors"] else "done"
    except (ValueError, KeyError, TypeError) as error:
        return Missing("unparsable", f"{folder}/result.json: {error!r}")


def loaded_modules() -> Tuple[str, ...]:
    return parse.loaded_modules(_text("/proc/modules"))


def _text(path: str) -> str:
    """The text of a file that every Linux has; "" if it cannot be read."""
    text: OptStr = read_text(path)
    return text if isinstance(text, str) else ""
