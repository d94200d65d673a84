"""Values of probes as docs/records.md describes them, for an H200 and a T4."""

from __future__ import annotations

import base64
import math
import struct
import zlib
from functools import cache
from typing import Any

H200: dict[str, Any] = {
    "index": 0,
    "uuid": "GPU-6f1d52a4-0000-4000-8000-3c5b1f0a2e77",
    "name": "NVIDIA H200",
    "pci_device_id": "2335",
}
T4: dict[str, Any] = {
    "index": 0,
    "uuid": "GPU-0aa1d4c2-0000-4000-8000-9d1c5e3b7f10",
    "name": "Tesla T4",
    "pci_device_id": "1eb8",
}
LT = {"name": "cublasLt", "path": "/usr/local/cuda-13.0/lib64/libcublasLt.so.13.1.0.3", "version": "13.1.0"}


def telemetry(clock: int, watts: float, *, seconds: float = 20.0, hz: float = 5.0, top: int = 1980) -> dict[str, Any]:
    """A clock that falls from `top` to `clock` as the power rises to `watts`; one reading failed."""
    times = [round(step / hz, 3) for step in range(int(seconds * hz))]
    settled = [1 - math.exp(-moment / (seconds / 8)) for moment in times]
    wave = [math.sin(moment * 2.3) for moment in times]
    power: list[float | None] = [
        round(0.35 * watts + 0.65 * watts * s + w * 2, 1) for s, w in zip(settled, wave, strict=True)
    ]
    power[len(power) // 2] = None
    zero = [0] * len(times)
    return {
        "hz": hz,
        "seconds": times,
        "graphics_clock_mhz": [
            round((top - (top - clock) * s + w * 8) / 15) * 15 for s, w in zip(settled, wave, strict=True)
        ],
        "memory_clock_mhz": [3201] * len(times),
        "video_clock_mhz": [1500] * len(times),
        "power_watts": power,
        "temperature_c": [round(38 + 26 * (1 - math.exp(-moment / (seconds / 3)))) for moment in times],
        "event_reasons": [4 if s > 0.5 else 0 for s in settled],
        "gpu_utilization_percent": [100] * len(times),
        "encoder_utilization_percent": zero,
        "decoder_utilization_percent": zero,
    }


def gemm(
    dtype: str, size: tuple[int, int, int], tflops: float, clock: int, watts: float, **changes: Any
) -> dict[str, Any]:
    m, n, k = size
    accumulate = {"fp64": "fp64", "int8": "int32"}.get(dtype, "fp32")
    tiles = math.ceil(m / 128) * math.ceil(n / 256)
    return {
        "dtype": dtype,
        "accumulate": accumulate,
        "m": m,
        "n": n,
        "k": k,
        "layout": "TN",
        "tflops": tflops,
        "rel_stdev_percent": 0.7,
        "iterations": 50,
        "microseconds": round(2e-6 * m * n * k / tflops, 1),
        "algorithm": {
            "tile": "TILE_128x256", "tile_m": 128, "tile_n": 256, "tile_k": None, "stages": 4, "split_k": 1,
            "waves": round(tiles / changes.pop("sms", 132), 3), "candidates": 8,
        },
        "graphics_clock_mhz": clock,
        "memory_clock_mhz": 3201,
        "power_watts": watts,
        "temperature_c": 55,
        "event_reasons": 4,
        "exact": True,
        "max_relative_error": 0.0004,
        "error_tolerance": 0.01,
        "telemetry": telemetry(clock, watts, seconds=2, hz=20),
        "sustained": None,
        "error": None,
        **changes,
    }  # fmt: skip


def sustained(tflops: float, clock: int, watts: float, top: int = 1980) -> dict[str, Any]:
    return {
        "seconds": 20.0, "tflops": tflops, "graphics_clock_mhz": clock, "power_watts": watts, "temperature_c": 64,
        "event_reasons": 4, "telemetry": telemetry(clock, watts, top=top),
    }  # fmt: skip


def h200_gemm() -> dict[str, Any]:
    big, square = (8192, 8192, 8192), (4096, 4096, 4096)
    return {
        "quick": False,
        "libraries": [LT],
        "toolkit": {
            "nvcc": "/usr/local/cuda/bin/nvcc",
            "version": "13.0",
            "library_dirs": ["/usr/local/cuda-13.0/lib64"],
        },
        "bindings": {"nvmath-python": "1.0.0", "cuda-bindings": "13.0.3", "cuda-core": "1.2.2"},
        "gpus": [
            {
                **H200,
                "sms": 132,
                "l2_mib": 60,
                "max_graphics_clock_mhz": 1980,
                "power_limit_watts": 700,
                "other_processes": [],
                "error": None,
                "gemms": [
                    gemm("fp64", square, 56.4, 1755, 640.0),
                    gemm("fp32", square, 51.3, 1980, 520.0),
                    gemm("tf32", big, 397.0, 1650, 688.0),
                    gemm("fp16", square, 720.0, 1710, 672.0),
                    gemm("fp16", big, 727.0, 1470, 699.0),
                    gemm("bf16", square, 749.0, 1725, 668.0),
                    gemm("bf16", big, 763.2, 1560, 690.0, sustained=sustained(718.0, 1485, 698.0)),
                    gemm("bf16", (8192, 16, 8192), 33.1, 1980, 310.0),
                    gemm("int8", big, 905.0, 1980, 560.0),
                    gemm("fp8", big, 1453.0, 1590, 696.0),
                ],
            }
        ],
        "together": None,
    }


def h200_bandwidth() -> dict[str, Any]:
    return {
        "quick": False,
        "libraries": [],
        "gpus": [
            {
                **H200, "copy_gb_per_s": 4260.0, "read_gb_per_s": 2756.0, "triad_gb_per_s": 3534.0,
                "h2d_gb_per_s": 54.9, "d2h_gb_per_s": 55.3, "buffer_mib": 2048, "graphics_clock_mhz": 1980,
                "memory_clock_mhz": 3201, "event_reasons": 0,
                "pcie": {"generation": 5, "width": 16, "max_generation": 5, "max_width": 16},
                "telemetry": telemetry(1980, 380.0, seconds=4), "error": None,
            }
        ],
        "peers": [{"from": 0, "to": 1, "can_access": True, "gb_per_s": 380.0, "nvlinks": 18}],
    }  # fmt: skip


@cache
def picture(red: int, green: int, blue: int, width: int = 96, height: int = 54) -> str:
    """A small PNG with a diagonal, as a data URI."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = b"".join(
        b"\0"
        + b"".join(
            bytes(
                (255, 255, 255) if abs(x * height // width - y) < 2 else (red * x // width, green * y // height, blue)
            )
            for x in range(width)
        )
        for y in range(height)
    )
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    data = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    return "data:image/png;base64," + base64.b64encode(data).decode()


def output(name: str, codec: str, width: int, height: int, psnr: float, **changes: Any) -> dict[str, Any]:
    seen = {
        "codec": codec, "profile": "High", "pixel_format": "yuv420p", "width": width, "height": height, "frames": 150,
        "duration_seconds": 5.0, "audio": "aac", "bit_rate_kbps": 4800,
    }  # fmt: skip
    expected = {**seen, "profile": None, "b_frames": "present", "bit_rate_kbps": 5000, "bytes": None}
    return {
        "name": name, "expected": expected, **seen, "b_frames": 70, "bytes": 3000000, "psnr_db": psnr, "ssim": 0.98,
        "xpsnr_db": psnr - 0.9, "quality_judged": True, "black_seconds": 0.0, "frozen_seconds": 0.0,
        "first_frame": picture(230, 90, 60), "last_frame": picture(40, 160, 220), "error": None, **changes,
    }  # fmt: skip


def case(number: int | None, name: str, title: str, outputs: list[dict[str, Any]], **changes: Any) -> dict[str, Any]:
    return {
        "id": name,
        "number": number,
        "chapter": "3.2",
        "title": title,
        "command": f"ffmpeg -y -hwaccel cuda -hwaccel_output_format cuda -i input.mp4 -c:v h264_nvenc {name}.mp4",
        "needs": {"encoders": ["h264_nvenc"], "decoders": ["h264_cuvid"], "filters": [], "capabilities": []},
        "outcome": "completed",
        "exit_code": 0,
        "seconds": 1.9,
        "decisive_line": "",
        "missing_parts": [],
        "warnings": [],
        "outputs": outputs,
        "gpu_proof": {
            "nvenc_lines": ["Nvenc initialized successfully"], "nvdec_lines": [], "encoder_utilization_percent": 40,
            "decoder_utilization_percent": 22, "encoder_sessions": 1,
        },
        **changes,
    }  # fmt: skip


def t4_transcode() -> dict[str, Any]:
    full = ("h264", 1920, 1080)
    refused = "[av1 @ 0x55] Your platform doesn't support hardware accelerated AV1 decoding."
    return {
        "quick": False,
        "ffmpeg": {"path": "/usr/local/bin/ffmpeg", "version": "7.1.5"},
        "gpu": T4,
        "inputs": [
            {"name": "h264-1080p", "codec": "h264", "width": 1920, "height": 1080, "frames": 150, "fps": 30,
             "audio": "aac"}
        ],
        "cases": [
            case(1, "plain", "1:1 transcode without scaling", [output("output.mp4", *full, 41.0)]),
            case(2, "resize", "1:1 with -resize", [output("output.mp4", "h264", 1280, 720, 42.3)]),
            case(3, "crop", "1:1 with -crop", [output("output.mp4", "h264", 960, 540, 40.6)], seconds=1.7),
            case(4, "scale_npp", "Scaling by NPP", [], outcome="not_built", exit_code=8, seconds=0.1,
                 decisive_line="No such filter: 'scale_npp'", missing_parts=["scale_npp"]),
            case(5, "one_to_n", "1:N with scaling",
                 [output("a.mp4", *full, 41.0), output("b.mp4", "h264", 1280, 720, 39.2)], seconds=2.6),
            case(None, "decode_hevc", "Decode HEVC", [output("frames.yuv", "rawvideo", 1920, 1080, 99.0)], seconds=0.8),
            case(None, "decode_av1", "Decode AV1", [], outcome="failed", exit_code=187, seconds=0.4,
                 decisive_line=refused),
        ],
        "chunks": {"files": 4, "renditions": 2, "one_process_seconds": 3.1, "many_processes_seconds": 5.2,
                   "saved_seconds": 2.1},
    }  # fmt: skip


def series(kind: str, codec: str, preset: str | None, rate: float, knee: float) -> dict[str, Any]:
    """Throughput that grows with the sessions up to `rate`."""
    steps = []
    for sessions in (1, 2, 4, 7, 10):
        fps = round(rate * (1 - math.exp(-sessions / knee)), 1)
        busy = round(100 * fps / rate)
        encoding = kind != "decode"
        steps.append(
            {
                "sessions": sessions, "fps": fps, "fps_each": [round(fps / sessions, 1)] * sessions,
                "frames": round(fps * 10.7), "seconds": 10.7, "encoder_utilization_percent": busy if encoding else 0,
                "decoder_utilization_percent": 0 if kind == "encode" else busy, "video_clock_mhz": 1545,
            }
        )  # fmt: skip
    return {
        "kind": kind, "codec": codec, "preset": preset, "width": 1920, "height": 1080, "outcome": "completed",
        "decisive_line": "", "steps": steps,
    }  # fmt: skip


def throughput(gpu: dict[str, Any], every: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "quick": False,
        "ffmpeg": {"path": "/usr/local/bin/ffmpeg", "version": "7.1.5"},
        "gpu": gpu,
        "series": every,
    }


def cudnn(gpu: dict[str, Any]) -> dict[str, Any]:
    one = {"dtype": "fp16", "layout": "NHWC", "shape": "32x64x56x56 * 64x64x3x3", "microseconds": 30.0, "tflops": 250.0,
           "max_relative_error": 0.001, "error_tolerance": 0.02, "error": None}  # fmt: skip
    every = [one, {**one, "layout": "NCHW", "tflops": 181.0}, {**one, "dtype": "fp32", "tflops": 38.4}]
    return {"libraries": [], "bindings": {"nvidia-cudnn-frontend": "1.14.0"}, "gpu": gpu, "convolutions": every}
