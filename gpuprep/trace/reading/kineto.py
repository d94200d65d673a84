"""PyTorch's Kineto traces, of all four generations of the format, as columns.

G1 (2021) names its categories Operator, Runtime, Kernel; G1 and G2 count whole µs since 1970; G3 (spring 2024) writes
nanoseconds as decimals of them, G4 relative to baseTimeNanoseconds, which may stand behind the events.
"""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from gpuprep.errors import UsageError
from gpuprep.trace.columns import NONE, Arguments, Calls, Format, GpuEvents, GpuKind, MemoryEvents, OpKind, Ops, Trace
from gpuprep.trace.reading import files, sanity
from gpuprep.trace.reading.builders import (
    ArgumentsTable,
    Metadata,
    Names,
    Table,
    Threads,
    absolute_ns,
    every,
    numbers,
    plain_id,
    read_metadata,
    whole_numbers,
)
from gpuprep.trace.reading.chunks import Part, Pieces
from gpuprep.trace.reading.events import (
    NO_TIME,
    AnyEvent,
    ArgsOf,
    CallArgs,
    Flows,
    GpuArgs,
    MemoryArgs,
    NameArgs,
    OpArgs,
    argument_rows,
)
from gpuprep.trace.reading.files import Source, shown

GPU = {
    "kernel": GpuKind.KERNEL,
    "gpu_memcpy": GpuKind.MEMCPY,
    "gpu_memset": GpuKind.MEMSET,
    "Kernel": GpuKind.KERNEL,
    "Memcpy": GpuKind.MEMCPY,
    "Memset": GpuKind.MEMSET,
}
CALLS = {
    "cuda_runtime", "cuda_driver", "Runtime", "xpu_runtime", "xpu_driver", "mtia_runtime", "privateuse1_runtime",
    "privateuse1_driver",
}  # fmt: skip
# Overhead of the profiler and the driver, as lazy loading, stands on a thread of its own.
OPS = {
    "cpu_op": OpKind.OP, "Operator": OpKind.OP, "user_annotation": OpKind.ANNOTATION, "overhead": OpKind.ANNOTATION,
}  # fmt: skip
PYTHON = "python_function"
MEMORY = "[memory]"
FLOWS = {"fwdbwd", "forward_backward"}
MODULE = "nn.Module: "
PARTS: dict[str | None, str] = {
    **dict.fromkeys(GPU, "gpu"), **dict.fromkeys(CALLS, "calls"), **dict.fromkeys(OPS, "ops"), PYTHON: "python",
    **dict.fromkeys(FLOWS, "flows"), "cpu_instant_event": "memory", "": "others", None: "others",
}  # fmt: skip
QUIET = {"M", "i", "s", "f", "C"}  # phases that have no duration
MOST_SHAPES = 1 << 14
# Of the first generation, which has one category for operators and annotations.
ANNOTATIONS = ("ProfilerStep#", "Optimizer.", "enumerate(DataLoader)", "DistributedDataParallel.", "DataParallel.")
# Known categories that are no work of the GPU or CPU: spans, widened copies of annotations, waits that are also
# recorded as calls.
UNUSED = {
    "Trace", "gpu_user_annotation", "cuda_sync", "cuda_event", "external_correlation",
    "ac2g", "async", "async_cpu_to_gpu", "collective_comm", "hardware_counters",
}  # fmt: skip
# Categories of runtimes that are not CUDA's, and what is reported of them. AMD's are named like CUDA's: builders.py.
ACCELERATORS = {
    "xpu_": "xpu", "mtia_": "other_accelerator", "privateuse1_": "other_accelerator", "hpu_": "other_accelerator",
}  # fmt: skip
GPU_ARGS, CALL_ARGS, OP_ARGS = ArgsOf(GpuArgs), ArgsOf(CallArgs), ArgsOf(OpArgs)
MEMORY_ARGS, NAME_ARGS = ArgsOf(MemoryArgs), ArgsOf(NameArgs)
MOST_THREADS = 1_000_000
FIRST = {"Operator", "Kernel", "Runtime"}


