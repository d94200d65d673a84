"""SQLite exports of Nsight Systems with known answers: only the tables and columns that a test asks for."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

PID = 0x1000123 << 24  # hardware and VM in the upper bits, process 291
SECRET = "API_TOKEN=must-never-be-shown"


def tid(thread: int, pid: int = PID) -> int:
    return pid | thread


KERNEL = (
    "start", "end", "deviceId", "streamId", "correlationId", "globalPid", "demangledName", "shortName",
    "registersPerThread", "gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ", "staticSharedMemory",
    "dynamicSharedMemory", "graphNodeId",
)  # fmt: skip
Table = tuple[Sequence[str], Sequence[Sequence[Any]]]
TABLES: dict[str, Table] = {
    "META_DATA_EXPORT": (
        ("name", "value"),
        [("EXPORT_PRODUCT_VERSION", "2026.1.1.204"), ("EXPORT_SCHEMA_VERSION", "3.24.14")],
    ),
    "StringIds": (
        ("id", "value"),
        [(1, "void gemm<float>(float*)"), (2, "gemm"), (3, "cudaLaunchKernel_v7000"), (4, "registered range"),
         (5, "cudaMemcpyAsync_v3020"), (99, SECRET)],
    ),
    "CUPTI_ACTIVITY_KIND_KERNEL": (
        KERNEL,
        [
            (2000, 5000, 0, 7, 11, PID, 1, 2, 64, 10, 2, 1, 128, 1, 1, 512, 1024, None),
            (4000, 9000, 0, 8, 12, PID, 1, 2, 64, 10, 2, 1, 128, 1, 1, 512, 1024, 5),
            (2000, 2500, 1, 7, 11, PID + (1 << 24), 1, 2, 64, 1, 1, 1, 32, 1, 1, 0, 0, None),
        ],
    ),
    "CUPTI_ACTIVITY_KIND_MEMCPY": (
        (
            "start", "end", "deviceId", "streamId", "correlationId", "globalPid", "bytes", "copyKind", "srcKind",
            "dstKind",
        ),
        [(9500, 9900, 0, 7, 13, PID, 4096, 1, 0, 2)],
    ),
    "CUPTI_ACTIVITY_KIND_MEMSET": (
        ("start", "end", "deviceId", "streamId", "correlationId", "globalPid", "bytes", "memKind"),
        [(9900, 9950, 0, 7, 14, PID, 512, 2)],
    ),
    "CUPTI_ACTIVITY_KIND_RUNTIME": (
        ("start", "end", "globalTid", "correlationId", "nameId"),
        [(1500, 1600, tid(5), 11, 3), (1700, 1800, tid(5), 12, 3), (1900, 1950, tid(5), 13, 5)],
    ),
    "NVTX_EVENTS": (
        ("start", "end", "eventType", "text", "textId", "globalTid", "domainId"),
        [
            (1000, 3000, 59, "iteration 1", None, tid(5), 0),
            (1400, 1650, 59, "aten::mm, seq = 5, op_id = 17, sizes = [[64, 128], [128, 32]]", None, tid(5), 0),
            (1660, 1850, 59, "autograd::engine::evaluate_function: MmBackward0, seq = 5, op_id = 18", None, tid(6), 0),
            (1000, None, 59, "never ended", None, tid(5), 0),
            (1000, 1100, 60, None, 4, tid(5), 0),
            (0, None, 75, "NCCL", None, tid(5), 3),
            (1200, 1300, 59, "ncclAllReduce", None, tid(5), 3),
            (1250, None, 34, "a mark", None, tid(5), 0),
        ],
    ),
    "TARGET_INFO_SESSION_START_TIME": (("utcEpochNs",), [(1_776_781_226_557_295_056,)]),
    "TARGET_INFO_SYSTEM_ENV": (
        ("name", "value"),
        [("CpuDescription", "Test CPU"), ("NvDriverVersion", "580.95.05"), ("DeviceEnvironment", SECRET),
         ("Hostname", "secret-host")],
    ),
    "TARGET_INFO_GPU": (
        ("id", "name", "totalMemory", "smCount", "computeMajor", "computeMinor"),
        [(0, "Test GPU 80GB", 85_000_000_000, 132, 9, 0), (1, "Test GPU 80GB", 85_000_000_000, 132, 9, 0)],
    ),
    "TARGET_INFO_CUDA_DEVICE": (("gpuId", "cudaId", "pid"), [(0, 1, 291), (1, 0, 291)]),
}  # fmt: skip


def export(path: Path, changed: dict[str, Table] | None = None, without: Iterable[str] = ()) -> Path:
    """An export with all TABLES but those of `without`; `changed` ones have other columns and rows."""
    path.unlink(missing_ok=True)
    database = sqlite3.connect(path)
    for name, (columns, rows) in {**TABLES, **(changed or {})}.items():
        if name in without:
            continue
        database.execute(f'CREATE TABLE "{name}" ({", ".join(columns)})')
        marks = ", ".join("?" * len(columns))
        database.executemany(f'INSERT INTO "{name}" VALUES ({marks})', rows)
    database.commit()
    database.close()
    return path
