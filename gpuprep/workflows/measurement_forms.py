"""The form of measurements that come from a file: what its type calls a list is a list, and so on down.

Probes keep to it by construction; a file may hold anything, and whoever wrote it by hand shall read which key is wrong.
The form is that of the dataclasses (records/evidence). Keys may be absent, and a figure or text may be null or missing.
What a measurement lacks is the judges' matter.
"""

from __future__ import annotations

import dataclasses
import math
import typing
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Union

from gpuprep.records import Missing
from gpuprep.records.codec import shown
from gpuprep.records.evidence.decode import Capabilities, Word, key_of
from gpuprep.records.evidence.throughput import Throughput
from gpuprep.records.evidence.transcode import Expected, Transcode

FORMS: Mapping[str, type] = {"transcode": Transcode, "throughput": Throughput}
# Older files have other forms of these; nothing but `quick` counts, and whatever is not `true` there is stricter.
NOT_CHECKED = ("quick", "ffmpeg", "inputs", "number", "first_frame", "last_frame", "memory_mib")
WORDS = {str: "a text", bool: "true or false", int: "a number", float: "a number"}
CAPABILITY = "a name such as nvenc.h264"


def problems(probe: str, values: object) -> Iterator[str]:
    """ "series[3].steps: want a list, got 3" for each value that is of another kind than the probe writes."""
    if isinstance(values, dict) and probe in FORMS:
        yield from _object(FORMS[probe], values, "")


def _object(kind: Any, value: object, where: str) -> Iterator[str]:
    if not isinstance(value, dict):
        yield f"{where}: want an object, got {shown(value)}"
        return
    hints = typing.get_type_hints(kind, include_extras=True)
    for spec in dataclasses.fields(kind):
        key = key_of(spec)
        if key in value and key not in NOT_CHECKED:
            yield from _value(hints[spec.name], value[key], f"{where}.{key}" if where else key, kind is Expected)


def _value(hint: Any, value: object, where: str, wished: bool) -> Iterator[str]:
    plain = _plain(hint)
    if typing.get_origin(plain) is tuple:
        item = typing.get_args(plain)[0]
        if Missing in typing.get_args(hint) and isinstance(value, dict) and "missing" in value:
            return
        if not isinstance(value, list):
            yield f"{where}: want a list, got {shown(value)}"
            return
        for index, entry in enumerate(value):
            yield from _entry(hint, item, entry, f"{where}[{index}]")
    elif dataclasses.is_dataclass(plain):
        yield from _object(plain, value, where)
    elif hint == Word:  # nobody read it, so it cannot be missing
        yield from _simple(plain, value, where, "a name")
    elif wished:
        if value is not None:
            yield from _simple(plain, value, where, f"{WORDS[plain]} or null")
    elif value is not None and not (isinstance(value, dict) and "missing" in value):
        yield from _simple(plain, value, where, WORDS[plain])


def _entry(hint: Any, item: Any, entry: object, where: str) -> Iterator[str]:
    plain = _plain(item)
    if dataclasses.is_dataclass(plain):
        yield from _object(plain, entry, where)
    elif hint == Capabilities:
        if not isinstance(entry, str) or "." not in entry:
            yield f"{where}: want {CAPABILITY}, got {shown(entry)}"
    else:
        yield from _simple(plain, entry, where, WORDS[plain])


def _simple(kind: type, value: object, where: str, words: str) -> Iterator[str]:
    if kind in (int, float):
        fits = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    else:
        fits = isinstance(value, kind)
    if not fits:
        yield f"{where}: want {words}, got {shown(value)}"


def _plain(hint: Any) -> Any:
    """Annotated[X, ...] and Union[X, Missing, None] ► X."""
    while typing.get_origin(hint) in (Annotated, Union):
        hint = next(one for one in typing.get_args(hint) if one not in (Missing, type(None)))
    return hint