class _Parts(dict[Any, Callable[[AnyEvent], None]]):
    """Category ► what adds an event to the list of its part. Kernels, copies and fills stay in the file's order."""

    def __init__(self) -> None:
        self.lists: dict[str, list[AnyEvent]] = {}

    def __missing__(self, category: str | None) -> Callable[[AnyEvent], None]:
        part = PARTS.get(category) or category or ""
        add = self[category] = self.lists.setdefault(part, []).append
        return add


@dataclass
class Content:
    """What a Reader has read, in a form that can go from one process to another."""

    tables: dict[str, dict[str, np.ndarray[Any, Any]]]
    names: list[str]
    threads: list[tuple[Any, Any]]
    arguments: list[tuple[Any, Arguments]]
    left_out: tuple[int, int, int]
    flows: Flows
    labels: dict[tuple[Any, Any], str]
    seen: set[str]
    first: int
    notes: Counter[str]
    exact: bool
    header: dict[str, Any]


class Reader:
    def __init__(self, path: Path, stacks: bool) -> None:
        self.path = path
        self.stacks = stacks
        self.notes: Counter[str] = Counter()
        self.names = Names()
        self.threads = Threads()
        self.arguments = ArgumentsTable()
        self.flows = Flows()
        self.labels: dict[tuple[Any, Any], str] = {}
        self.shapes: dict[bytes, int] = {}
        self.seen: set[str] = set()  # categories
        self.first = 2**62  # of events that are not kept, so that times do not depend on `stacks`
        ids, times = {"name": np.int32, "external": np.int64}, {"start": np.int64, "end": np.int64}
        self.gpu = Table(
            **times, **ids, kind=np.uint8, device=np.int32, stream=np.int64, correlation=np.int64, bytes=np.int64,
            grid=np.int32, block=np.int32, registers=np.int32, shared=np.int32, blocks_per_sm=np.float32,
            occupancy=np.float32, graph_node=np.int64,
        )  # fmt: skip
        self.calls = Table(**times, **ids, thread=np.int32, correlation=np.int64)
        self.ops = Table(
            **times, **ids, kind=np.uint8, thread=np.int32, sequence=np.int64, forward_thread=np.int64,
            arguments=np.int32,
        )  # fmt: skip
        self.memory = Table(time=np.int64, device=np.int32, bytes=np.int64, allocated=np.int64, reserved=np.int64)

    def take(self, source: Source, part: Part = Part.WHOLE) -> None:
        """Fills the tables. UsageError, NoBorder as of Pieces."""
        # There are no reference cycles here, and the garbage collector would scan millions of new objects again and
        # again.
        collecting = gc.isenabled()
        gc.disable()
        try:
            with source:
                self.pieces = Pieces(source, self.notes, shown(self.path), part)
                for batch in self.pieces.batches():
                    self._sort(batch)
        finally:
            if collecting:
                gc.enable()
        self.exact = self.pieces.exact
        self.header = self.pieces.header

    def content(self) -> Content:
        """All that was read; gives the tables away."""
        return Content(
            tables={name: table.columns() for name, table in self._tables().items()},
            names=self.names.texts,
            threads=self.threads.keys(),
            arguments=list(zip(self.arguments.keys(), self.arguments.rows, strict=True)),
            left_out=(self.names.cut, self.arguments.left_out, self.threads.left_out),
            flows=self.flows,
            labels=self.labels,
            seen=self.seen,
            first=self.first,
            notes=self.notes,
            exact=self.exact,
            header=self.header,
        )

    def join(self, second: Content) -> None:
        """Puts the file's second part behind what was read of it."""
        names = self.names.ids(second.names)
        threads = self.threads.ids(second.threads)
        table = self.arguments
        places = [table.add(key, row) if (at := table.find(key)) is None else at for key, row in second.arguments]
        for name, target in self._tables().items():
            columns = second.tables[name]
            # NONE, the last entry, stays NONE.
            ids = {"name": names, "thread": threads, "arguments": np.array([*places, NONE], np.int32)}
            target.add(**{key: ids[key][column] if key in ids else column for key, column in columns.items()})
        self.names.cut += second.left_out[0]
        self.arguments.left_out += second.left_out[1]
        self.threads.left_out += second.left_out[2]
        self.flows.join(second.flows)
        self.labels.update(second.labels)
        self.seen |= second.seen
        self.first = min(self.first, second.first)
        self.notes.update(second.notes)
        self.exact = self.exact or second.exact
        self.header.update(second.header)

    def _tables(self) -> dict[str, Table]:
        return {"gpu": self.gpu, "calls": self.calls, "ops": self.ops, "memory": self.memory}

    def _sort(self, batch: list[AnyEvent]) -> None:
        parts = _Parts()
        for event in batch:
            parts[event.cat](event)
        self.seen.update(
            category
            for category in parts
            if category and (category in PARTS or category.startswith(tuple(ACCELERATORS)))
        )
        readers = {
            "gpu": self._gpu, "calls": self._calls, "ops": self._ops, "python": self._python, "memory": self._memory,
            "flows": self._flows, "others": self._others,
        }  # fmt: skip
        for part, events in parts.lists.items():
            if part not in UNUSED:
                readers.get(part, self._unknown)(events)

    def _complete(self, events: list[AnyEvent]) -> list[AnyEvent]:
        """Those with a begin and a duration: the only ones of their categories that PyTorch's profiler writes."""
        complete = events
        if {event.ph for event in events} != {"X"}:
            complete = [event for event in events if event.ph == "X"]
            self.notes["unknown_phases"] += len(events) - len(complete)
        return complete

    def _unknown(self, events: list[AnyEvent]) -> None:
        for event in events:
            if event.ph == "X":
                self.notes["unknown_categories"] += 1
            elif event.ph not in QUIET:
                self.notes["unknown_phases"] += 1

    def _others(self, events: list[AnyEvent]) -> None:
        """Events without a category: names of threads, instants; of the first generation the allocator's, too."""
        self._unknown([event for event in events if event.ph not in QUIET])
        if memory := [event for event in events if event.ph == "i" and event.name == MEMORY]:
            self._memory(memory)
        names = [event for event in events if event.ph == "M" and event.name == "thread_name"]
        for event, args in zip(names, NAME_ARGS.read(names), strict=True):
            if args.name and len(self.labels) < MOST_THREADS:
                self.labels[event.pid, event.tid] = args.name

    def _flows(self, events: list[AnyEvent]) -> None:
        events = [event for event in events if event.ph in ("s", "f")]
        self.flows.add(events, self._ns([event.ts for event in events]))

    def _ns(self, times: Sequence[Any]) -> np.ndarray[Any, Any]:
        """µs as whole nanoseconds."""
        if self.pieces.exact:
            # Events that were read one by one before the first such time have numbers.
            return whole_numbers(
                [_exact(bytes(time) if isinstance(time, msgspec.Raw) else repr(time).encode()) for time in times]
            )
        us = np.array(times)
        most = 2**63 // 1000
        if us.dtype == np.int64 and len(us) and -most < us.min() and us.max() < most:
            return us * 1000
        return _rounded(us)

    def _times(self, events: list[AnyEvent]) -> dict[str, np.ndarray[Any, Any]]:
        start = self._ns([event.ts for event in events])
        duration = _rounded(np.array([event.dur for event in events]))
        negative = duration < 0
        if negative.any():
            self.notes["negative_durations"] += int(negative.sum())
            duration[negative] = 0
        return {"start": start, "end": start + np.minimum(duration, np.int64(2**62))}

    def _external(self, args: Sequence[GpuArgs | CallArgs | OpArgs]) -> np.ndarray[Any, Any]:
        ids = whole_numbers([x.external for x in args])
        if "Kernel" in self.seen or "Runtime" in self.seen or "Operator" in self.seen:
            ids = np.where(ids < 0, whole_numbers([x.external_g1 for x in args]), ids)
        return ids

    def _gpu(self, events: list[AnyEvent]) -> None:
        events = self._complete(events)
        args = GPU_ARGS.read(events)
        self.gpu.add(
            **self._times(events),
            kind=np.array([GPU[event.cat or ""] for event in events], np.uint8),
            name=self.names.ids([event.name for event in events]),
            device=_ids([x.device for x in args], [event.pid for event in events]).astype(np.int32),
            stream=_ids([x.stream for x in args], [event.tid for event in events]),
            correlation=whole_numbers([x.correlation for x in args]),
            external=self._external(args),
            bytes=whole_numbers([x.bytes for x in args]),
            grid=self._shape([x.grid for x in args]),
            block=self._shape([x.block for x in args]),
            registers=whole_numbers([x.registers for x in args], np.int32),
            shared=whole_numbers([x.shared for x in args], np.int32),
            blocks_per_sm=numbers([x.blocks_per_sm for x in args]),
            occupancy=numbers([x.occupancy for x in args]),
            graph_node=whole_numbers([x.graph_node for x in args]),
        )

    def _shape(self, raws: Sequence[Any]) -> np.ndarray[Any, Any]:
        """Grids or blocks: (rows, 3). There are few different ones."""
        if len(self.shapes) > MOST_SHAPES:
            self.shapes.clear()
        texts, known = list(map(bytes, raws)), self.shapes
        for text in set(texts) - known.keys():
            known[text] = len(known)
        sizes = np.array([_three(text) for text in known] or [(NONE,) * 3], np.int32)
        return sizes[[known[text] for text in texts]]

    def _calls(self, events: list[AnyEvent]) -> None:
        events = self._complete(events)
        args = CALL_ARGS.read(events)
        self.calls.add(
            **self._times(events),
            name=self.names.ids([event.name for event in events]),
            thread=self.threads.ids([(event.pid, event.tid) for event in events]),
            correlation=whole_numbers([x.correlation for x in args]),
            external=self._external(args),
        )

    def _ops(self, events: list[AnyEvent]) -> None:
        events = self._complete(events)
        args = OP_ARGS.read(events)
        kinds = np.array([OPS[event.cat or ""] for event in events], np.uint8)
        if "Operator" in self.seen:
            named = [event.cat == "Operator" and event.name.startswith(ANNOTATIONS) for event in events]
            kinds[named] = OpKind.ANNOTATION
        self.ops.add(
            **self._times(events),
            kind=kinds,
            name=self.names.ids([event.name for event in events]),
            thread=self.threads.ids([(event.pid, event.tid) for event in events]),
            external=self._external(args),
            sequence=whole_numbers([x.sequence for x in args]),
            forward_thread=whole_numbers([x.forward_thread for x in args]),
            arguments=np.array(argument_rows(args, self.arguments, self.stacks), np.int32),
        )

    def _python(self, events: list[AnyEvent]) -> None:
        events = self._complete(events)
        kinds = np.array(
            [OpKind.MODULE if event.name.startswith(MODULE) else OpKind.PYTHON for event in events], np.uint8
        )
        if not self.stacks:
            keep = kinds == OpKind.MODULE
            self.notes["stacks_left_out"] += int((~keep).sum())
            times = self._ns([event.ts for event in events])
            self.first = int(times[times > sanity.NO_TIME_BELOW].min(initial=self.first))
            events = [event for event, wanted in zip(events, keep, strict=True) if wanted]
            kinds = kinds[keep]
            if not events:
                return
        nothing = np.full(len(events), NONE, np.int64)
        self.ops.add(
            **self._times(events),
            kind=kinds,
            name=self.names.ids([event.name for event in events]),
            thread=self.threads.ids([(event.pid, event.tid) for event in events]),
            external=nothing,
            sequence=nothing,
            forward_thread=nothing,
            arguments=nothing,
        )

    def _memory(self, events: list[AnyEvent]) -> None:
        events = [event for event in events if event.ph == "i" and event.name == MEMORY]
        args = MEMORY_ARGS.read(events)
        self.memory.add(
            time=self._ns([event.ts for event in events]),
            device=whole_numbers([x.device if x.device_type else NONE for x in args], np.int32),
            bytes=whole_numbers([x.bytes for x in args]),
            allocated=whole_numbers([x.allocated for x in args]),
            reserved=whole_numbers([x.reserved for x in args]),
        )

    def finished(self) -> Trace:
        if not self.gpu.rows + self.calls.rows + self.ops.rows + self.memory.rows:
            raise self._nothing()
        for key, text in self.labels.items():
            self.threads.label(key, text)
        beyond = {
            "long_names": self.names.cut,
            "arguments_left_out": self.arguments.left_out,
            "threads_left_out": self.threads.left_out,
        }
        self.notes.update({note: count for note, count in beyond.items() if count})
        gpu, calls, ops, memory = (table.columns() for table in (self.gpu, self.calls, self.ops, self.memory))
        metadata = read_metadata(self.header, self.notes)
        if not self.notes["amd_gpu"] and any(
            self.names.texts[name].startswith("hip") for name in np.unique(calls["name"])
        ):
            self.notes["amd_gpu"] += 1  # a bare list has nothing but events
        calls["process"] = self.threads.process_of(calls["thread"])
        ops["process"] = self.threads.process_of(ops["thread"])
        gpu["process"] = _process_of_kernels(gpu, calls, self.notes)
        zero = sanity.clean(gpu, calls, ops, memory, self.notes, self.first)
        sanity.count_missing(gpu, calls, self.notes)
        for prefix, note in ACCELERATORS.items():
            if any(category.startswith(prefix) for category in self.seen):
                self.notes[note] += 1
        backward = self.flows.pairs(ops, self.threads, zero)
        return Trace(
            file=self.path.name,
            format=Format.KINETO,
            generation=self._generation(metadata),
            size=self.path.stat().st_size,
            zero_ns=absolute_ns(zero, metadata),
            names=self.names.texts,
            processes=self.threads.processes or [""],
            threads=self.threads.threads,
            devices=metadata.devices,
            gpu=GpuEvents(**gpu),
            calls=Calls(**calls),
            ops=Ops(**ops),
            memory=MemoryEvents(**memory),
            arguments=self.arguments.rows,
            backward_of=backward,
            switches=self._switches(metadata),
            machine=metadata.machine,
            notes=dict(self.notes),
            rank=metadata.rank,
            world_size=metadata.world_size,
        )

    def _nothing(self) -> UsageError:
        if self.notes["unknown_categories"]:
            why = "a trace, but not of PyTorch's profiler: no event has a category that gpuprep knows"
            return UsageError(f"{shown(self.path)}: {why}", files.READABLE)
        if count := self.notes["unreadable_events"]:
            why = f"a trace without one event that can be read: of {count:,} the time, the duration or the name is none"
            return UsageError(f"{shown(self.path)}: {why}", files.READABLE)
        if self.notes["torn"]:
            return UsageError(
                f"{shown(self.path)}: the file ends before its first event does: its writer was stopped",
                "record again, and let the profiler finish writing",
            )
        return UsageError(
            f"{shown(self.path)}: the trace holds no events", "record at least one step; see docs/traces.md"
        )

    def _generation(self, header: Metadata) -> str:
        if FIRST & self.seen:
            return "G1"
        if header.base_ns is not None:
            return "G4"
        return "G3" if self.exact else "G2"

    def _switches(self, header: Metadata) -> dict[str, bool]:
        """As the file says; where it says nothing, as its events show."""
        seen = {
            "record_shapes": any(row.shapes for row in self.arguments.rows),
            "with_stack": PYTHON in self.seen,
            "profile_memory": self.memory.rows > 0,
        }
        return {**{name: True for name, is_there in seen.items() if is_there}, **header.switches}


