"""One profile ► what joining needs of it: the steps and every collective. Small, so that many ranks fit in memory."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gpuprep.trace.columns import NONE, Arguments, GpuKind, Ints, OpKind
from gpuprep.trace.model.intervals import Union, union
from gpuprep.trace.profile import Profile

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


_RANK_IN_NAME = re.compile(r"rank[-_. ]?(\d{1,6})(?!\d)", re.IGNORECASE)
_HIGHEST = 8  # ranges between a launch and the range that tells of its collective


@dataclass(frozen=True)
class Kind:
    """Equal collectives."""

    name: str
    group: str
    group_size: int  # NONE: not recorded
    dtype: str
    bytes: int  # NONE: not recorded


@dataclass
class Collectives:
    """In the order of time. Times in ns since 1970 by the rank's own clock, or since the profile's start."""

    start: NDArray[np.int64]
    end: NDArray[np.int64]
    exposed: NDArray[np.int64]
    kind: NDArray[np.int64]  # index of OneRank.kinds
    step: NDArray[np.int64]  # index of OneRank.steps; -1 outside
    sequence: NDArray[np.int64]  # the group's own number; -1 without


@dataclass
class OneRank:
    file: str
    rank: int
    guessed: bool  # the rank is from the file's name, or unknown
    world_size: int  # NONE: not recorded
    backend: str
    device: int  # NONE: none used
    gpu: str
    has_clock: bool
    steps: list[str]
    start: NDArray[np.int64]  # of the steps, ns as in Collectives
    wall: NDArray[np.int64]  # ns, one a step, as the next four
    busy: NDArray[np.int64]
    compute: NDArray[np.int64]
    collective: NDArray[np.int64]
    exposed: NDArray[np.int64]
    kinds: list[Kind]
    calls: Collectives
    unknown: int  # collectives on the GPU whose op is not in the profile


def ranks_of(profile: Profile) -> list[OneRank]:
    """One, or one a GPU where one file has several: a session of Nsight Systems."""
    trace = profile.trace
    devices = profile.device_order
    if trace.rank != NONE or len(devices) < 2:
        if len(devices) > 1:  # a rank that touched another GPU: its own is the one with most work
            counts = [int((trace.gpu.device == device).sum()) for device in devices]
            devices = [devices[int(np.argmax(counts))]]
        match = _RANK_IN_NAME.search(trace.file)
        rank = trace.rank if trace.rank != NONE else int(match[1]) if match else NONE
        return [_rank_of_device(profile, devices[0] if devices else NONE, rank, trace.rank == NONE)]
    return [_rank_of_device(profile, device, NONE, True) for device in devices]


def _rank_of_device(profile: Profile, device: int, rank: int, guessed: bool) -> OneRank:
    trace = profile.trace
    zero = max(trace.zero_ns, 0)
    names = np.array([bool(KERNEL.search(name)) for name in trace.names] or [False])
    here = trace.gpu.device == device
    kernel = here & (trace.gpu.kind == GpuKind.KERNEL)
    is_collective = kernel & names[trace.gpu.name]
    compute = _union(profile, kernel & ~is_collective)
    start, end = _windows(profile)
    made, calls, unknown = _collectives(profile, np.flatnonzero(is_collective), compute)
    both = union(calls.start, calls.end)
    together = union(
        np.concatenate((trace.gpu.start[kernel & ~is_collective], calls.start)),
        np.concatenate((trace.gpu.end[kernel & ~is_collective], calls.end)),
    )
    inside = compute.inside(start, end)
    calls.start, calls.end = calls.start + zero, calls.end + zero
    return OneRank(
        file=trace.file,
        rank=rank,
        guessed=guessed,
        world_size=trace.world_size,
        backend=trace.machine.get("backend", ""),
        device=device,
        gpu=next((gpu.name for gpu in trace.devices if gpu.index == device), ""),
        has_clock=trace.zero_ns >= 0,
        steps=_numbered(profile.iterations.names),
        start=start + zero,
        wall=end - start,
        busy=_union(profile, here).inside(start, end),
        compute=inside,
        collective=both.inside(start, end),
        exposed=together.inside(start, end) - inside,
        kinds=made,
        calls=calls,
        unknown=unknown,
    )


def _numbered(names: list[str]) -> list[str]:
    """Steps that have one name are told apart by their order: "train_step 0", "train_step 1"."""
    often = Counter(names)
    if len(often) == len(names):
        return list(names)
    seen: Counter[str] = Counter()
    numbered = []
    for name in names:
        numbered.append(f"{name} {seen[name]}" if often[name] > 1 else name)
        seen[name] += 1
    return numbered


def _union(profile: Profile, chosen: NDArray[np.bool_]) -> Union:
    return union(profile.trace.gpu.start[chosen], profile.trace.gpu.end[chosen])


def _windows(profile: Profile) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """A step's own range on the CPU; the only step lasts until its last work on the GPU."""
    steps = profile.iterations
    start, end = np.asarray(steps.start, np.int64), np.asarray(steps.end, np.int64)
    if len(start) == 1:
        gpu = profile.trace.gpu
        start = np.minimum(start, gpu.start.min()) if steps.how == "one" and len(gpu.start) else start
        end = np.maximum(end, np.asarray(steps.until, np.int64))
    return start, np.maximum(end, start)


