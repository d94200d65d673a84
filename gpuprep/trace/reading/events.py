"""An event of a Kineto trace as msgspec reads it: only the fields that are used, everything else is skipped."""

from __future__ import annotations

from typing import Any, Union

import msgspec

Raw = msgspec.Raw
NO_TEXT = Raw(b"")
Number = Union[int, float]
Id = Union[int, float, str, None]


class Args(msgspec.Struct, gc=False):
    """`args` of an event. Fields that are seldom looked at stay raw."""

    correlation: int = -1
    external: int = msgspec.field(default=-1, name="External id")
    external_g1: int = msgspec.field(default=-1, name="external id")
    # of GPU events
    device: int = -1
    stream: Id = None  # a Triton op has one, too
    bytes: Number = -1
    grid: Raw = NO_TEXT
    block: Raw = NO_TEXT
    registers: int = msgspec.field(default=-1, name="registers per thread")
    shared: int = msgspec.field(default=-1, name="shared memory")
    blocks_per_sm: Union[float, str, None] = msgspec.field(default=None, name="blocks per SM")
    occupancy: Union[float, str, None] = msgspec.field(default=None, name="est. achieved occupancy %")
    graph_node: int = msgspec.field(default=-1, name="graph node id")
    # of ops
    sequence: int = msgspec.field(default=-1, name="Sequence number")
    forward_thread: int = msgspec.field(default=-1, name="Fwd thread id")
    shapes: Raw = msgspec.field(default=NO_TEXT, name="Input Dims")
    dtypes: Raw = msgspec.field(default=NO_TEXT, name="Input type")
    strides: Raw = msgspec.field(default=NO_TEXT, name="Input Strides")
    concrete: Raw = msgspec.field(default=NO_TEXT, name="Concrete Inputs")
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
    # of [memory]
    device_type: Number = msgspec.field(default=-1, name="Device Type")
    device_id: Number = msgspec.field(default=-1, name="Device Id")
    memory_bytes: Number = msgspec.field(default=0, name="Bytes")
    allocated: Number = msgspec.field(default=-1, name="Total Allocated")
    reserved: Number = msgspec.field(default=-1, name="Total Reserved")
    # of metadata: the name of a process or thread
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
NO_ARGS = Args()


class Event(msgspec.Struct, gc=False):
    ph: str = ""
    cat: Union[str, None] = None
    name: str = ""
    pid: Id = None
    tid: Id = None
    ts: Number = 0
    dur: Number = 0
    id: Id = None
    args: Union[Args, None] = None


class ExactEvent(msgspec.Struct, gc=False):
    """The same where a double is too coarse for `ts`: nanoseconds as decimals of µs since 1970."""

    ph: str = ""
    cat: Union[str, None] = None
    name: str = ""
    pid: Id = None
    tid: Id = None
    ts: Raw = Raw(b"0")
    dur: Number = 0
    id: Id = None
    args: Union[Args, None] = None


AnyEvent = Union[Event, ExactEvent]
decode_events = msgspec.json.Decoder(list[Event]).decode
decode_exact = msgspec.json.Decoder(list[ExactEvent]).decode
_FIELDS = {field.encode_name: field for field in msgspec.structs.fields(Args)}
_RAW = {name for name, field in _FIELDS.items() if field.type is Raw}
_WHOLE = {name for name, field in _FIELDS.items() if field.type is int}
_NUMBERS = {name for name, field in _FIELDS.items() if field.type == Number}
_ID = {"stream"}


def lenient(found: Any, exact: bool) -> AnyEvent | None:
    """An event whose fields have odd types, as far as it makes sense; None where it does not.

    Without a time that is a number an event cannot be placed, so there is none.
    """
    if not isinstance(found, dict):
        return None
    ts, dur = _number(found.get("ts", 0)), _number(found.get("dur", 0))
    if ts is None or dur is None or not isinstance(found.get("ph"), str):
        return None
    words = {key: found.get(key) for key in ("ph", "cat", "name")}
    common: dict[str, Any] = {
        **{key: word if isinstance(word, str) else str(word or "") for key, word in words.items()},
        **{key: _id(found.get(key)) for key in ("pid", "tid", "id")},
        "dur": dur,
        "args": _args(found.get("args")),
    }
    if exact:
        return ExactEvent(ts=Raw(str(ts).encode()), **common)
    return Event(ts=ts, **common)


def _args(found: Any) -> Args | None:
    if not isinstance(found, dict):
        return None
    known: dict[str, Any] = {}
    for name, value in found.items():
        field = _FIELDS.get(name)
        if field is None or value is None:
            continue
        if name in _RAW:
            known[field.name] = Raw(msgspec.json.encode(value))
        elif name in _ID:
            known[field.name] = _id(value)
        elif name in _WHOLE or name in _NUMBERS:
            number = _number(value)
            if number is not None:
                known[field.name] = int(number) if name in _WHOLE else number
        elif isinstance(value, (int, float, str)):
            known[field.name] = str(value) if name == "name" else value
    return Args(**known)


def _id(value: Any) -> Id:
    return value if isinstance(value, (int, float, str)) or value is None else str(value)[:100]


def _number(value: Any) -> Number | None:
    """A number, or a text that is one; None for others, infinity and what is not a number."""
    if isinstance(value, str):
        try:
            value = float(value) if set(value) & set(".eE") else int(value[:40])
        except ValueError:
            return None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return value if abs(value) < 1e300 else None  # False for nan, too