def _process_of_kernels(
    gpu: dict[str, np.ndarray[Any, Any]], calls: dict[str, np.ndarray[Any, Any]], notes: Counter[str]
) -> Any:
    """The process of the call with the same correlation; the first process where there is none.

    A correlation is unique in its process alone, and a kernel does not tell its process. Where several processes have a
    call of this correlation, the one whose External id is the kernel's, too; else NONE, which is counted.
    """
    process, correlation = calls["process"], gpu["correlation"]
    if not len(process) or (process == process[0]).all():
        return every(process[0] if len(process) else 0, len(correlation))
    processes = _same(correlation, calls["correlation"], process)
    processes[processes == NONE] = process[0]
    several = processes == _SEVERAL
    if several.any():
        external = gpu["external"][several]
        rows = np.flatnonzero(np.isin(calls["correlation"], correlation[several]))
        both = np.stack((np.append(correlation[several], calls["correlation"][rows]),
                         np.append(external, calls["external"][rows])), 1)  # fmt: skip
        key = np.unique(both, axis=0, return_inverse=True)[1].reshape(-1)
        launching = _same(key[: len(external)], key[len(external) :], process[rows])
        launching[(launching == _SEVERAL) | (external < 0)] = NONE
        processes[several] = launching
        if count := int((launching == NONE).sum()):
            notes["several_processes"] += count
    return processes.astype(np.int32)


