"""The driver of one boot: does it load, what does it drive, what do /proc/modules and /proc/driver/nvidia say."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

import yaml

from gpuprep.sim.gpus import Device, Model
from gpuprep.sim.modprobe import Module


@dataclass(frozen=True)
class Loaded:
    """A driver that loaded: `drives` are the bus ids that it is bound to."""

    version: str
    is_open: bool
    drives: tuple[str, ...]
    options: Mapping[str, str]


@functools.cache
def facts() -> dict[str, Any]:
    text = (resources.files("gpuprep.sim") / "drivers.yml").read_text(encoding="utf-8")
    data: dict[str, Any] = yaml.safe_load(text)
    return data


def branch(version: str) -> dict[str, Any]:
    """The facts of a driver version's branch."""
    number = int(version.split(".")[0])
    known = sorted(facts()["branches"])
    nearest = max((key for key in known if key <= number), default=known[0])
    return dict(facts()["branches"][nearest])


def supports(model: Model, version: str, is_open: bool) -> bool:
    """Does this driver, in this flavour, drive the model?"""
    order = facts()["architectures"]
    age = order.index(model.architecture)
    oldest = order.index(branch(version).get("oldest_architecture", order[0]))
    if is_open:
        oldest = max(oldest, order.index(facts()["open_oldest_architecture"]))
    return bool(age >= oldest)


def load(module: Module | None, devices: Sequence[Device], options: Mapping[str, str]) -> Loaded | None:
    """The driver that a boot loads from the disk. A driver that finds no GPU of its own does not stay loaded."""
    if module is None or not module.version:
        return None
    drives = [d.bus_id for d in devices if not d.model.is_switch and supports(d.model, module.version, module.is_open)]
    if not drives:
        return None
    return Loaded(module.version, module.is_open, tuple(drives), dict(options))


def version_text(loaded: Loaded) -> str:
    """/proc/driver/nvidia/version."""
    if loaded.is_open:
        head = f"NVIDIA UNIX Open Kernel Module for x86_64  {loaded.version}  Release Build  (simulated)"
    else:
        head = f"NVIDIA UNIX x86_64 Kernel Module  {loaded.version}  Tue Apr  8 12:41:17 UTC 2025"
    return f"NVRM version: {head}\nGCC version:  gcc version (Debian)\n"


def params_text(options: Mapping[str, str]) -> str:
    """/proc/driver/nvidia/params: the defaults, changed by NVreg_ options."""
    values = {key: str(value) for key, value in facts()["params"].items()}
    for option, value in options.items():
        name = facts()["option_names"].get(option, option.removeprefix("NVreg_"))
        if name in values:
            values[name] = value
    lines = [f"{name}: {value}" for name, value in values.items()]
    lines += [
        f'{name}: "{options.get("NVreg_" + name, "")}"'
        for name in ("RegistryDwords", "RegistryDwordsPerDevice", "RmMsg")
    ]
    return "\n".join(lines) + "\n"


def modules_text(loaded: Loaded | None, nouveau: bool) -> str:
    """/proc/modules."""
    rows: list[tuple[str, int, str]] = []
    if nouveau:
        rows += [
            ("nouveau", 3096576, ""),
            ("drm_ttm_helper", 16384, "nouveau"),
            ("ttm", 106496, "nouveau,drm_ttm_helper"),
        ]
    if loaded:
        rows += [tuple(row) for row in facts()["modules"]]
    taint = {True: " (OE)", False: " (POE)"}[loaded.is_open] if loaded else ""
    return "".join(
        f"{name} {size} {len(users.split(',')) if users else 0} {users + ',' if users else '-'} Live 0x0000000000000000"
        f"{taint if name.startswith('nvidia') else ''}\n"
        for name, size, users in rows
    )


def information_text(device: Device, loaded: Loaded) -> str:
    """/proc/driver/nvidia/gpus/<bus id>/information."""
    return (
        f"Model: \t\t {device.model.data['name']}\nIRQ:   \t\t {10 + device.index}\nGPU UUID: \t {device.uuid}\n"
        f"Video BIOS: \t {device.model.data['vbios']}\nBus Type: \t PCIe\n"
        f"DMA Size: \t 47 bits\nDMA Mask: \t 0x7fffffffffff\n"
        f"Bus Location: \t {device.bus_id}\nDevice Minor: \t {device.index}\nGPU Firmware: \t {_firmware(loaded)}\n"
        f"GPU Excluded:\t No\n"
    )


def _firmware(loaded: Loaded) -> str:
    return loaded.version if loaded.is_open and loaded.options.get("NVreg_EnableGpuFirmware") != "0" else "N/A"
