"""Writes the stand-ins for a boot of a machine, from what is installed on its disk at that moment."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from gpuprep.agent.facts import bootorder
from gpuprep.sim import driver, gpus, modprobe, nvmlstate, pci, sysfs
from gpuprep.sim.machinedisk import Disk
from gpuprep.sim.store import Description

KERNEL = re.compile(r"vmlinuz-[\w.+~-]{1,100}")
CHOSEN = "boot/grub2/grubenv"  # of an RPM system, where grubby keeps the kernel that somebody chose
MOST_TEXT = 4096  # bytes of it


class _Files(bootorder.Tree):
    """A machine's disk as the reader of boot loaders wants it."""

    def __init__(self, disk: Disk) -> None:
        super().__init__()
        self._disk = disk

    def read(self, path: str, most: int) -> bytes | None:
        return self._disk.read(path.lstrip("/"), most)

    def names(self, path: str) -> list[str]:
        return self._disk.names(path.lstrip("/"))

    def target(self, path: str) -> str:
        with self._disk.file(path.lstrip("/")) as file:
            return path if file is not None else ""


def loaded_kernel(disk: Disk) -> str:
    """The release that the boot loader's files on the disk start; "" without such files, or if that kernel is gone.

    A one-shot starts every time, as on file systems that GRUB cannot write: nothing writes to a disk from outside.
    """
    answer = bootorder.next_boot(_Files(disk))
    known = answer.loader != bootorder.NONE and f"vmlinuz-{answer.kernel}" in disk.names("boot")
    return answer.kernel if known else ""


def newest_kernel(disk: Disk) -> str:
    """The release of the newest kernel in /boot, which a boot loader would start; "" when there is none."""
    releases = [name.removeprefix("vmlinuz-") for name in disk.names("boot") if KERNEL.fullmatch(name)]
    return max(releases, key=_version_key, default="")


def chosen_kernel(disk: Disk) -> str:
    """The release of the kernel that was made the default; "" where none was, or it is gone."""
    text = (disk.read(CHOSEN, MOST_TEXT) or b"").decode("utf-8", "replace")
    match = re.search(r"^saved_entry=(\S+)$", text, re.MULTILINE)
    name = f"vmlinuz-{match[1]}" if match else ""
    return match[1] if match and KERNEL.fullmatch(name) and name in disk.names("boot") else ""


def _version_key(release: str) -> list[tuple[int, int, str]]:
    # `packaging` refuses 6.1.0-18-amd64.
    return [(1, int(part), "") if part.isdigit() else (0, 0, part) for part in re.findall(r"\d+|[a-z]+", release)]


def prepare(description: Description, root: Path, folder: Path, owner: int = 0) -> driver.Loaded | None:
    """Writes kernel, modules, driver, NVML state and PCI bus of the boot that comes; returns the driver that loads.

    `root` is the machine's disk; of `folder`, the machine's own, run/ becomes its /run/gpuprep-sim and sys/ is mounted
    over parts of its /sys. `owner` is the machine's root on this computer, who may change the state of the GPUs.
    """
    run, sys = folder / "run", folder / "sys"
    devices = gpus.devices(description.identity or description.name, description.gpus)
    with Disk(root) as disk:
        release = str(
            description.options.get("kernel") or loaded_kernel(disk) or chosen_kernel(disk) or newest_kernel(disk)
        )
        configuration = modprobe.read(disk)
        module = modprobe.nvidia_module(disk, release, configuration)
    options = modprobe.nvidia_options(configuration, module) if module else {}
    loaded = driver.load(module, devices, options)
    graphics = [device.bus_id for device in devices if not device.model.is_switch]
    free = [bus_id for bus_id in graphics if not loaded or bus_id not in loaded.drives]
    nouveau = description.nouveau and bool(free) and "nouveau" not in configuration.blacklist
    bound = dict.fromkeys(free, "nouveau") if nouveau else {}
    bound |= dict.fromkeys(loaded.drives, "nvidia") if loaded else {}

    _write(run / "kernel/release", release + "\n")
    modules = driver.modules_text(loaded, nouveau)
    _write(run / "proc/modules", modules)
    sysfs.write_modules(sys / "module", modules, loaded.version if loaded else "")
    sysfs.write_drivers(sys / "bus/pci/drivers", bound)
    (run / "host-sys-module").mkdir(exist_ok=True)
    _write(run / "proc/osrelease", release + "\n")
    _write_proc_driver(run / "proc/driver", loaded, devices)
    nvmlstate.write_boot(run / "nvml", loaded, devices, owner)
    pci.write(sys / "bus/pci/devices", devices, bound)
    return loaded


def _write_proc_driver(folder: Path, loaded: driver.Loaded | None, devices: list[gpus.Device]) -> None:
    nvidia = folder / "nvidia"
    if nvidia.exists():
        shutil.rmtree(nvidia)
    folder.mkdir(parents=True, exist_ok=True)
    if loaded is None:
        return
    _write(nvidia / "version", driver.version_text(loaded))
    _write(nvidia / "params", driver.params_text(loaded.options))
    _write(nvidia / "registry", 'Binary: ""\n')
    for device in devices:
        if device.bus_id in loaded.drives:
            _write(nvidia / "gpus" / device.bus_id / "information", driver.information_text(device, loaded))


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