_SEVERAL = -2


def _same(wanted: Any, keys: Any, values: Any) -> Any:
    """The value of the keys that are the wanted one; NONE where there is none, _SEVERAL where they have several."""
    known, of = np.unique(keys, return_inverse=True)
    least, most = np.full(len(known), np.iinfo(np.int64).max), np.full(len(known), NONE, np.int64)
    np.minimum.at(least, of, values)
    np.maximum.at(most, of, values)
    at = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
    return np.where(known[at] != wanted, NONE, np.where(least[at] == most[at], most[at], _SEVERAL))


def _rounded(times: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """µs as whole nanoseconds; times beyond int64 become its ends, and sanity leaves them out."""
    if times.dtype == object:
        times = np.array([float(time) if abs(time) < 1e300 else 1e300 for time in times], float)
    limit = float(2**62 // 1000)
    times = np.clip(np.asarray(times, float), -limit, limit)
    # Whole and part apart: the product of both would be rounded once more, and be wrong by 1 ns beyond 2**42 µs.
    whole = np.floor(times)
    ns: np.ndarray[Any, Any] = whole.astype(np.int64) * 1000 + np.rint((times - whole) * 1000).astype(np.int64)
    return ns


def _exact(text: bytes) -> int:
    """Decimals of µs, as text, as whole nanoseconds; what is no number, or too large, becomes an impossible time."""
    whole, _, decimals = text.partition(b".")
    if whole.isdigit() and (decimals.isdigit() or not decimals) and len(decimals) <= 3 and len(whole) <= 15:
        return int(whole) * 1000 + int((decimals + b"000")[:3])
    try:
        ns = Decimal(text.decode("ascii", "replace").strip().strip('"')) * 1000
        return int(ns.to_integral_value()) if abs(ns) < -NO_TIME else NO_TIME
    except (InvalidOperation, ValueError, OverflowError):
        return NO_TIME


def _ids(stated: list[Any], row: list[Any]) -> np.ndarray[Any, Any]:
    """Devices or streams: what the arguments say, else what the row of the timeline is called. int64."""
    try:
        ids = np.array(stated, np.int64)
    except (TypeError, ValueError, OverflowError):
        ids = whole_numbers([_id(value) for value in stated])
    for place in np.flatnonzero(ids == NONE).tolist():
        ids[place] = _id(row[place])
    return np.where(np.abs(ids) < 2**31, ids, NONE)


def _id(value: Any) -> int:
    """A device or stream: 7, "7" or "stream 7"."""
    value = plain_id(value)
    if isinstance(value, str):
        value = plain_id(value.rpartition(" ")[2])
    return int(value) if isinstance(value, (int, float)) and abs(value) < 2**62 else NONE


def _three(text: bytes) -> tuple[int, int, int]:
    try:
        sizes = msgspec.json.decode(text, type=list[int]) if text else []
    except (msgspec.DecodeError, UnicodeDecodeError):
        return (NONE, NONE, NONE)
    if len(sizes) != 3 or not all(0 <= size < 2**31 for size in sizes):
        return (NONE, NONE, NONE)
    return (sizes[0], sizes[1], sizes[2])
