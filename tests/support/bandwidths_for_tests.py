"""Bandwidth records of healthy machines of any board, for tests that break one thing in them."""

from __future__ import annotations

import itertools
from typing import Any

from builders import resolved, shipped
from judgedbandwidth import any_host, figures

from gpuprep import catalogue
from gpuprep.catalogue import Board, topologies
from gpuprep.checks.links import carries
from gpuprep.records import Finding, Snapshot, Status

SOUND_PEER = 0.85


def sound_gpu(board: Board, index: int = 0, **changes: Any) -> dict[str, Any]:
    """As fast as healthy boards are known to be; where nothing is known, near what memory and link carry."""
    memory, peak = topologies.healthy_memory_percents(board), board.memory_gb_per_s or 0.0
    share = {kind: (memory.percent.get(kind, 85.0) if memory else 85.0) / 100 for kind in ("copy", "read", "triad")}
    generation, width = board.pcie_generation or 5, board.pcie_width or 16
    link = {"generation": generation, "width": width, "max_generation": generation, "max_width": width}
    direct = topologies.healthy_chip_to_chip(board) if topologies.is_chip_to_chip(board) else None
    most = topologies.chip_to_chip_carries() if direct else carries(generation, width) or 0.0
    speeds = {way: percent_of(direct or topologies.healthy_pcie(generation, way), 80.0) / 100 * most
              for way in ("h2d", "d2h")}  # fmt: skip
    return {
        "index": index, "uuid": f"GPU-{index}", "name": board.name, "pci_device_id": board.pci_device_ids[0],
        "pci_subsystem_id": (*board.subsystem_ids, "")[0], "other_processes": [], "error": None,
        **{f"{kind}_gb_per_s": share[kind] * peak for kind in share},
        **{f"{way}_gb_per_s": speed for way, speed in speeds.items()},
        "graphics_clock_mhz": board.boost_mhz or 1500, "memory_clock_mhz": board.memory_mhz or 1000,
        "event_reasons": 0, "pcie": link, "pinned": True, "buffer_mib": 1024, **changes,
    }  # fmt: skip


def percent_of(healthy: topologies.Healthy | None, unknown: float = 100 * SOUND_PEER) -> float:
    return healthy.percent if healthy else unknown


def peers(gpus: list[dict[str, Any]], links: int, gb_per_s: float, **changes: Any) -> list[dict[str, Any]]:
    return [
        {"from": one["index"], "to": other["index"], "can_access": True, "gb_per_s": gb_per_s, "nvlinks": links,
         "error": None, **changes}
        for one, other in itertools.permutations(gpus, 2)
    ]  # fmt: skip


def machine(key: str, count: int = 1, links: int | None = None) -> dict[str, Any]:
    """`count` healthy GPUs of a board, `links` NVLinks between each two (default: as behind switches)."""
    board = catalogue.boards()[key]
    gpus = [sound_gpu(board, index) for index in range(count)]
    family = topologies.family(board)
    assert family is not None, f"{key} is in no family of catalogue/topologies.yml"
    if links is None:
        links = family.links or 0 if family.joined == "switch" else 0
    sound = percent_of(family.healthy) / 100
    pcie = SOUND_PEER * (carries(board.pcie_generation or 5, board.pcie_width or 16) or 0.0)
    speed = sound * links * (family.gb_per_s or 25.0) if links else pcie
    return {"quick": False, "gpus": gpus, "peers": peers(gpus, links, speed)}


def snapshot(virtualization: str = "none", **changes: Any) -> Snapshot:
    return any_host(virtualization=virtualization, **changes)


def judged(values: dict[str, Any], profile: str = "base", host: Snapshot | None = None) -> dict[str, Finding]:
    """All findings by key, with the shipped thresholds of a profile."""
    wanted = resolved("t4", gpus=["t4"])
    found = figures("bandwidth", values, wanted, host or snapshot(), shipped(profile).thresholds)
    assert len({one.key for one in found}) == len(found), "one finding a key"
    assert all(one.reason and one.remedy for one in found if one.status in (Status.FAIL, Status.WARN, Status.UNKNOWN))
    return {one.key: one for one in found}


def bad(found: dict[str, Finding]) -> dict[str, Status]:
    return {key: one.status for key, one in found.items() if one.status not in (Status.PASS, Status.SKIP)}


def nvlink_percent(board: Board) -> tuple[float, float | None]:
    """(what healthy boards of its family reach of their NVLinks, what one link carries in GB/s or None)."""
    family = topologies.family(board)
    return (percent_of(family.healthy), family.gb_per_s or 25.0) if family else (100 * SOUND_PEER, None)


def links_behind_switches(board: Board) -> int:
    family = topologies.family(board)
    return (family.links or 0) if family else 0


def has_healthy_memory(board: Board) -> bool:
    return bool(board.memory_gb_per_s) and topologies.healthy_memory_percents(board) is not None


def is_chip_to_chip(board: Board) -> bool:
    return topologies.is_chip_to_chip(board)


def profile_of(board: Board) -> str:
    return board.model.profile
