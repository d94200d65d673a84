"""Boards and their models: gpus.yml, and the speed a board must reach: floors.yml.

board("20b2", subsystem_id="147f")     the board with these PCI ids, or None where it cannot be told
board_of(facts)                        the board of a GPU that NVML has read
board_in(snapshot, gpu)                the board of a GPU that a measurement names
board_like(name, "8.0", 40960, 108)    what known boards like this one share, for a name that is not known
"""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from gpuprep.catalogue import datafile
from gpuprep.records import ClockPair, GpuFacts, Missing, Snapshot
from gpuprep.records.evidence.shared import NamedGpu

MASKED = ("", "0000")  # what a virtual machine may show instead of a PCI id
# NVML's total is without what ECC keeps (1/16 of GDDR6), and before R510 without what the driver reserves.
MEMORY_TOLERANCE = 0.1
POWER_TOLERANCE = 0.03
INSTANCE = re.compile(r"\bMIG\b", re.IGNORECASE)  # "NVIDIA A100-SXM4-40GB MIG 1g.5gb"
SEVERAL = " or "  # between the keys of boards that could not be told apart


@dataclass(frozen=True)
class Model:
    """A group of boards that one profile serves. None: the catalogue does not know the figure."""

    key: str  # "t4"
    title: str  # "T4"
    architecture: str  # "turing"
    compute_capability: str  # "7.5"
    profile: str  # the shipped profile for it: its own, or "base"
    nvenc_engines: int | None
    nvdec_engines: int | None
    fma_per_clock_per_sm: Mapping[str, int | None]  # by data type; peak = SMs x FMA x 2 x clock
    ecc: str = ""  # "enabled" | "disabled" | "none" as its boards ship; "": NVML tells
    contains_errors: bool = False  # an uncorrectable error ends only the programs that met it
    free_clocks: bool = False  # the highest clock is far above the boost clock
    memory_repair_known: bool = True
    unverified: tuple[str, ...] = ()  # fields remembered, not read in a source


@dataclass(frozen=True)
class NvLink:
    links: int
    how: str = ""  # "switch" | "bridge" | "" where no source says


def on_machines(count: int) -> str:
    """ "3 machines": how many a figure of healthy boards rests on."""
    return f"{count} machine{'s' if count > 1 else ''}" if count else "no machine of this kind was measured"


@dataclass(frozen=True)
class BoardFloor:
    """The lowest speed of a healthy board, as published measurements have it."""

    percent: float  # of the peak at the boost clock
    source: str  # "published 74 to 88 %, 4 sources"
    machines: int = 0  # that stand behind it
    usual: float | None = None  # the median of what was published of healthy boards, in per cent of the same peak

    @property
    def words(self) -> str:
        return f"{on_machines(self.machines)}, {self.source}"


@dataclass(frozen=True)
class Board:
    """One board variant. None: the catalogue does not know the figure."""

    key: str  # "a100_sxm4_80"
    model: Model
    name: str  # "A100 SXM4 80 GB"
    nvml_names: tuple[str, ...]
    pci_device_ids: tuple[str, ...]
    subsystem_ids: tuple[str, ...]  # NVIDIA's half; () where the device id says enough
    clocks: ClockPair | None  # what `tuning.clocks: max` asks for
    sms: int | None
    boost_mhz: int | None
    memory_mhz: int | None
    memory_gb_per_s: float | None
    memory_mib: int | None
    l2_mib: int | None
    power_watts: float | None  # the power limit that it comes with
    power_minimum_watts: float | None
    power_maximum_watts: float | None
    pcie_generation: int | None
    pcie_width: int | None
    video_mhz: int | None
    nvlink: NvLink | None
    temperatures_c: Mapping[str, int] | None  # max_operating, slowdown, shutdown, memory_max_operating
    sources: Mapping[str, Sequence[str]]  # key of `sources` in gpus.yml ► the fields it gives
    unverified: tuple[str, ...]  # fields remembered from datasheets, not read in a source
    floors: Mapping[str, BoardFloor]  # by threshold: "fp16" ► of fp16_percent_of_peak

    @property
    def is_several(self) -> bool:
        """Whether this is what several boards share that could not be told apart."""
        return SEVERAL in self.key


@cache
def models() -> Mapping[str, Model]:
    data = _data("gpus")
    by_key = {}
    for key, entry in data["models"].items():
        architecture = data["architectures"][entry["architecture"]]
        by_key[key] = Model(
            key=key,
            title=entry["title"],
            architecture=entry["architecture"],
            compute_capability=entry.get("compute_capability", architecture["compute_capability"]),
            profile=entry.get("profile", "base"),
            nvenc_engines=entry.get("nvenc_engines"),
            nvdec_engines=entry.get("nvdec_engines"),
            fma_per_clock_per_sm=entry.get("fma_per_clock_per_sm", architecture["fma_per_clock_per_sm"]),
            ecc=entry.get("ecc", ""),
            contains_errors=entry.get("contains_errors", False),
            free_clocks=entry.get("free_clocks", False),
            memory_repair_known=entry.get("memory_repair") != "unknown",
            unverified=tuple(entry.get("unverified", ())),
        )
    return by_key


