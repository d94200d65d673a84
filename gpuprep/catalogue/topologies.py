"""How boards are connected: NVLinks by family (topologies.yml), speed of healthy links and memory (bandwidths.yml).

family(board)            the NVLinks of a board, or None where the catalogue does not know them
machine(...)             the known wiring that best fits the links seen between several GPUs
healthy_memory_percents(board)      per cent of its bandwidth that a healthy board's memory reaches
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from gpuprep.catalogue import datafile
from gpuprep.catalogue.boards import Board, boards, on_machines

NVML_MOST_LINKS = 36  # nvml.h: NVML_NVLINK_MAX_LINKS


@dataclass(frozen=True)
class Healthy:
    """What healthy boards reach, in per cent of what memory or link carries, and on how many machines that rests."""

    percent: float
    machines: int


@dataclass(frozen=True)
class Machine:
    """A machine as its maker wires it."""

    name: str  # "eight GPUs behind switches"
    gpus: int  # how many of the board it has
    row: tuple[int, ...]  # links of a GPU to each of the others, most first; a single figure stands for all

    @property
    def each(self) -> int | None:
        """The links of every pair; None where pairs differ."""
        return self.row[0] if len(set(self.row)) == 1 else None


@dataclass(frozen=True)
class Family:
    """Boards with the same NVLinks."""

    key: str  # "hgx_a100"
    boards: tuple[str, ...]
    joined: str  # "switch" | "mesh" | "bridge" | "none"
    links: int | None  # of a GPU; None: not known
    gb_per_s: float | None  # of one link in one direction
    bridge_links: int | None  # of one bridge
    machines: tuple[Machine, ...]
    healthy: Healthy | None  # a copy between two
    unverified: tuple[str, ...]


@dataclass(frozen=True)
class HealthyMemoryPercents:
    """Per cent of memory_gb_per_s by what is done: "copy", "read", "triad"."""

    percent: Mapping[str, float]
    without_ecc: Mapping[str, float]
    bus_gb_per_s: float | None
    source: str
    machines: int


@dataclass(frozen=True)
class Narrow:
    """A cloud's machine that wires a board with fewer lanes than the board has."""

    width: int
    where: str  # "AWS g4dn"


@cache
def families() -> Mapping[str, Family]:
    return {key: _family(key, entry) for key, entry in _data("topologies")["families"].items()}


def _family(key: str, entry: dict[str, Any]) -> Family:
    return Family(
        key=key,
        boards=tuple(entry["boards"]),
        joined=entry["joined"],
        links=0 if entry["joined"] == "none" else entry.get("links"),
        gb_per_s=entry.get("gb_per_s"),
        bridge_links=entry.get("bridge_links"),
        machines=tuple(
            Machine(machine_entry["name"], machine_entry["gpus"], tuple(machine_entry["row"]))
            for machine_entry in entry["machines"]
        ),
        healthy=_healthy(_data("bandwidths")["peers"].get(key)),
        unverified=tuple(entry.get("unverified", ())),
    )


def family(board: Board | None) -> Family | None:
    """Of boards that could not be told apart, their common family."""
    keys = board.key.split(" or ") if board else []
    family_keys = {candidate.key for key in keys for candidate in families().values() if key in candidate.boards}
    return families()[family_keys.pop()] if len(family_keys) == 1 else None


def most_links(board: Board | None) -> int:
    """NVLinks that NVML can list of a board: those of its chip, of which some may lead nowhere (A800, H100 PCIe).

    By the boards of the same compute capability; where none of them has NVLinks, or no board is known, NVML's own
    maximum.
    """
    capability = board.model.compute_capability if board else ""
    alike = [
        candidate.links or 0
        for candidate in families().values()
        if any(boards()[key].model.compute_capability == capability for key in candidate.boards)
    ]
    return max(alike, default=0) or NVML_MOST_LINKS


def machine(
    family: Family, rows: Mapping[int, Sequence[int]], gpus: int, nvswitches: int = 0, *, some: bool = False
) -> Machine | None:
    """The known wiring that matches the most pairs of GPUs; of several that match as many, the one with most links.

    `rows` has the links from each GPU to the others, `gpus` is how many are there. A mesh or a bridge of four is
    considered only where so many GPUs are there, with `some` also where only some of them are; of GPUs behind switches
    any number may be visible.
    """
    fitting = [each for each in family.machines if _considered(family, each, gpus, nvswitches, some=some)]
    return max(fitting, key=lambda each: (_agreeing(each, rows, gpus), sum(wired_row(each, gpus))), default=None)


