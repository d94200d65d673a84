"""Measurements of the nccl probe for tests: what healthy machines reach, by the number of GPUs and their links."""

from __future__ import annotations

import itertools
from typing import Any

from builders import resolved
from judgedbandwidth import any_host, figures

from gpuprep import catalogue
from gpuprep.agent.compute import ncclplan
from gpuprep.records import Finding, Missing

DEVICES = {"h200": "2335", "h100": "2330", "a100": "20b0", "v100": "1db1", "t4": "1eb8", "b200": "2901"}
LATENCY = 12e-6


def machine(
    model: str = "h200",
    gpus: int = 2,
    *,
    nvlinks: int = 18,
    busbw: float = 362.0,
    quick: bool = False,
    most: int = ncclplan.SIZES[-1],
) -> dict[str, Any]:
    """`nvlinks`: those that are up from each GPU to each other one, or to switches. `busbw`: GB/s of large messages."""
    return {
        "quick": quick,
        "version": "2.28.9",
        "libraries": [{"name": "nccl", "path": "/opt/gpuprep/nccl/current/lib/libnccl.so.2", "version": "2.28.9"}],
        "bindings": {},
        "environment": [],
        "gpus": [gpu(index, DEVICES[model]) for index in range(gpus)],
        "links": [
            {"from": one, "to": other, "nvlinks": nvlinks} for one, other in itertools.permutations(range(gpus), 2)
        ],
        "most_bytes": most,
        "chosen": {"channels": 24, "nvls_channels": 0, "transports": [{"name": "P2P/CUMEM", "count": 48}]},
        "warnings": [],
        "points": points(gpus, busbw, quick=quick, most=most),
        "stopped": None,
        "error": None,
    }


def gpu(index: int, device: str) -> dict[str, Any]:
    board = catalogue.board(device, power_limit_watts=400) or catalogue.board(device)
    generation = min(4, (board.pcie_generation if board else None) or 4)
    return {
        "index": index,
        "uuid": f"GPU-{index}",
        "name": "GPU",
        "pci_device_id": device,
        "pci_subsystem_id": "",
        "other_processes": [],
        "pcie": {"generation": generation, "width": 16, "max_generation": generation, "max_width": 16},
        "graphics_clock_mhz": board.boost_mhz if board else 1000,
        "power_watts": 0.6 * ((board.power_watts if board else None) or 100.0),
        "temperature_c": 45,
        "event_reasons": 0,
    }


def points(gpus: int, busbw: float, *, quick: bool = False, most: int = ncclplan.SIZES[-1]) -> list[dict[str, Any]]:
    return [
        point(operation, size, gpus, busbw) for operation in ncclplan.OPERATIONS for size in ncclplan.sizes(quick, most)
    ]


def point(operation: str, size: int, gpus: int, busbw: float, **changes: Any) -> dict[str, Any]:
    fitted = ncclplan.fitted(operation, size, gpus)
    seconds = LATENCY + fitted * ncclplan.bus_factor(operation, gpus) / busbw / 1e9
    return {**ncclplan.point(operation, fitted, gpus, seconds, wrong=0), "repeats": 20, **changes}


Values = dict[str, Any]


def judged(values: Values | Missing, profile: str = "h200") -> list[Finding]:
    return figures("nccl", values, resolved(profile, gpus=[profile]), any_host())