@cache
def boards() -> Mapping[str, Board]:
    """All boards by key."""
    return {key: _board(key, entry) for key, entry in _data("gpus")["boards"].items()}


@cache
def mig_profiles(board_key: str) -> tuple[str, ...]:
    """The MIG profiles of a board, "1g.10gb"; () where the catalogue does not know them."""
    rows = _data("gpus")["mig"]
    return next((tuple(row["profiles"]) for row in rows if board_key in row["boards"]), ())


def has_mig(model: Model) -> bool | None:
    """Whether a model has MIG, by its chip (NVIDIA's MIG guide, "Supported GPUs"). None: some of its chip have it."""
    major, minor = (int(part) for part in model.compute_capability.split("."))
    return None if major >= 12 else (major, minor) == (8, 0) or major in (9, 10)


@lru_cache(maxsize=1024)
def board(
    device_id: str,
    subsystem_id: str = "",
    name: str = "",
    memory_mib: float | None = None,
    sms: int | None = None,
    power_limit_watts: float | None = None,
) -> Board | None:
    """The board with these PCI ids. `power_limit_watts` is the default limit, not the present one.

    Where a device id is several boards and the subsystem id does not decide, what the board reports decides. Boards of
    one model that stay possible give one with the figures that they share; boards of several models give None.
    """
    candidates = _by_ids(device_id.lower(), subsystem_id.lower()) if device_id.lower() not in MASKED else _by_name(name)
    if len(candidates) > 1:
        candidates = [candidate for candidate in candidates if _fits(candidate, memory_mib, sms, power_limit_watts)]
    return _shared(candidates)


def board_like(name: str, compute_capability: str, memory_mib: float | None, sms: int | None) -> Board | None:
    """For a board that the catalogue lacks (a cloud's own, an engineering sample): the figures that all known boards of
    this compute capability share that have as much memory and as many SMs; of those the ones of the model that the name
    has as a word, where there are some. None: there are none, or of several models.
    """
    if not memory_mib or not sms:
        return None
    alike = [
        candidate
        for candidate in boards().values()
        if candidate.model.compute_capability == compute_capability
        and candidate.memory_mib
        and candidate.sms
        and _fits(candidate, memory_mib, sms, None)
    ]
    words = re.split(r"[^a-z0-9]+", name.lower())
    return _shared([candidate for candidate in alike if candidate.model.title.lower() in words] or alike)


def board_of(gpu: GpuFacts, device_id: str = "", subsystem_id: str = "") -> Board | None:
    """The board of a GPU, from all that NVML read, and where NVML masks its PCI ids from those read elsewhere."""
    subsystem, memory, watts = gpu.pci_subsystem_id, gpu.memory_total_mib, gpu.power.default_watts
    return board(
        gpu.pci_device_id if gpu.pci_device_id not in MASKED else device_id,
        subsystem if isinstance(subsystem, str) and subsystem not in MASKED else subsystem_id,
        gpu.name,
        memory_mib=None if isinstance(memory, Missing) else memory,
        power_limit_watts=None if isinstance(watts, Missing) else watts,
    )


def board_in(snapshot: Snapshot | None, gpu: NamedGpu) -> Board | None:
    """By what NVML read of the same GPU; by the measurement alone where nothing fits it.

    An instance of a GPU that MIG cuts has the ids of the whole board: its figures are those of the part that NVML says
    it is (instance), and None where NVML does not say it.
    """
    device = gpu.pci_device_id.lower()
    read = () if snapshot is None or isinstance(snapshot.gpus, Missing) else snapshot.gpus
    facts = next((read_gpu for read_gpu in read if gpu.uuid and read_gpu.uuid == gpu.uuid), None)
    is_part = INSTANCE.search(gpu.name)
    if facts is not None and facts.pci_device_id.lower() == device:
        whole = board_of(facts, subsystem_id=gpu.pci_subsystem_id)
        return instance(whole, facts, gpu.name[is_part.end() :].strip()) if whole and is_part else whole
    if is_part:
        return None
    sms: int | None = getattr(gpu, "sms", None)
    return board(device, gpu.pci_subsystem_id, gpu.name, sms=sms)