def part_of(family: Family, links: Collection[int], gpus: int, nvswitches: int = 0) -> Machine | None:
    """The mesh of which a container or a job sees some GPUs: each pair has exactly its links. `links`: of the pairs."""
    meshes = [each for each in family.machines if len(each.row) > 1 and len(set(each.row)) == 1 and gpus < each.gpus]
    seen = set(links)
    return next((each for each in meshes if not nvswitches and seen == {each.row[0]}), None)


def _considered(family: Family, each: Machine, gpus: int, nvswitches: int, *, some: bool) -> bool:
    if len(each.row) == 1:
        return family.joined == "switch"
    return not nvswitches and (each.gpus == gpus or (some and each.gpus > gpus))


def _agreeing(each: Machine, rows: Mapping[int, Sequence[int]], gpus: int) -> int:
    """How many links of pairs are as wired, over all GPUs."""
    wired = wired_row(each, gpus)
    pairs = [both for row in rows.values() for both in zip(sorted(row, reverse=True), wired, strict=False)]
    return sum(1 for seen, expected in pairs if seen == expected)


def wired_row(each: Machine, gpus: int) -> tuple[int, ...]:
    """The links of one GPU to each of `gpus` - 1 others, most first."""
    return each.row if len(each.row) > 1 else each.row * max(gpus - 1, 1)


def wired_with(board: Board | None) -> Narrow | None:
    """How a cloud is known to wire this board with fewer lanes than it has."""
    wiring = _data("topologies")["wired_with"].get(board.key) if board else None
    return Narrow(wiring["width"], wiring["where"]) if wiring else None


def is_chip_to_chip(board: Board | None) -> bool:
    """Joined to its host by NVLink-C2C, and not by PCIe."""
    return board is not None and board.key in _data("topologies")["chip_to_chip"]


def healthy_memory_percents(board: Board | None) -> HealthyMemoryPercents | None:
    entry = _data("bandwidths")["memory"].get(board.key) if board else None
    if entry is None:
        return _shared_memory(board) if board else None
    kinds = {kind: float(entry[kind]) for kind in ("copy", "read", "triad", "write") if kind in entry}
    without_ecc, bus, machines = entry.get("without_ecc", {}), entry.get("bus_gb_per_s"), entry.get("machines", 0)
    return HealthyMemoryPercents(kinds, without_ecc, bus, entry["source"], machines)


def _shared_memory(board: Board) -> HealthyMemoryPercents | None:
    """Of boards that could not be told apart, the lower of their figures, where all have some."""
    keys = board.key.split(" or ")
    entries = [_data("bandwidths")["memory"].get(key) for key in keys]
    if len(keys) < 2 or None in entries:
        return None
    kinds = {
        kind: float(min(entry[kind] for entry in entries))
        for kind in ("copy", "read", "triad")
        if all(kind in entry for entry in entries)
    }
    machines = min(entry.get("machines", 0) for entry in entries)
    return HealthyMemoryPercents(kinds, {}, None, entries[0]["source"], machines)


def healthy_pcie(generation: int, direction: str) -> Healthy | None:
    """Of what a PCIe link carries, that copies "h2d" or "d2h" reach; None: no such generation."""
    entry = _data("bandwidths")["host"].get(generation)
    return _healthy({**entry, "percent": entry[direction]}) if entry else None


def healthy_chip_to_chip(board: Board) -> Healthy | None:
    """Of what NVLink-C2C carries, that copies in one direction reach."""
    entry = _data("bandwidths")["chip_to_chip"].get(board.key)
    return _healthy({**entry, "percent": 100 * entry["gb_per_s"] / chip_to_chip_carries()}) if entry else None


def _healthy(entry: Mapping[str, Any] | None) -> Healthy | None:
    return Healthy(float(entry["percent"]), entry.get("machines", 0)) if entry else None


def chip_to_chip_carries() -> float:
    """GB/s that NVLink-C2C carries in one direction."""
    return float(_data("bandwidths")["chip_to_chip_carries"])


@cache
def _data(name: str) -> dict[str, Any]:
    return datafile.read(Path(__file__).parent / f"{name}.yml")


# ---------------------------------------------------------------- collectives of NCCL

# How fast NCCL's collectives must be: nccl.yml.


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
    entry = _nccl()["links"].get(compute_capability)
    return LinkSpeed(entry["carries"], entry.get("at_most", entry["carries"])) if entry else None


def floor(way: str, compute_capability: str, operation: str, gpus: int) -> NcclFloor:
    """Of `way` "switch", "multicast", "direct" or "pcie". Multicast without a figure for so many GPUs: as the rings."""
    data = _nccl()
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
def _nccl() -> dict[str, Any]:
    return datafile.read(Path(__file__).parent / "nccl.yml")
