"""An event of a Kineto trace as msgspec reads it: only the fields that are used, everything else is skipped.

`args` stays raw at first. Then those of all kernels of a piece are read together, those of all calls, and so on: each
kind has a small structure of its own, which is faster than one for all, and flows and Python functions need none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any, Generic, TypeVar, Union

import msgspec
import numpy as np

from gpuprep.trace.columns import NONE, Arguments, OpKind
from gpuprep.trace.reading import repair
from gpuprep.trace.reading.builders import ArgumentsTable, Threads

Raw = msgspec.Raw
NO_TEXT = Raw(b"")
NO_ARGS = Raw(b"{}")
Number = Union[int, float]
# Stands for a time that an event lacks or that cannot be read, as µs and as ns: sanity leaves the event out.
NO_TIME = -(2**62)
Id = Union[int, float, str, None]
A = TypeVar("A", bound=msgspec.Struct)


class Event(msgspec.Struct, gc=False):
    ph: str = ""
    cat: Union[str, None] = None
    name: str = ""
    pid: Id = None
    tid: Id = None
    ts: Number = NO_TIME
    dur: Number = 0
    id: Id = None
    args: Raw = NO_ARGS


class ExactEvent(msgspec.Struct, gc=False):
    """The same where a double is too coarse for `ts`: nanoseconds as decimals of µs since 1970."""

    ph: str = ""
    cat: Union[str, None] = None
    name: str = ""
    pid: Id = None
    tid: Id = None
    ts: Raw = Raw(str(NO_TIME).encode())
    dur: Number = 0
    id: Id = None
    args: Raw = NO_ARGS


class GpuArgs(msgspec.Struct, gc=False):
    """Of kernels, copies and fills. Fields in the order in which the profiler writes them: that is read fastest."""

    external: int = msgspec.field(default=-1, name="External id")
    external_g1: int = msgspec.field(default=-1, name="external id")
    device: int = -1
    stream: Id = None
    correlation: int = -1
    registers: int = msgspec.field(default=-1, name="registers per thread")
    shared: int = msgspec.field(default=-1, name="shared memory")
    blocks_per_sm: Union[float, str, None] = msgspec.field(default=None, name="blocks per SM")
    grid: Raw = NO_TEXT
    block: Raw = NO_TEXT
    occupancy: Union[float, str, None] = msgspec.field(default=None, name="est. achieved occupancy %")
    graph_node: int = msgspec.field(default=-1, name="graph node id")
    bytes: Number = -1


class CallArgs(msgspec.Struct, gc=False):
    """Of calls of the CUDA runtime and driver."""

    external: int = msgspec.field(default=-1, name="External id")
    correlation: int = -1
    external_g1: int = msgspec.field(default=-1, name="external id")


class OpArgs(msgspec.Struct, gc=False):
    """Of operators and annotations."""

    external: int = msgspec.field(default=-1, name="External id")
    sequence: int = msgspec.field(default=-1, name="Sequence number")
    forward_thread: int = msgspec.field(default=-1, name="Fwd thread id")
    external_g1: int = msgspec.field(default=-1, name="external id")
    concrete: Raw = msgspec.field(default=NO_TEXT, name="Concrete Inputs")
    dtypes: Raw = msgspec.field(default=NO_TEXT, name="Input type")
    strides: Raw = msgspec.field(default=NO_TEXT, name="Input Strides")
    shapes: Raw = msgspec.field(default=NO_TEXT, name="Input Dims")
    call_stack: Raw = msgspec.field(default=NO_TEXT, name="Call stack")
    module_hierarchy: Raw = msgspec.field(default=NO_TEXT, name="Module Hierarchy")
    kernel_backend: Raw = NO_TEXT
    num_warps: Raw = NO_TEXT
    collective: Raw = msgspec.field(default=NO_TEXT, name="Collective name")
    in_elements: Raw = msgspec.field(default=NO_TEXT, name="In msg nelems")
    out_elements: Raw = msgspec.field(default=NO_TEXT, name="Out msg nelems")
    dtype: Raw = NO_TEXT
    group_size: Raw = msgspec.field(default=NO_TEXT, name="Group size")
    group_name: Raw = msgspec.field(default=NO_TEXT, name="Process Group Name")
    group_ranks: Raw = msgspec.field(default=NO_TEXT, name="Process Group Ranks")
    collective_sequence: Raw = msgspec.field(default=NO_TEXT, name="Seq")


class MemoryArgs(msgspec.Struct, gc=False):
    """Of `[memory]`."""

    reserved: Number = msgspec.field(default=-1, name="Total Reserved")
    allocated: Number = msgspec.field(default=-1, name="Total Allocated")
    bytes: Number = msgspec.field(default=0, name="Bytes")
    device: Number = msgspec.field(default=-1, name="Device Id")
    device_type: Number = msgspec.field(default=-1, name="Device Type")


class _Time(msgspec.Struct):
    ts: Raw = Raw(str(NO_TIME).encode())


class NameArgs(msgspec.Struct, gc=False):
    """Of metadata: the name of a process or thread."""

    name: Union[str, None] = None


# Fields of an op that `Arguments.other` carries, by the name that the file gives them.
OTHER = {
    "Call stack": "call_stack",
    "Module Hierarchy": "module_hierarchy",
    "kernel_backend": "kernel_backend",
    "num_warps": "num_warps",
    "Collective name": "collective",
    "In msg nelems": "in_elements",
    "Out msg nelems": "out_elements",
    "dtype": "dtype",
    "Group size": "group_size",
    "Process Group Name": "group_name",
    "Process Group Ranks": "group_ranks",
    "Seq": "collective_sequence",
}

AnyEvent = Union[Event, ExactEvent]
decode_events = msgspec.json.Decoder(list[Event]).decode
decode_exact = msgspec.json.Decoder(list[ExactEvent]).decode
decode_one = msgspec.json.Decoder(Event).decode
decode_one_exact = msgspec.json.Decoder(ExactEvent).decode
decode_raw = msgspec.json.Decoder(list[Raw]).decode
FAULTS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class ArgsOf(Generic[A]):
    """Reads `args` of many events at once; those with odd types one by one, as far as they make sense."""

    def __init__(self, kind: type[A]) -> None:
        self._kind = kind
        self._fields = {field.encode_name: field for field in msgspec.structs.fields(kind)}
        self._all: Callable[[bytes], list[A]] = msgspec.json.Decoder(list[kind]).decode  # type: ignore[valid-type]
        self._one: Callable[[bytes], A] = msgspec.json.Decoder(kind).decode

    def read(self, events: Sequence[AnyEvent]) -> list[A]:
        """One entry an event; defaults where it has no `args`."""
        try:
            return self._all(b"[" + b",".join([event.args for event in events]) + b"]")
        except FAULTS:
            return [self._alone(bytes(event.args)) for event in events]

    def _alone(self, text: bytes) -> A:
        if not text:
            return self._kind()
        try:
            return self._one(text)
        except FAULTS:
            return self._leniently(text)

    def _leniently(self, text: bytes) -> A:
        try:
            args = msgspec.json.decode(repair.whole(text))
        except FAULTS:
            return self._kind()
        known: dict[str, Any] = {}
        for name, value in args.items() if isinstance(args, dict) else ():
            field = self._fields.get(name)
            if field is None or value is None:
                continue
            if field.type is Raw:
                known[field.name] = Raw(msgspec.json.encode(value))
            elif field.type == Id:
                known[field.name] = _id(value)
            elif field.type is int or field.type == Number:
                number = _number(value)
                if number is not None:
                    known[field.name] = int(number) if field.type is int else number
            elif isinstance(value, (int, float, str)):
                known[field.name] = str(value) if name == "name" else value
        return self._kind(**known)


def lenient(raw: Raw, exact: bool) -> AnyEvent | None:
    """An event whose fields have odd types, as far as it makes sense; None where it does not.

    Without a time that is a number an event cannot be placed, so there is none.
    """
    try:
        event = msgspec.json.decode(raw)
    except FAULTS:
        return None
    if not isinstance(event, dict):
        return None
    ts, dur = _number(event.get("ts", NO_TIME)), _number(event.get("dur", 0))
    if ts is None or dur is None or not isinstance(event.get("ph"), str):
        return None
    words = {key: event.get(key) for key in ("ph", "cat", "name")}
    common: dict[str, Any] = {
        **{key: word if isinstance(word, str) else str(word or "") for key, word in words.items()},
        **{key: _id(event.get(key)) for key in ("pid", "tid", "id")},
        "dur": dur,
        "args": Raw(msgspec.json.encode(event["args"])) if "args" in event else NO_ARGS,
    }
    if exact:
        # Its own text, which may stand in quotes: as a float it would have lost its last decimals.
        return ExactEvent(ts=msgspec.json.decode(raw, type=_Time).ts, **common)
    return Event(ts=ts, **common)


def _id(value: Any) -> Id:
    return value if isinstance(value, (int, float, str)) or value is None else str(value)[:100]


def _number(value: Any) -> Number | None:
    """A number, or a text with a number; None for anything else, infinity and NaN."""
    if isinstance(value, str):
        try:
            value = float(value) if set(value) & set(".eE") else int(value[:40])
        except ValueError:
            return None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return value if abs(value) < 1e300 else None  # False for nan, too


_LONGEST = 4096  # characters of a text
_LONGEST_STACK = 1 << 16
_MOST_INPUTS = 4096  # foreach optimizers have hundreds
_DEEPEST = 3  # a list of tensors is a list of lists of sizes
_TITLES, _FIELDS = tuple(OTHER), tuple(OTHER.values())
_STACK = _FIELDS.index("call_stack")
_INPUTS = 4
# One call for all fields: this is done for every op.
_values = attrgetter("shapes", "dtypes", "strides", "concrete", *_FIELDS)
_NOTHING = _values(OpArgs())


def argument_rows(args: Sequence[OpArgs], table: ArgumentsTable, stacks: bool) -> list[int]:
    """Indices of the arguments in `table`, NONE where an op has none."""
    return [NONE if values == _NOTHING else _row(values, table, stacks) for values in map(_values, args)]


def _row(values: tuple[Any, ...], table: ArgumentsTable, stacks: bool) -> int:
    key = tuple(map(bytes, values))
    if not stacks and key[_INPUTS + _STACK]:
        key = (*key[: _INPUTS + _STACK], b"", *key[_INPUTS + _STACK + 1 :])
    row = table.find(key)
    if row is not None:
        return row
    if not any(key):
        return NONE
    shapes, dtypes, strides, concrete = (_decoded(text) for text in key[:_INPUTS])
    return table.add(
        key,
        Arguments(
            shapes=_sizes(shapes),
            dtypes=_texts(dtypes),
            strides=_sizes(strides),
            concrete=_texts(concrete),
            other=tuple(
                (_TITLES[place], _text(_decoded(text), _LONGEST_STACK if place == _STACK else _LONGEST))
                for place, text in enumerate(key[_INPUTS:])
                if text
            ),
        ),
    )


def _decoded(text: bytes) -> Any:
    if not text:
        return None
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return text.decode("utf-8", "replace")


def _sizes(value: Any, depth: int = 0) -> tuple[Any, ...]:
    if not isinstance(value, list) or depth > _DEEPEST:
        return ()
    return tuple(_size(entry, depth) for entry in value[:_MOST_INPUTS])


def _size(entry: Any, depth: int) -> Any:
    if isinstance(entry, list):
        return _sizes(entry, depth + 1)
    return entry if isinstance(entry, int) else -1


def _texts(value: Any) -> tuple[str, ...]:
    return tuple(_text(entry, _LONGEST) for entry in value[:_MOST_INPUTS]) if isinstance(value, list) else ()


def _text(value: Any, most: int) -> str:
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode("utf-8", "replace")
    return text if len(text) <= most else text[: most - 1] + "…"


def sizes_of(text: bytes) -> tuple[Any, ...]:
    """Sizes of all inputs, of JSON; () where it is none."""
    return _sizes(_decoded(text))


Array = np.ndarray[Any, Any]


class Flows:
    def __init__(self) -> None:
        self._starts: dict[Any, tuple[Any, Any, int]] = {}
        self._ends: dict[Any, tuple[Any, Any, int]] = {}

    def add(self, events: list[AnyEvent], times: Array) -> None:
        """A flow's begin (s) stands at the forward op, its end (f) at the backward op, with the same id."""
        for event, time in zip(events, times.tolist(), strict=True):
            (self._starts if event.ph == "s" else self._ends)[event.id] = (event.pid, event.tid, time)

    def join(self, others: Flows) -> None:
        self._starts.update(others._starts)
        self._ends.update(others._ends)

    def pairs(self, ops: dict[str, Array], threads: Threads, zero: int) -> Array:
        """int32, (pairs, 2): rows of `ops`, whose times count from `zero`.

        An end without a begin, and the other way round, is no pair.
        """
        both = [flow for flow in self._starts if flow in self._ends]
        if not both or not len(ops["start"]):
            return np.empty((0, 2), np.int32)
        rows = np.stack(
            [_rows_of_ends([ends[flow] for flow in both], ops, threads, zero) for ends in (self._starts, self._ends)], 1
        )
        row_pairs = rows[(rows >= 0).all(axis=1)]
        return row_pairs[np.lexsort((row_pairs[:, 1], row_pairs[:, 0]))].astype(np.int32)


def _rows_of_ends(ends: list[tuple[Any, Any, int]], ops: dict[str, Array], threads: Threads, zero: int) -> Array:
    """The op that starts at the time on the thread; of several the one with a sequence number, then the innermost."""
    candidates = np.flatnonzero(ops["kind"] == OpKind.OP)
    numbered = ops["sequence"][candidates] >= 0
    order = candidates[
        np.lexsort((ops["end"][candidates], ~numbered, ops["start"][candidates], ops["thread"][candidates]))
    ]
    width = int(ops["start"].max()) + 2
    thread = threads.ids([(pid, tid) for pid, tid, _ in ends]).astype(np.int64)
    time = np.array([time for _, _, time in ends], np.int64) - zero
    inside = (time >= 0) & (time < width - 1)
    if width * (len(threads.threads) + 1) >= 2**62:  # the file has impossible times: no single number can be the key
        return np.full(len(ends), -1)
    keys = ops["thread"][order].astype(np.int64) * width + ops["start"][order]
    wanted = thread * width + time
    at = np.minimum(np.searchsorted(keys, wanted), max(len(keys) - 1, 0))
    if not len(keys):
        return np.full(len(ends), -1)
    return np.where(inside & (keys[at] == wanted), order[at], -1)
