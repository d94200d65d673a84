"""The PCI bus of a machine: a folder in the shape of /sys/bus/pci/devices, which real lspci reads."""

from __future__ import annotations

import shutil
import struct
from collections.abc import Iterable, Set
from pathlib import Path

from gpuprep.sim.gpus import NVIDIA, Device


def write(folder: Path, devices: Iterable[Device], drivers: dict[str, str] | None = None) -> None:
    """Writes every device; `drivers` names the kernel driver that a bus id is bound to."""
    folder.mkdir(parents=True, exist_ok=True)
    bound = drivers or {}
    kept = set()
    for device in devices:
        kept.add(device.bus_id)
        _write_device(folder / device.bus_id, device, bound.get(device.bus_id, ""))
    _remove_others(folder, kept)


def _write_device(folder: Path, device: Device, driver: str) -> None:
    pci = device.model.data["pci"]
    vendor, product, subsystem, code = NVIDIA, pci["device"], pci["subsystem"], pci["class"]
    folder.mkdir(exist_ok=True)
    base, sub, interface = code >> 16, code >> 8 & 0xFF, code & 0xFF
    files = {
        "vendor": f"0x{vendor:04x}",
        "device": f"0x{product:04x}",
        "subsystem_vendor": f"0x{vendor:04x}",
        "subsystem_device": f"0x{subsystem:04x}",
        "class": f"0x{code:06x}",
        "revision": "0xa1",
        "irq": str(10 + device.index),
        "numa_node": "-1",
        "enable": "1",
        "local_cpulist": "0",
        "max_link_speed": f"{_SPEEDS[pci['generation']]} GT/s PCIe",
        "current_link_speed": f"{_SPEEDS[pci['generation']]} GT/s PCIe",
        "max_link_width": str(pci["width"]),
        "current_link_width": str(pci["width"]),
        "resource": "\n".join(["0x0000000000000000 0x0000000000000000 0x0000000000000000"] * 13),
        "modalias": f"pci:v{vendor:08X}d{product:08X}sv{vendor:08X}sd{subsystem:08X}"
        f"bc{base:02X}sc{sub:02X}i{interface:02X}",
        "uevent": f"PCI_CLASS={code:X}\nPCI_ID={vendor:04X}:{product:04X}\nPCI_SLOT_NAME={device.bus_id}"
        + (f"\nDRIVER={driver}" if driver else ""),
    }
    for name, text in files.items():
        (folder / name).write_text(text + "\n")
    header = struct.pack("<HHHHBBBBBBBB", vendor, product, 0x0406, 0x0010, 0xA1, interface, sub, base, 0, 0, 0, 0)
    header = header.ljust(0x2C, b"\0") + struct.pack("<HH", vendor, subsystem)
    (folder / "config").write_bytes(header.ljust(256, b"\0"))
    link = folder / "driver"
    link.unlink(missing_ok=True)
    if driver:
        link.symlink_to(f"../../drivers/{driver}")


_SPEEDS = {3: "8.0", 4: "16.0", 5: "32.0"}


def _remove_others(folder: Path, kept: Set[str]) -> None:
    for path in folder.iterdir():
        if path.name not in kept:
            shutil.rmtree(path)
