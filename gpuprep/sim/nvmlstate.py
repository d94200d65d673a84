"""The file that the NVML stand-in keeps its GPUs in: written at boot from gpus.yml, changed by faults, under flock."""

from __future__ import annotations

import configparser
import contextlib
import fcntl
import io
import json
import os
import re
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

from gpuprep.errors import SimError
from gpuprep.sim import driver
from gpuprep.sim.gpus import NVIDIA, Device

# NVML's own numbers
ARCHITECTURES = {"volta": 5, "turing": 6, "ampere": 7, "hopper": 9}
BRAND_TESLA, BRAND_NVIDIA = 2, 14
# Kept over a reboot: the board's ECC mode, error counters and permanent defects, and our faults
LASTING = (
    "ecc", "ecc_pending", "ecc_corrected", "ecc_uncorrected", "retired_pages", "remapped_rows", "remap_failed",
    "banks_without_spares", "sram_threshold_exceeded",
)  # fmt: skip

BUS_ID = re.compile(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
SECTION = re.compile(r"system|gpu\.\d{1,2}")
MOST_LETTERS = 1 << 20
LOCK_SECONDS = 10.0


def of_device(device: Device, index: int) -> dict[str, str]:
    """A GPU as it is right after the driver loaded: no volatile setting made."""
    data = device.model.data
    clocks, power, pci, heat = data["clocks"], data["power"], data["pci"], data["temperature"]
    new = device.model.architecture in ("ampere", "hopper")
    supported = device.model.supported_clocks()
    values: dict[str, object] = {
        "name": data["name"],
        "index": index,
        "uuid": device.uuid,
        "serial": device.serial,
        "bus_id": f"0000{device.bus_id.upper()}",
        "bus": 0,
        "slot": int(device.bus_id.split(":")[2].split(".")[0], 16),
        "pci_id": (pci["device"] << 16) | NVIDIA,
        "pci_subsystem": (pci["subsystem"] << 16) | NVIDIA,
        "board_id": 256 * (index + 1),
        "irq": 10 + device.index,
        "brand": BRAND_NVIDIA if data["name"].startswith("NVIDIA") else BRAND_TESLA,
        "architecture": ARCHITECTURES[device.model.architecture],
        "capability_major": data["compute_capability"][0],
        "capability_minor": data["compute_capability"][1],
        "multiprocessors": data["multiprocessors"],
        "cores": data["multiprocessors"] * data["cores_per_multiprocessor"],
        "memory_mib": data["memory_mib"],
        "memory_reserved_mib": 400,
        "memory_bus_width": data["memory_bus_width"],
        "bar1_mib": data["bar1_mib"],
        "vbios": data["vbios"],
        "memory_clocks": " ".join(map(str, supported)),
        "default_memory": clocks["default_memory"],
        "default_graphics": clocks["default_graphics"],
        "max_memory": max(clocks["memory"]),
        "max_graphics": clocks["graphics_max"],
        "idle_memory": min(clocks["memory"]),
        "idle_graphics": clocks["graphics_min"],
        "video_clock_percent": data["performance"]["video"]["clock_percent"],
        "performance": json.dumps(data["performance"]),
        "locks_memory": int(new),
        "mig_capable": int("mig" in data),
        **(_mig(data["mig"], kept=device.model.architecture == "ampere") if "mig" in data else {}),
        "power_min_mw": power["min"] * 1000,
        "power_max_mw": power["max"] * 1000,
        "power_default_mw": power["default"] * 1000,
        "power_usage_mw": power["idle"] * 1000,
        "power_management": 1,
        "temperature": heat["idle"],
        "temperature_idle": heat["idle"],
        "temperature_slowdown": heat["slowdown"],
        "temperature_shutdown": heat["shutdown"],
        "temperature_max": heat["slowdown"] - 4,
        "temperature_hot": heat["slowdown"] - 2,
        "performance_state": 8,
        "pcie_generation": pci["generation"],
        "pcie_generation_now": 1,
        "pcie_width": pci["width"],
        "pcie_width_now": pci["width"],
        "pcie_replays": 0,
        "nvlinks": data["performance"].get("nvlinks", 0),
        "nvlinks_up": data["performance"].get("nvlinks", 0),
        "persistence": 0,
        "compute_mode": 0,
        "event_reasons": 1,
        "utilization": 0,
        "display_mode": 0,
        "display_active": 0,
        "multi_gpu_board": 0,
        "virtualization": 1,
        "accounting": 0,
        "accounting_buffer": 4000,
    }
    for memory, graphics in supported.items():
        values[f"graphics_clocks_{memory}"] = " ".join(map(str, graphics))
    if data["ecc"]:
        values |= {"ecc": 1, "ecc_pending": 1, "ecc_default": 1, "ecc_corrected": 0, "ecc_uncorrected": 0}
        values |= {"ecc_corrected_volatile": 0, "ecc_uncorrected_volatile": 0}
    if new:
        values |= {"remapped_rows": 0, "remap_pending": 0, "remap_failed": 0, "sram_threshold_exceeded": 0}
        values |= {"banks": data["banks"], "banks_without_spares": 0}
    else:
        values |= {"retired_pages_pending": 0, "retired_pages": 0}
    if "memory_max" in heat:  # HBM has a sensor
        values |= {"temperature_memory": heat["idle"] + 4, "temperature_memory_max": heat["memory_max"]}
    if "slowdown_after" in heat:  # boards that tell margins
        values["slowdown_after"] = heat["slowdown_after"]
    return {key: str(value) for key, value in values.items()}


def _mig(profiles: Mapping[str, Sequence[int]], *, kept: bool) -> dict[str, object]:
    """MIG is off. `profiles`: name ► multiprocessors and MiB; `kept`: the mode is one of the board, as on Ampere."""
    figures = list(profiles.values())
    return {
        "mig": 0,
        "mig_pending": 0,
        "mig_kept": int(kept),
        "mig_names": " ".join(profiles),
        "mig_multiprocessors": " ".join(str(multiprocessors) for multiprocessors, _ in figures),
        "mig_memory_mib": " ".join(str(memory) for _, memory in figures),
    }


def write_boot(folder: Path, loaded: driver.Loaded | None, devices: Sequence[Device], owner: int = 0) -> None:
    """Writes the state of a boot. NVML lists the GPUs that the driver drives; pending modes become current.

    `owner` is the machine's root, who may write these files and put none in their place: the folder is not his.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("state", "clients"):
        (folder / name).touch()
        (folder / name).chmod(0o644)
        _give(folder / name, owner)
    _kept_if_sound(folder)
    loads = folder / "loads"  # anybody may use a GPU, and nobody may take away another's work
    shutil.rmtree(loads, ignore_errors=True)
    loads.mkdir()
    _give(loads, owner)
    loads.chmod(0o1777)
    with changed(folder) as state:
        before = {section: dict(state[section]) for section in state.sections()}
        state.clear()
        state["system"] = {key: value for key, value in before.get("system", {}).items() if key.startswith("fault_")}
        if state["system"].get("fault_application_clocks_removed"):
            state["system"]["application_clocks_removed"] = "1"
        if loaded is None:
            return
        known = driver.branch(loaded.version)
        state["system"].update({"driver": loaded.version, "cuda": str(known["cuda"]), "nvenc_api": known["nvenc"]})
        for index, device in enumerate(d for d in devices if d.bus_id in loaded.drives):
            section = f"gpu.{index}"
            state[section] = of_device(device, index)
            old = before.get(section, {})
            state[section].update({k: v for k, v in old.items() if k in LASTING or k.startswith("fault_")})
            state[section].pop("fault_gpu_lost", None)  # the boot finds it on the bus again
            if "ecc_pending" in state[section]:
                state[section]["ecc"] = state[section]["ecc_pending"]
            if state[section].get("mig_kept") == "1":  # and no instance outlives a boot
                state[section]["mig"] = state[section]["mig_pending"] = old.get("mig_pending", "0")


def _give(path: Path, owner: int) -> None:
    if path.stat().st_uid != owner and os.geteuid() == 0:  # an ordinary user tests with files of his own
        os.chown(path, owner, owner)


@contextlib.contextmanager
def changed(folder: Path) -> Iterator[configparser.ConfigParser]:
    """The state, locked against the machine's processes, written in place when the block ends.

    The machine's root may write anything there and hold the lock for ever; then this raises SimError.
    """
    with (folder / "state").open("r+", encoding="utf-8", errors="replace") as file:
        _lock(file)
        state = configparser.ConfigParser(interpolation=None)
        try:
            state.read_string(_sized(file))
            yield state
        except (configparser.Error, KeyError, ValueError, IndexError) as error:
            raise SimError(
                f"the machine made its GPU's state ({folder}/state) unreadable: {error!r}",
                "reboot it: a boot writes it",
            ) from None
        text = io.StringIO()
        state.write(text)
        file.seek(0)
        file.truncate()
        file.write(text.getvalue())
        file.flush()


def _sized(file: IO[str]) -> str:
    text = file.read(MOST_LETTERS + 1)
    if len(text) > MOST_LETTERS:
        raise ValueError(f"more than {MOST_LETTERS} letters")
    return text


def _lock(file: IO[str]) -> None:
    end = time.monotonic() + LOCK_SECONDS
    while True:
        try:
            return fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > end:
                raise SimError("a process of the machine holds the lock of its GPU's state", "reboot it") from None
        time.sleep(0.05)  # flock(2) waits without a limit of time, or not at all


def _kept_if_sound(folder: Path) -> None:
    """If the machine made its state unreadable, its boards start as new."""
    try:
        with changed(folder) as state:
            for section in state.sections():
                if not SECTION.fullmatch(section):
                    raise ValueError(section)
    except SimError:
        (folder / "state").write_text("")


def sys_name(section: Mapping[str, str]) -> str:
    """A GPU's bus id as the kernel writes it below /sys. It becomes part of a path: nothing else is let through."""
    name = section["bus_id"][4:].lower()
    if not BUS_ID.fullmatch(name):
        raise ValueError(f"bus_id = {section['bus_id']!r}")
    return name