def instance(whole: Board, facts: GpuFacts, profile: str) -> Board | None:
    """The part of a board that a MIG instance is: its multiprocessors, and its eighths of the memory and so of the
    memory's speed (NVIDIA's MIG guide). No engines and links: how they are shared is not known. The size of its
    memory is in NVML's list, beside that of the whole GPU. None: NVML does not list such an instance."""
    read = () if isinstance(facts.mig_devices, Missing) else facts.mig_devices
    part = next((device for device in read if device.profile == profile), None)
    total = facts.memory_total_mib
    if part is None or isinstance(total, Missing) or total <= 0:
        return None
    if isinstance(part.multiprocessors, Missing) or isinstance(part.memory_mib, Missing):
        return None
    eighths = round(8 * part.memory_mib / total)
    speed = whole.memory_gb_per_s
    return replace(
        whole, name=f"{whole.name}, MIG {profile}", sms=part.multiprocessors, memory_mib=None,
        memory_gb_per_s=None if speed is None else speed * eighths / 8, video_mhz=None, nvlink=None,
    )  # fmt: skip


def _by_ids(device_id: str, subsystem_id: str) -> list[Board]:
    candidates = [candidate for candidate in boards().values() if device_id in candidate.pci_device_ids]
    named = [candidate for candidate in candidates if subsystem_id in candidate.subsystem_ids]
    return named or candidates


def _by_name(name: str) -> list[Board]:
    """The boards that NVML calls so; where it calls none so, those of the model with this title."""
    wanted = _plain_name(name)
    if not wanted:
        return []
    every = boards().values()
    named = [candidate for candidate in every if wanted in map(_plain_name, candidate.nvml_names)]
    return named or [candidate for candidate in every if wanted == _plain_name(candidate.model.title)]


def _plain_name(name: str) -> str:
    """Drivers from R470 on put NVIDIA in front of some names."""
    return name.lower().removeprefix("nvidia ").removeprefix("tesla ").strip()


def _fits(candidate: Board, memory_mib: float | None, sms: int | None, watts: float | None) -> bool:
    return (
        _near(memory_mib, candidate.memory_mib, MEMORY_TOLERANCE)
        and _near(sms, candidate.sms, 0)
        and _near(watts, candidate.power_watts, POWER_TOLERANCE)
    )


def _near(read: float | None, known: float | None, tolerance: float) -> bool:
    return not read or not known or abs(read - known) <= tolerance * known


def _shared(alike: Iterable[Board]) -> Board | None:
    """What all of these boards are; the lowest of their floors."""
    every = list(alike)
    if len({variant.model.key for variant in every}) != 1:
        return None
    first, *others = every
    if not others:
        return first
    differing = {
        field.name: None
        for field in dataclasses.fields(Board)
        if any(getattr(variant, field.name) != getattr(first, field.name) for variant in others)
    }
    shared: dict[str, Any] = {
        "key": SEVERAL.join(variant.key for variant in every),
        "name": _common([variant.name for variant in every]) or first.model.title,
        **{name: tuple(dict.fromkeys(v for variant in every for v in getattr(variant, name))) for name in _LISTS},
        "floors": {
            dtype: min((variant.floors[dtype] for variant in every), key=lambda floor: floor.percent)
            for dtype in first.floors
            if all(dtype in variant.floors for variant in others)
        },
        "sources": {},
    }
    return dataclasses.replace(first, **{**differing, **shared})


def _common(names: Sequence[str]) -> str:
    """The words with which all begin: "A100 SXM4 80 GB"."""
    same = itertools.takewhile(lambda words: len(set(words)) == 1, zip(*(name.split() for name in names), strict=False))
    return " ".join(words[0] for words in same)


_LISTS = ("nvml_names", "pci_device_ids", "subsystem_ids", "unverified")
_FIGURES = ("sms", "boost_mhz", "memory_mhz", "memory_gb_per_s", "memory_mib", "l2_mib", "video_mhz")


def _board(key: str, entry: dict[str, Any]) -> Board:
    power, pcie = entry.get("power_watts", {}), entry.get("pcie", {})
    return Board(
        key=key,
        model=models()[entry["model"]],
        name=entry["name"],
        nvml_names=tuple(entry.get("nvml_names", ())),
        pci_device_ids=tuple(entry["pci_device_ids"]),
        subsystem_ids=tuple(entry.get("subsystem_ids", ())),
        clocks=ClockPair(**entry["clocks"]) if "clocks" in entry else None,
        power_watts=power.get("default"),
        power_minimum_watts=power.get("minimum"),
        power_maximum_watts=power.get("maximum"),
        pcie_generation=pcie.get("generation"),
        pcie_width=pcie.get("width"),
        nvlink=NvLink(**entry["nvlink"]) if "nvlink" in entry else None,
        temperatures_c=entry.get("temperatures_c"),
        sources=entry["sources"],
        unverified=tuple(entry.get("unverified", ())),
        floors={name: BoardFloor(**floor) for name, floor in _data("floors").get(key, {}).items()},
        **{name: entry.get(name) for name in _FIGURES},
    )


@cache
def _data(name: str) -> dict[str, Any]:
    return datafile.read(Path(__file__).parent / f"{name}.yml") or {}
