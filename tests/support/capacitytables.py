"""The table of streams, as a terminal shows it."""

from __future__ import annotations

import dataclasses
from typing import Any

from records_for_tests import measured as record_of

from gpuprep.records import ProbeResult, RunRecord, Source


def step(fps: float, sessions: int = 2, **changes: Any) -> dict[str, Any]:
    usual = {
        "sessions": sessions, "died": 0, "died_because": "", "fps": fps, "fps_each": [fps / sessions] * sessions,
        "frames": round(fps * 2), "seconds": 2.0, "start_seconds": 1.0, "encoder_utilization_percent": 10,
        "decoder_utilization_percent": 20, "gpu_utilization_percent": 5, "memory_used_mib": 900,
        "pcie_to_gpu_mb_per_s": 40.0, "pcie_from_gpu_mb_per_s": 10.0, "video_clock_mhz": 1500, "event_reasons": 0,
        "power_watts": 50.0, "temperature_c": 50, "cpu_percent": 20.0, "io_wait_percent": 0.0,
    }  # fmt: skip
    return {**usual, **changes}


GPU = {"index": 0, "uuid": "GPU-1", "name": "Tesla T4", "pci_device_id": "1eb8", "pci_subsystem_id": "12a2"}


PCIE = {"generation": 3, "width": 16, "max_generation": 3, "max_width": 16}


def series(kind: str, codec: str, preset: str | None, *steps: dict[str, Any], **changes: Any) -> dict[str, Any]:
    large = codec.endswith("-2160p")
    usual = {
        "gpu": GPU, "kind": kind, "codec": codec, "preset": preset, "width": 3840 if large else 1920,
        "height": 2160 if large else 1080, "outcome": "completed", "decisive_line": "", "steps": list(steps),
    }  # fmt: skip
    return {**usual, **changes}


def values(*every: dict[str, Any], **changes: Any) -> dict[str, Any]:
    gpu = {**GPU, "engines": {"nvenc": 1, "nvdec": 2}, "memory_total_mib": 15360, "pcie": PCIE, "error": None}
    return {"quick": False, "capacity": True, "gpu": GPU, "gpus": [gpu], "series": list(every), **changes}


LATE = {"kind": "encode", "codec": "h264", "preset": "p3", "frames": 75, "median_ms": 6.25, "p95_ms": 8.0, "how": "HOW"}


GOOD = {
    "codec": "h264", "preset": "p3", "encoder": "h264_nvenc", "asked_kbps": 5000, "bit_rate_kbps": 4900, "frames": 96,
    "psnr_db": 38.2, "xpsnr_db": {"missing": "not_installed", "detail": "this ffmpeg has no filter xpsnr"},
}  # fmt: skip


def shown(command: str = "capacity", source: Source = Source.MEASURED, **changes: Any) -> RunRecord:
    every = [
        series("decode", "h264", None, step(1400.0, 3, decoder_utilization_percent=99)),
        series("decode", "h264-2160p", None, step(350.0, 4, decoder_utilization_percent=99)),
        series("encode", "h264", "p3", step(560.0, encoder_utilization_percent=98)),
        series("encode", "av1", "p3", outcome="failed", decisive_line="Codec not supported"),
    ]
    made = values(*every, latency=[LATE], quality=[GOOD], **changes)
    whole = record_of("20261120-100000-abc123", 1.0)
    probed = (ProbeResult("throughput", source, made, 60.0),)
    return dataclasses.replace(whole, command=command, measurements=probed, source=source)
