"""GPU models of `gpus.yml` and the devices a machine has of them."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

import yaml

from gpuprep.errors import SimError

NVIDIA = 0x10DE
FIRST_SLOT = 4


@dataclass(frozen=True)
class Model:
    """One model: `data` is its entry of gpus.yml."""

    key: str
    data: Mapping[str, Any]

    @property
    def is_switch(self) -> bool:
        return bool(self.data.get("switch", False))

    @property
    def architecture(self) -> str:
        return str(self.data["architecture"])

    def supported_clocks(self) -> dict[int, list[int]]:
        """Graphics clocks in MHz, highest first, of each memory clock in MHz, highest first.

        The lowest memory clock of a board that has several is its idle state, which supports the lower graphics
        clocks only (a T4 at 405 MHz memory stops at 645 MHz).
        """
        clocks = self.data["clocks"]
        low, raster = clocks["graphics_min"], clocks["raster"]
        high = clocks.get("raster_top", clocks["graphics_max"])  # a V100S stops half a step below its raster
        steps = int((high - low) / raster)
        every = sorted({int(high - step * raster) for step in range(steps + 1)} | {low}, reverse=True)
        memory = sorted(clocks["memory"], reverse=True)
        supported = {mhz: every for mhz in memory}
        if len(memory) > 1:
            supported[memory[-1]] = [mhz for mhz in every if mhz <= 645]
        return supported


@dataclass(frozen=True)
class Device:
    """One device on a machine's bus. `bus_id` as sysfs writes it."""

    model: Model
    index: int
    bus_id: str
    uuid: str
    serial: str


@functools.cache
def models() -> dict[str, Model]:
    text = (resources.files("gpuprep.sim") / "gpus.yml").read_text(encoding="utf-8")
    return {key: Model(key, data) for key, data in yaml.safe_load(text).items()}


def check(keys: Sequence[str]) -> tuple[str, ...]:
    """The model names of a machine, `none` taken away; raises SimError for one that is not in gpus.yml."""
    wanted = tuple(key for key in keys if key != "none")
    for key in wanted:
        if key not in models():
            raise SimError(f"no simulated GPU {key!r}", f"known: {', '.join(models())}, none")
    return wanted


def devices(machine: str, keys: Sequence[str]) -> list[Device]:
    """The devices of a machine: UUIDs and serial numbers depend on the machine's name only, so they never change."""
    gpus = []
    for index, key in enumerate(keys):
        digest = hashlib.sha256(f"{machine}/{index}/{key}".encode()).hexdigest()
        uuid = f"GPU-{digest[:8]}-{digest[8:12]}-{digest[12:16]}-{digest[16:20]}-{digest[20:32]}"
        serial = f"{int(digest[32:44], 16) % 10**13:013d}"
        gpus.append(Device(models()[key], index, f"0000:00:{FIRST_SLOT + index:02x}.0", uuid, serial))
    return gpus
