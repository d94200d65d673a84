"""Columns that grow piece by piece, names and arguments that are kept once."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gpuprep.trace.columns import NONE, Arguments, Device, Thread, give_back

MOST_NAMES = 2_000_000
MOST_LETTERS = 1 << 29  # of all names
MOST_ARGUMENTS = 1_000_000
MOST_ARGUMENT_BYTES = 1 << 28  # of all of them as JSON
MOST_THREADS = 100_000
LONGEST_NAME = 8192  # characters; templates of kernels have thousands
OTHERS = "(names beyond the limit)"
OTHER_THREADS = "(threads beyond the limit)"
_LARGE = 8 << 20  # bytes of a column


def whole_numbers(values: Sequence[Any], dtype: Any = np.int64) -> np.ndarray[Any, Any]:
    """An array of integers. What does not fit into `dtype` is NONE: it is no number that a profiler writes."""
    try:
        return np.array(values, dtype=dtype)
    except (OverflowError, TypeError, ValueError):
        limits = np.iinfo(dtype)
        fits = [
            int(value) if isinstance(value, (int, float)) and limits.min <= value <= limits.max else NONE
            for value in values
        ]
        return np.array(fits, dtype=dtype)


def every(value: Any, rows: int) -> np.ndarray[Any, Any]:
    """A column that has one int32 in all rows, in the memory of one. It cannot be written to."""
    return np.broadcast_to(np.int32(value), rows)


def numbers(values: Sequence[Any]) -> np.ndarray[Any, Any]:
    """float32; NaN for what is no number. The profiler writes "inf" as a text."""
    try:
        with np.errstate(over="ignore"):  # 1e308 is infinite
            return np.array(values, dtype=np.float32)
    except (TypeError, ValueError, OverflowError):
        with np.errstate(over="ignore"):
            return np.array([_number(value) for value in values], dtype=np.float32)


def _number(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return float("nan")


class Table:
    """Columns as lists of arrays, joined at the end one by one, so that only one column is ever there twice."""

    def __init__(self, **dtypes: Any) -> None:
        self._dtypes = dtypes
        self._parts: dict[str, list[np.ndarray[Any, Any]]] = {name: [] for name in dtypes}
        self.rows = 0

    def add(self, **columns: np.ndarray[Any, Any]) -> None:
        for name, dtype in self._dtypes.items():
            self._parts[name].append(np.asarray(columns[name]).astype(dtype, copy=False))
        self.rows += len(next(iter(columns.values())))

    def column(self, name: str) -> np.ndarray[Any, Any]:
        """The whole column; gives it away."""
        parts = self._parts.pop(name)
        dtype = self._dtypes[name]
        if not parts:
            return np.empty((0, 3) if name in ("grid", "block") else 0, dtype=dtype)
        # Of another process they come as arrays that cannot be written to.
        whole: np.ndarray[Any, Any] = (
            parts[0] if len(parts) == 1 and parts[0].flags.writeable else np.concatenate(parts)
        )
        return whole

    def columns(self) -> dict[str, np.ndarray[Any, Any]]:
        """All columns; gives them away."""
        by_name = {}
        for name in list(self._parts):
            by_name[name] = self.column(name)
            if by_name[name].nbytes > _LARGE:
                give_back()
        return by_name


class Names:
    def __init__(self) -> None:
        self.texts: list[str] = []
        self.cut = 0
        self._known: dict[str, int] = {}
        self._letters = 0

    def ids(self, names: Iterable[str]) -> np.ndarray[Any, Any]:
        find, add = self._known.get, self._add
        name_ids = [place if (place := find(name)) is not None else add(name) for name in names]
        return np.array(name_ids, dtype=np.int32)

    def _add(self, name: str) -> int:
        short = name
        if len(name) > LONGEST_NAME:
            self.cut += 1
            short = name[: LONGEST_NAME - 1] + "…"
        if len(self.texts) >= MOST_NAMES or self._letters > MOST_LETTERS:
            self.cut += 1
            short = OTHERS
        place = self._known.get(short)
        if place is None:
            place = len(self.texts)
            self.texts.append(short)
            self._letters += len(short)
            self._known[short] = place
        return place


class Threads:
    """Threads by (process, thread). "25738" and 25738 are one: the first profiles have both."""

    def __init__(self) -> None:
        self.processes: list[str] = []
        self.left_out = 0  # events on threads beyond the limit
        self.threads: list[Thread] = []
        self._known: dict[tuple[Any, Any], int] = {}
        self._plain: dict[tuple[Any, Any], int] = {}
        self._process: dict[Any, int] = {}

    def ids(self, keys: Iterable[tuple[Any, Any]]) -> np.ndarray[Any, Any]:
        find, add = self._known.get, self._add
        return np.array([place if (place := find(key)) is not None else add(key) for key in keys], dtype=np.int32)

    def keys(self) -> list[tuple[Any, Any]]:
        """(process, thread) of each, in the order of the ids."""
        return list(self._plain)

    def process(self, pid: Any) -> int:
        pid = plain_id(pid)
        if pid not in self._process:
            self._process[pid] = len(self.processes)
            self.processes.append(str(pid)[:200])
        return self._process[pid]

    def process_of(self, threads: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        processes = np.array([thread.process for thread in self.threads] or [0], dtype=np.int32)
        return every(processes[0], len(threads)) if (processes == processes[0]).all() else processes[threads]

    def label(self, key: tuple[Any, Any], text: str) -> None:
        place = self._plain.get((plain_id(key[0]), plain_id(key[1])))
        if place is not None:
            self.threads[place] = Thread(self.threads[place].process, text[:200])

    def _add(self, key: tuple[Any, Any]) -> int:
        plain: tuple[Any, Any] = (plain_id(key[0]), plain_id(key[1]))
        if plain not in self._plain and len(self.threads) >= MOST_THREADS:
            self.left_out += 1
            plain = ("", OTHER_THREADS)
        place = self._plain.get(plain)
        if place is None:
            place = self._plain[plain] = len(self.threads)
            self.threads.append(Thread(self.process(plain[0]), str(plain[1])[:200]))
        if len(self._known) < 2 * MOST_THREADS:
            self._known[key] = place
        return place


def plain_id(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, str) and value.lstrip("-").isdecimal() and len(value) < 20:
        return int(value)
    return value


class ArgumentsTable:
    """Arguments of ops, each once; ops of a model repeat theirs every step."""

    def __init__(self) -> None:
        self.rows: list[Arguments] = []
        self.left_out = 0
        self._known: dict[Any, int] = {}
        self._bytes = 0

    def keys(self) -> list[Any]:
        """In the order of the rows."""
        return list(self._known)

    def find(self, key: Any) -> int | None:
        return self._known.get(key)

    def add(self, key: Any, arguments: Arguments) -> int:
        self._bytes += len(repr(key))
        if len(self.rows) >= MOST_ARGUMENTS or self._bytes > MOST_ARGUMENT_BYTES:
            self.left_out += 1
            return NONE
        place = self._known[key] = len(self.rows)
        self.rows.append(arguments)
        return place


# ---------------------------------------------------------------- metadata

# Reads the data of a Kineto trace outside its events: GPUs, ranks, switches, versions. Untrusted; only known keys.


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
