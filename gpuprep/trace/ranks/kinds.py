"""What collective is it, how many bytes does it move, and how fast is that?

Sizes and factors of the bus bandwidth as in nccl-tests, doc/PERFORMANCE.md.
"""

from __future__ import annotations

import re

# Found in a name without its other letters, the first that fits: "_reduce_scatter_base", "ncclDevKernel_AllReduce_…".
_NAMES = {
    "allreduce": "all_reduce",
    "reducescatter": "reduce_scatter",
    "allgather": "all_gather",
    "alltoall": "all_to_all",
    "sendrecv": "send_recv",
    "broadcast": "broadcast",
    "barrier": "barrier",
    "gather": "gather",
    "scatter": "scatter",
    "reduce": "reduce",  # vLLM's cross_device_reduce is an all-reduce, see below
    "send": "send",
    "recv": "recv",
}
# No rank leaves before the last one has come.
TOGETHER = ("all_reduce", "reduce_scatter", "all_gather", "all_to_all", "barrier")

KERNEL = re.compile(r"^(nccl|rccl)|cross_device_reduce|(one|two)_shot_all_?reduce|multimem_all_?reduce", re.IGNORECASE)
ON_CPU = re.compile(r"^(gloo|mpi):", re.IGNORECASE)

_BYTES = {
    "byte": 1, "char": 1, "signedchar": 1, "unsignedchar": 1, "bool": 1, "uint8": 1, "int8": 1,
    "half": 2, "short": 2, "float16": 2, "bfloat16": 2, "int16": 2,
    "float": 4, "int": 4, "float32": 4, "int32": 4,
    "double": 8, "long": 8, "int64": 8, "float64": 8, "complexfloat": 8, "complexdouble": 16,
}  # fmt: skip


def collective(name: str) -> str:
    """all_reduce, …; "other" for a name that says nothing."""
    letters = re.sub("[^a-z]", "", name[:200].lower())
    if "crossdevicereduce" in letters:
        return "all_reduce"
    return next((plain for fragment, plain in _NAMES.items() if fragment in letters), "other")


def is_together(name: str) -> bool:
    """Of a range: whether it is PyTorch's own of a collective that all ranks leave together."""
    return name.startswith(("nccl:", "c10d::")) and collective(name) in TOGETHER


def element_bytes(dtype: str) -> int | None:
    """Of the names that PyTorch gives: Float, BFloat16, c10::Half, signed char, Float8_e4m3fn."""
    plain = re.sub("[^a-z0-9]", "", dtype[:40].lower().rpartition(":")[2])
    return 1 if plain.startswith("float8") else _BYTES.get(plain)


def message_bytes(name: str, sent: int, received: int, size: int) -> int:
    """Of elements of one rank: what nccl-tests call the size. All-gather: the result; reduce-scatter: what goes in."""
    if name == "all_gather":
        return received * size
    if name in ("reduce_scatter", "all_reduce", "all_to_all"):
        return sent * size
    return max(sent, received) * size


def bus_factor(name: str, ranks: int) -> float | None:
    """Bus bandwidth / (bytes / time), by nccl-tests; None where they have none."""
    if ranks < 1:
        return None
    if name == "all_reduce":
        return 2 * (ranks - 1) / ranks
    if name in ("all_gather", "reduce_scatter", "all_to_all"):
        return (ranks - 1) / ranks
    return 1.0 if name in ("broadcast", "reduce", "send_recv", "send", "recv") else None
