"""The gemm probe's measurements for tests: a healthy GPU, of which a test changes what it is about."""

from __future__ import annotations

import dataclasses
from typing import Any

import builders

from gpuprep import catalogue
from gpuprep.checks import probes, verdict
from gpuprep.desired.state import Wanted, resolve
from gpuprep.records import Finding, ProbeResult, Source, Status

ACCUMULATE = {"fp64": "fp64", "int8": "int32"}
LIBRARY = "/usr/local/cuda-12.4/targets/x86_64-linux/lib/libcublasLt.so.12.4.5.8"


def gemm(dtype: str, tflops: float, **changed: Any) -> dict[str, Any]:
    """One product of docs/records.md, right and steady."""
    return {
        "dtype": dtype, "accumulate": ACCUMULATE.get(dtype, "fp32"), "m": 8192, "n": 8192, "k": 8192, "layout": "TN",
        "tflops": tflops, "rel_stdev_percent": 0.7, "iterations": 50, "microseconds": 2 * 8192**3 / tflops / 1e6,
        "algorithm": {"tile": "TILE_128x256", "tile_m": 128, "tile_n": 256, "tile_k": None, "stages": 4, "split_k": 1,
                      "waves": 18.96, "candidates": 8},
        "graphics_clock_mhz": 1410, "memory_clock_mhz": 1593, "power_watts": 380.0, "temperature_c": 55,
        "event_reasons": 0, "exact": True, "max_relative_error": 0.0004, "error_tolerance": 0.01, "telemetry": None,
        "sustained": None, "error": None,
        **changed,
    }  # fmt: skip


def gpu(pci_device_id: str, gemms: list[dict[str, Any]], index: int = 0, **changed: Any) -> dict[str, Any]:
    board = catalogue.board(pci_device_id)
    own = board.power_watts if board else None
    return {
        "index": index, "uuid": f"GPU-{index}", "name": "NVIDIA", "pci_device_id": pci_device_id, "sms": None,
        "l2_mib": 40, "max_graphics_clock_mhz": 1410, "power_limit_watts": own or 400, "other_processes": [],
        "gemms": gemms, "error": None, **changed,
    }  # fmt: skip


def values(*gpus: dict[str, Any], **changed: Any) -> dict[str, Any]:
    return {
        "quick": True,
        "libraries": [{"name": "cublasLt", "path": LIBRARY, "version": "12.4.5"}],
        "toolkit": {"nvcc": "/usr/local/cuda/bin/nvcc", "version": "12.4",
                    "library_dirs": ["/usr/local/cuda-12.4/targets/x86_64-linux/lib"]},
        "bindings": {}, "gpus": list(gpus), "together": None, **changed,
    }  # fmt: skip


def judge(profile: str, measured: Any, model: str = "") -> list[Finding]:
    """The findings of the gemm probe alone, by a shipped profile."""
    snapshot = dataclasses.replace(builders.bare_snapshot(gpus=(model or profile,)), source=Source.MEASURED)
    wanted: Wanted = resolve(builders.load(profile), snapshot, judging=True)
    result = ProbeResult("gemm", Source.MEASURED, measured, 10.0)
    return probes.findings(wanted, snapshot, [result], ["gemm"], builders.load(profile).thresholds)


def statuses(found: list[Finding]) -> dict[str, str]:
    return {finding.key: finding.status.value for finding in found}


def one(found: list[Finding], key: str) -> Finding:
    return next(finding for finding in found if finding.key == key)


def overall(profile: str, measured: Any, model: str = "") -> Status:
    snapshot = builders.bare_snapshot(gpus=(model or profile,))
    wanted = resolve(builders.load(profile), snapshot, judging=True)
    return verdict.judge(wanted, judge(profile, measured, model)).status
