"""Which collectives the nccl probe runs, with which sizes, and the formulas of their speeds.

Sizes and formulas are those of NVIDIA's nccl-tests (doc/PERFORMANCE.md there), so figures can be compared: the size is
the whole buffer, also of all-gather and reduce-scatter; algbw is size / time; busbw is algbw times what each GPU must
send per byte of the size. Over rings, busbw is the speed of the slowest link, whatever the number of GPUs.
"""

from __future__ import annotations

from typing import Any, Dict, Tuple

OPERATIONS = ("all_reduce", "all_gather", "reduce_scatter")
ELEMENT = 4  # bytes of a float
ALIGNED = 16  # bytes of a rank's share: as nccl-tests has it, because NCCL moves 16 bytes at a time
KIB, MIB, GIB = 2**10, 2**20, 2**30
SIZES = (
    8, 32, 128, 512, 2 * KIB, 8 * KIB, 32 * KIB, 128 * KIB, 512 * KIB, 2 * MIB, 8 * MIB, 32 * MIB,
    128 * MIB, 512 * MIB, GIB, 2 * GIB, 4 * GIB,
)  # fmt: skip
QUICK_SIZES = (8, 32 * KIB, 8 * MIB, 2 * GIB)
SMALL = 8 * KIB  # up to this size the time is latency, not bandwidth
# Bytes that one GPU sends: from LARGE on bus bandwidth is that of the links; from MEDIUM on at least 3/4 of it.
LARGE, MEDIUM = GIB, 128 * MIB


def sizes(quick: bool, most: int) -> Tuple[int, ...]:
    """The sizes to measure, in bytes, up to `most`."""
    return tuple(size for size in (QUICK_SIZES if quick else SIZES) if size <= most)


def most_bytes(free: int) -> int:
    """The largest buffer for a GPU with `free` bytes: half of them stay free."""
    return min(SIZES[-1], free // 2)


def fitted(operation: str, size: int, ranks: int) -> int:
    """The largest size up to `size` that the ranks can share evenly; at least one element each."""
    if operation == "all_reduce":
        return max(ELEMENT, size // ELEMENT * ELEMENT)
    unit = ranks * (ALIGNED if size >= ranks * ALIGNED else ELEMENT)
    return max(ranks * ELEMENT, size // unit * unit)


def bus_factor(operation: str, ranks: int) -> float:
    """busbw / algbw: 2(n-1)/n for all-reduce, (n-1)/n for all-gather and reduce-scatter."""
    return (2 if operation == "all_reduce" else 1) * (ranks - 1) / ranks


def sent(operation: str, size: int, ranks: int) -> float:
    """Bytes that one GPU sends in a ring."""
    return size * bus_factor(operation, ranks)


def speeds(operation: str, size: int, ranks: int, seconds: float) -> Tuple[float, float]:
    """(algbw, busbw) in GB/s (10^9 bytes)."""
    algbw = size / seconds / 1e9
    return algbw, algbw * bus_factor(operation, ranks)


def results(operation: str, size: int, ranks: int) -> int:
    """The number of result elements on all GPUs together."""
    return size // ELEMENT * (1 if operation == "reduce_scatter" else ranks)


def point(operation: str, size: int, ranks: int, seconds: float, wrong: int) -> Dict[str, Any]:
    """A POINT of docs/records.md; every result was compared, and `wrong` of them were wrong."""
    algbw, busbw = speeds(operation, size, ranks, seconds)
    return {
        "operation": operation,
        "bytes": size,
        "microseconds": round(seconds * 1e6, 2),
        "algbw_gb_per_s": float(f"{algbw:.5g}"),
        "busbw_gb_per_s": float(f"{busbw:.5g}"),
        "checked": results(operation, size, ranks),
        "wrong": wrong,
    }


def words(size: int) -> str:
    """ "8 B", "32 KiB", "1 GiB"; other sizes are rounded."""
    for unit, length in (("GiB", GIB), ("MiB", MIB), ("KiB", KIB)):
        if size >= length:
            return f"{size / length:.3g} {unit}"
    return f"{size} B"
