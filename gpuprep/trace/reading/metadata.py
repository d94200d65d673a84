"""Reads the data of a Kineto trace outside its events: GPUs, ranks, switches, versions. Untrusted; only known keys."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from gpuprep.trace.columns import NONE, Device

SWITCHES = ("record_shapes", "with_stack", "profile_memory", "with_flops", "with_modules")
VERSIONS = (
    "schemaVersion", "cuda_runtime_version", "cuda_driver_version", "cupti_version",
    "hip_runtime_version", "hip_driver_version", "roctracer_version", "rocprofiler-sdk_version",
)  # fmt: skip
DISTRIBUTED = ("backend", "nccl_version", "pg_count")
_AMD = re.compile(r"\bAMD\b|\bRadeon\b|\bInstinct\b|^gfx\d", re.I)  # of profiles that tell no version of HIP
_MOST_DEVICES = 1024
_LONGEST = 200
# Times below this are counted from a base, or from nothing known: 1 January 2001 in ns.
_EPOCH_NS = 978_307_200 * 10**9


@dataclass
class Metadata:
    devices: list[Device] = field(default_factory=list)
    machine: dict[str, str] = field(default_factory=dict)
    switches: dict[str, bool] = field(default_factory=dict)
    rank: int = NONE
    world_size: int = NONE
    base_ns: int | None = None


def read_metadata(document: dict[str, Any], notes: Counter[str]) -> Metadata:
    devices = document.get("deviceProperties")
    distributed = document.get("distributedInfo")
    distributed = distributed if isinstance(distributed, dict) else {}
    versions = {key: document[key] for key in VERSIONS if _plain(document.get(key))}
    versions |= {key: distributed[key] for key in DISTRIBUTED if _plain(distributed.get(key))}
    read = Metadata(
        devices=[
            _device(entry, place)
            for place, entry in enumerate((devices if isinstance(devices, list) else [])[:_MOST_DEVICES])
            if isinstance(entry, dict)
        ],
        machine={key: str(value)[:_LONGEST] for key, value in versions.items()},
        switches={key: bool(document[key]) for key in SWITCHES if isinstance(document.get(key), (int, bool))},
        rank=_whole(distributed.get("rank")),
        world_size=_whole(distributed.get("world_size")),
        base_ns=base if (base := _whole(document.get("baseTimeNanoseconds"))) >= 0 else None,
    )
    if any(key.startswith(("hip_", "roc")) for key in versions) or any(
        _AMD.search(device.name) for device in read.devices
    ):
        notes["amd_gpu"] += 1
    return read


def absolute_ns(zero: int, read: Metadata) -> int:
    """ns since 1970 of the columns' time 0; NONE where the file does not tell."""
    moved = zero + (read.base_ns or 0)
    return moved if moved >= _EPOCH_NS and moved < 2**63 else NONE


def _device(entry: dict[str, Any], place: int) -> Device:
    major, minor = _whole(entry.get("computeMajor")), _whole(entry.get("computeMinor"))
    index = _whole(entry.get("id"))
    return Device(
        index=index if index >= 0 else place,
        name=str(entry.get("name") or "")[:_LONGEST],
        compute_capability=f"{major}.{minor}" if major >= 0 and minor >= 0 else "",
        sms=_whole(entry.get("numSms")),
        memory_bytes=_whole(entry.get("totalGlobalMem")),
    )


def _plain(value: Any) -> bool:
    return isinstance(value, (int, float, str)) and value != ""


def _whole(value: Any) -> int:
    if isinstance(value, str) and value.isdecimal() and len(value) < 20:
        value = int(value)
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        value = int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63 else NONE
