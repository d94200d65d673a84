"""The gemm probe's measurements for tests: a healthy GPU, of which a test changes what it is about."""

from __future__ import annotations

import dataclasses
from typing import Any

import builders

from gpuprep import catalogue, checks
from gpuprep.checks import judgement
from gpuprep.desired.state import Wanted, resolve
from gpuprep.records import Finding, ProbeResult, Source, Status

ACCUMULATE = {"fp64": "fp64", "int8": "int32"}
LIBRARY = "/usr/local/cuda-12.4/targets/x86_64-linux/lib/libcublasLt.so.12.4.5.8"


def gemm(dtype: str, tflops: float, **changed: Any) -> dict[str, Any]:
    """One product of docs/records.md, right and steady. `gpu` gives it the clocks and watts of its board."""
    m, n, k = (changed.get(size, 8192) for size in "mnk")
    return {
        "dtype": dtype, "accumulate": ACCUMULATE.get(dtype, "fp32"), "m": m, "n": n, "k": k, "layout": "TN",
        "tflops": tflops, "rel_stdev_percent": 0.7, "iterations": 50, "microseconds": _microseconds(m, n, k, tflops),
        "algorithm": {"tile": "TILE_128x256", "tile_m": 128, "tile_n": 256, "tile_k": None, "stages": 4, "split_k": 1,
                      "waves": 18.96, "candidates": 8},
        "graphics_clock_mhz": None, "memory_clock_mhz": None, "power_watts": None, "temperature_c": 55,
        "event_reasons": 0, "exact": True, "max_relative_error": 0.0, "error_tolerance": 0.01, "telemetry": None,
        "sustained": None, "error": None,
        **changed,
    }  # fmt: skip


def _microseconds(m: Any, n: Any, k: Any, tflops: Any) -> Any:
    """None where shape or speed is none."""
    numbers = all(isinstance(one, (int, float)) and one for one in (m, n, k, tflops))
    return 2 * m * n * k / tflops / 1e6 if numbers else None


def gpu(pci_device_id: str, gemms: list[dict[str, Any]], index: int = 0, **changed: Any) -> dict[str, Any]:
    board = catalogue.board(pci_device_id)
    own = (board.power_watts if board else None) or 400
    usual = {
        "graphics_clock_mhz": (board.boost_mhz if board else None) or 1410,
        "memory_clock_mhz": (board.memory_mhz if board else None) or 1593,
        "power_watts": 0.95 * changed.get("power_limit_watts", own),
    }
    for one in gemms:
        one.update({key: value for key, value in usual.items() if one[key] is None})
    return {
        "index": index, "uuid": f"GPU-{index}", "name": "NVIDIA", "pci_device_id": pci_device_id, "sms": None,
        "l2_mib": 40, "max_graphics_clock_mhz": usual["graphics_clock_mhz"], "power_limit_watts": own,
        "other_processes": [], "gemms": gemms, "error": None, **changed,
    }  # fmt: skip


def values(*gpus: dict[str, Any], **changed: Any) -> dict[str, Any]:
    return {
        "quick": True,
        "libraries": [{"name": "cublasLt", "path": LIBRARY, "version": "12.4.5"}],
        "toolkit": {"nvcc": "/usr/local/cuda/bin/nvcc", "version": "12.4",
                    "library_dirs": ["/usr/local/cuda-12.4/targets/x86_64-linux/lib"]},
        "bindings": {}, "gpus": list(gpus), "together": None, **changed,
    }  # fmt: skip


def judge(profile: str, measured: Any, model: str = "", absent: bool = False) -> list[Finding]:
    """The findings of the gemm probe alone, by a shipped profile. With `absent`, also of types that it lacks."""
    snapshot = dataclasses.replace(builders.bare_snapshot(gpus=(model or profile,)), source=Source.MEASURED)
    wanted: Wanted = resolve(builders.load(profile), snapshot, judging=True)
    result = ProbeResult("gemm", Source.MEASURED, measured, 10.0)
    thresholds = builders.load(profile).thresholds
    host = dataclasses.replace(snapshot, pci_gpus=())  # these figures are of any host
    found = checks.compare_figures(wanted, host, [result], asked=["gemm"], thresholds=thresholds)
    return [one for one in found if absent or not one.reason.endswith("it was not measured")]


def statuses(found: list[Finding]) -> dict[str, str]:
    return {finding.key: finding.status.value for finding in found}


def one(found: list[Finding], key: str) -> Finding:
    return next(finding for finding in found if finding.key == key)


def overall(profile: str, measured: Any, model: str = "") -> Status:
    snapshot = builders.bare_snapshot(gpus=(model or profile,))
    wanted = resolve(builders.load(profile), snapshot, judging=True)
    return judgement.verdict_of(wanted, judge(profile, measured, model)).status
