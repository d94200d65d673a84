"""Fakes below /sys other than devices: /sys/module (lsmod reads it), /sys/bus/pci/drivers (lspci -k reads it)."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

HOST_MODULES = "/run/gpuprep-sim/host-sys-module"


def write_modules(folder: Path, listed: str, version: str = "") -> None:
    """One folder a module of `listed` (/proc/modules), and links to the real ones, which are mounted elsewhere."""
    _empty(folder)
    for line in listed.splitlines():
        name, size, count, users, *_ = line.split()
        module = folder / name
        (module / "holders").mkdir(parents=True)
        for user in filter(None, users.strip("-").split(",")):
            (module / "holders" / user).symlink_to(f"../../{user}")
        values = {"coresize": size, "refcnt": count, "initstate": "live", "taint": "POE" if name == "nvidia" else ""}
        if name.startswith("nvidia") and version:
            values["version"] = version
        for key, value in values.items():
            (module / key).write_text(value + "\n")
    for real in Path("/sys/module").iterdir() if Path("/sys/module").is_dir() else ():
        if not (folder / real.name).exists() and not real.name.startswith(("nvidia", "nouveau")):
            (folder / real.name).symlink_to(f"{HOST_MODULES}/{real.name}")


def write_drivers(folder: Path, bound: Mapping[str, str]) -> None:
    """One folder a driver, with a link for each device (bus id) that is bound to it."""
    _empty(folder)
    for bus_id, driver in bound.items():
        (folder / driver).mkdir(exist_ok=True)
        (folder / driver / bus_id).symlink_to(f"../../devices/{bus_id}")


def _empty(folder: Path) -> None:
    """Empties a folder that may be mounted somewhere: the folder itself has to stay."""
    folder.mkdir(parents=True, exist_ok=True)
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