def _collectives(profile: Profile, events: Ints, compute: Union) -> tuple[list[Kind], Collectives, int]:
    trace = profile.trace
    on_cpu = np.array([bool(ON_CPU.search(name)) for name in trace.names] or [False])
    ranges = np.flatnonzero(on_cpu[trace.ops.name] & (trace.ops.kind != OpKind.PYTHON))
    has_shape = [any(key == "Collective name" for key, _ in argument.other) for argument in trace.arguments]
    collectives = _around(profile, profile.gpu.instance[events], np.array([*has_shape, False])[trace.ops.arguments])
    # A kernel is known by its name and by what its op was called with; a range on the CPU by its own.
    name = np.concatenate((_names(profile, events, collectives), trace.ops.name[ranges])).astype(np.int64)
    arguments = np.concatenate((_arguments(profile, collectives), trace.ops.arguments[ranges])).astype(np.int64)
    pairs, kind = np.unique(np.column_stack((name, arguments)), axis=0, return_inverse=True)
    described = [_kind(trace.names[int(text)], trace.arguments[int(row)] if row >= 0 else None) for text, row in pairs]
    sequence = np.array([number for _, number in described] or [NONE], np.int64)
    start = np.concatenate((trace.gpu.start[events], trace.ops.start[ranges])).astype(np.int64)
    end = np.concatenate((trace.gpu.end[events], trace.ops.end[ranges])).astype(np.int64)
    step = np.concatenate((profile.gpu.iteration[events], profile.ranges.iteration[ranges])).astype(np.int64)
    numbers: dict[Kind, int] = {}  # calls that differ by their sequence number alone are of one kind
    of = np.array([numbers.setdefault(call_kind, len(numbers)) for call_kind, _ in described] or [NONE], np.int64)
    row = np.asarray(kind, np.int64).reshape(-1)
    order = np.argsort(start, kind="stable")
    start, end, row, step = start[order], end[order], row[order], step[order]
    exposed = end - start - compute.inside(start, end)
    calls = Collectives(start, end, exposed, of[row], step, sequence[row])
    return list(numbers), calls, int((collectives < 0).sum())


def _names(profile: Profile, events: Ints, collectives: NDArray[np.int64]) -> Ints:
    """Of kernels. NCCL runs an all-to-all as send and receive: where record_param_comms does not tell what it is, the
    range around its launch does (nccl:all_to_all, c10d::alltoall_base_)."""
    trace, ops = profile.trace, profile.trace.ops
    names: Ints = trace.gpu.name[events].copy()
    used = np.unique(names)
    sending = used[[collective(trace.names[name]) == "send_recv" for name in used.tolist()]]
    pairs = np.flatnonzero((collectives < 0) & np.isin(names, sending))
    if not len(pairs):
        return names
    together = np.array([*map(is_together, trace.names)])
    around = _around(profile, profile.gpu.instance[events[pairs]], together[ops.name])
    names[pairs[around >= 0]] = ops.name[around[around >= 0]]
    return names


def _around(profile: Profile, rows: Ints, wanted: NDArray[np.bool_]) -> NDArray[np.int64]:
    """The nearest of these ranges around each launch; -1 without."""
    rows = np.asarray(rows, np.int64).copy()
    nearest = np.full(len(rows), NONE, np.int64)
    for _ in range(_HIGHEST):
        open_ = np.flatnonzero((nearest < 0) & (rows >= 0))
        if not len(open_):
            break
        here = rows[open_]
        hit = wanted[here]
        nearest[open_[hit]] = here[hit]
        rows[open_] = profile.ranges.parent[here]
    return nearest


def _arguments(profile: Profile, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    argument_rows = np.full(len(rows), NONE, np.int64)
    argument_rows[rows >= 0] = profile.trace.ops.arguments[rows[rows >= 0]]
    return argument_rows


def _kind(text: str, arguments: Arguments | None) -> tuple[Kind, int]:
    """What it is, and its number in its group."""
    other = dict(arguments.other) if arguments else {}
    name = collective(other.get("Collective name", "") or text)
    if name == "other":
        name = collective(text)
    dtype = other.get("dtype", "")
    sent, received = _whole(other.get("In msg nelems")), _whole(other.get("Out msg nelems"))
    if arguments and not other and arguments.dtypes and arguments.shapes:  # gloo's ranges have inputs instead
        dtype, sent = arguments.dtypes[0], _elements(arguments.shapes[0])
        received = sent
    size = element_bytes(dtype)
    known = size is not None and sent >= 0 and received >= 0
    group = " ".join(filter(None, (other.get("Process Group Name", ""), other.get("Process Group Ranks", ""))))
    return (
        Kind(
            name=name,
            group=group,
            group_size=_whole(other.get("Group size")),
            dtype=dtype,
            bytes=message_bytes(name, sent, received, size) if known and size is not None else NONE,
        ),
        _whole(other.get("Seq")),
    )


def _elements(shape: object) -> int:
    if not isinstance(shape, tuple) or not shape or not all(isinstance(size, int) and size >= 0 for size in shape):
        return NONE
    count = 1
    for size in shape:
        count *= size
    return count if count < 2**53 else NONE


def _whole(text: str | None) -> int:
    """Of a text that the file gave; NONE for anything else."""
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 16 else NONE
