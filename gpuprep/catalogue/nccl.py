"""How fast NCCL's collectives must be: nccl.yml."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from gpuprep.catalogue import datafile
from gpuprep.catalogue.boards import on_machines


@dataclass(frozen=True)
class LinkSpeed:
    """One NVLink in one direction, GB/s."""

    carries: float  # what floors are shares of
    at_most: float  # what it can carry


@dataclass(frozen=True)
class NcclFloor:
    """`percent` of what the links carry; below `least` (None: checks/floors.py) it is a fault whatever the way is."""

    percent: float
    source: str
    least: float | None
    borrowed: bool = False  # all-reduce's: of this collective on so many GPUs no figure is known


@cache
def link_speed(compute_capability: str) -> LinkSpeed | None:
    """None: the catalogue does not know it."""
    entry = _data()["links"].get(compute_capability)
    return LinkSpeed(entry["carries"], entry.get("at_most", entry["carries"])) if entry else None


def floor(way: str, compute_capability: str, operation: str, gpus: int) -> NcclFloor:
    """Of `way` "switch", "multicast", "direct" or "pcie". Multicast without a figure for so many GPUs: as the rings."""
    data = _data()
    if way == "pcie":
        return _floor(data["pcie"])
    if way == "multicast":
        entry = data["multicast"].get(compute_capability, {}).get(gpus)
        return _floor(entry) if entry else floor("switch", compute_capability, operation, gpus)
    few = data["few"].get(way, {}).get(gpus, {}).get(operation)
    entry = data[way].get(compute_capability, data["other"])
    found = _floor(entry, few, gpus)
    own = data["known"].get(way, {}).get(compute_capability, {}).get(gpus, ())
    if operation == "all_reduce" or operation in own:
        return found
    return NcclFloor(found.percent, f"{found.source}, of all_reduce", None, borrowed=True)


def _floor(entry: Mapping[str, Any], few: float | None = None, gpus: int = 0) -> NcclFloor:
    percent, source = float(entry["percent"]), f"{on_machines(entry.get('machines', 0))}, {entry['source']}"
    if few is not None and few != 1:
        percent, source = round(few * percent), f"{source}; {gpus} GPUs reach {few:g} of it"
    return NcclFloor(percent, source, entry.get("least"))


@cache
def _data() -> dict[str, Any]:
    return datafile.read(Path(__file__).parent / "nccl.yml")
