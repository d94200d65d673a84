"""What the bandwidth and cuDNN probes say on a finished host whose GPUs are as fast as they should be."""

from __future__ import annotations

import itertools
from typing import Any

from gpuprep import catalogue
from gpuprep.agent.compute.convolution import SHAPE
from gpuprep.agent.probes.cudnn import CASES
from gpuprep.checks.judges.bandwidth.peercopies import NVLINK_GB_PER_S
from gpuprep.checks.links import carries
from gpuprep.desired.state import Wanted

SOUND = {3: 0.8, 4: 0.82, 5: 0.88}  # of what a link of this generation carries


def bandwidth(wanted: Wanted) -> dict[str, Any]:
    gpus = [_gpu(index, gpu.pci_device_id) for index, gpu in enumerate(wanted.gpus)]
    peers = [_peer(one, other) for one, other in itertools.permutations(gpus, 2)]
    return {"quick": False, "libraries": [], "bindings": {}, "gpus": gpus, "peers": peers}


def _gpu(index: int, device: str) -> dict[str, Any]:
    facts = catalogue.board(device)
    assert facts is not None
    peak = facts.memory_gb_per_s or 0
    named = {"index": index, "uuid": f"GPU-{index}", "name": facts.name, "pci_device_id": device}
    figures = {"copy_gb_per_s": 0.8 * peak, "read_gb_per_s": 0.9 * peak, "triad_gb_per_s": 0.9 * peak}
    clocks = {"graphics_clock_mhz": facts.boost_mhz, "memory_clock_mhz": facts.memory_mhz, "event_reasons": 0}
    return {**named, "other_processes": [], "error": None, **figures, **clocks, **_host(facts), "buffer_mib": 2048}


def _host(facts: catalogue.Board) -> dict[str, Any]:
    generation, width = facts.pcie_generation or 5, facts.pcie_width or 16
    speed = SOUND[generation] * (carries(generation, width) or 0.0)
    link = {"generation": generation, "width": width, "max_generation": generation, "max_width": width}
    return {"h2d_gb_per_s": speed, "d2h_gb_per_s": speed, "pcie": link}


def _peer(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    links = min(_switched(gpu["pci_device_id"]) for gpu in (one, other))
    speed = 0.85 * links * NVLINK_GB_PER_S if links else 12.0
    pair = {"from": one["index"], "to": other["index"], "can_access": True}
    return {**pair, "gb_per_s": speed, "nvlinks": links, "error": None}


def _switched(device: str) -> int:
    board = catalogue.board(device, power_limit_watts=400)
    return board.nvlink.links if board and board.nvlink and board.nvlink.how == "switch" else 0


def cudnn(wanted: Wanted) -> dict[str, Any]:
    version = ".".join(wanted.cudnn.version.split(".")[:3])
    path = f"{wanted.cudnn_directory}/lib/libcudnn.so.{version}"
    right = {"max_relative_error": 0.0003, "error_tolerance": 0.01, "error": None}
    speed = {"fp16": {"microseconds": 400.0, "tflops": 18.5}, "fp32": {"microseconds": 1000.0, "tflops": 7.4}}
    return {
        "libraries": [{"name": "cudnn", "path": path, "version": version}],
        "bindings": {"nvidia-cudnn-frontend": "1.14.0"},
        "gpu": {"index": 0, "uuid": "GPU-0", "name": "GPU", "pci_device_id": wanted.gpus[0].pci_device_id},
        "convolutions": [
            {"dtype": d, "layout": layout, "shape": str(SHAPE), **right, **speed[d]} for d, layout in CASES
        ],
    }
