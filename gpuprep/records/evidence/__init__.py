"""What did each probe measure? A dataclass for each probe (docs/records.md describes them), and how to read it.

    measured(gemm.Gemm, result.values)    the values of a ProbeResult, decoded; Missing where the probe gave no answer

A record keeps the values as the probe sent them, so that values of another gpuprep version are not lost. They are
decoded here before use: a value that does not fit counts as not recorded, and the other values stay valid. The checks
decide what its absence means. records/serialize.py has read these values before and refuses records that do not fit, so
their size and depth are bounded and their texts can be shown. Meaning of types:

    str                 a text
    int                 a whole number (also 3.0)
    float               a finite number below 10^15 (also 3); one that is larger or not finite is Missing("unparsable")
    Optional, Missing   null, and {"missing": reason}
    tuple[X, ...]       a list. An entry that does not fit is Missing or None where X may be that; else it is left out
    a dataclass         an object; all its fields have defaults, which stand for what is absent
    Annotated[X, f]     what the function f makes of the value

A field that does not fit has its default, unless it may be Missing: then it is Missing, never a plain None.
"""

from __future__ import annotations

import dataclasses
import math
import typing
from collections.abc import Callable, Mapping
from functools import cache
from typing import Annotated, Any, Optional, TypeVar, Union

from gpuprep.records import Missing

_T = TypeVar("_T")

NO_ANSWER = Missing("not_read", "the record does not say")
LARGEST = 1e15
NOT_RECORDED = Missing("not_recorded")
UNFIT = object()
PLAIN = frozenset({str, int, float, bool, list})
Decode = Callable[[Any], Any]


def measured(kind: type[_T], values: object) -> Union[_T, Missing]:
    """`values` as a `kind`; Missing where the probe gave no answer."""
    if is_missing(values):
        return missing_of(values)
    hashable: Any = kind
    decoded: _T = decoder(hashable)(values)
    return NO_ANSWER if decoded is UNFIT else decoded


def is_missing(value: object) -> bool:
    if type(value) in PLAIN:  # nearly all: to ask for a Mapping takes ten times as long
        return False
    return isinstance(value, Missing) or (isinstance(value, Mapping) and "missing" in value)


def missing_of(value: Any) -> Missing:
    """The Missing in a value for which is_missing is true."""
    return value if isinstance(value, Missing) else Missing(str(value["missing"]), str(value.get("detail", "")))


@cache
def decoder(kind: Any) -> Decode:
    """The function that converts a JSON value to a `kind`, or returns UNFIT. It never raises an exception."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is Annotated:
        made: Decode = arguments[1]
        return made
    if origin is Union:
        return _union_of(arguments)
    if origin is tuple:
        return _tuple_of(arguments[0])
    return _object_of(kind) if dataclasses.is_dataclass(kind) else SIMPLE[kind]


def _text(value: Any) -> Any:
    return value if isinstance(value, str) else UNFIT


def _flag(value: Any) -> Any:
    return value if isinstance(value, bool) else UNFIT


def _number(value: Any) -> Any:
    if type(value) is float and -LARGEST < value < LARGEST:
        return value
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return UNFIT
    if isinstance(value, float) and not math.isfinite(value):
        return Missing("unparsable", "NaN" if value != value else "Infinity" if value > 0 else "-Infinity")
    return float(value) if abs(value) < LARGEST else Missing("unparsable", "10^15 or more")


def is_no_number(figure: object) -> bool:
    """Whether the record has a value for this figure, but it is NaN, infinite, or 10^15 or more."""
    return isinstance(figure, Missing) and figure.reason == "unparsable"


def _whole(value: Any) -> Any:
    number = _number(value)
    return int(number) if isinstance(number, float) and number.is_integer() else UNFIT


SIMPLE: Mapping[Any, Decode] = {str: _text, bool: _flag, float: _number, int: _whole}


def _union_of(kinds: tuple[Any, ...]) -> Decode:
    may_be_none, may_be_missing = type(None) in kinds, Missing in kinds
    others = [decoder(kind) for kind in kinds if kind not in (Missing, type(None))]

    def decode(value: Any) -> Any:
        if value is None:
            return None if may_be_none else UNFIT
        if is_missing(value):
            return missing_of(value) if may_be_missing else UNFIT
        for other in others:
            decoded = other(value)
            if decoded is not UNFIT:
                return UNFIT if isinstance(decoded, Missing) and not may_be_missing else decoded
        return UNFIT

    return decode


def _tuple_of(kind: Any) -> Decode:
    item, kinds = decoder(kind), typing.get_args(kind)
    instead = NOT_RECORDED if Missing in kinds else None if type(None) in kinds else UNFIT

    def decode(value: Any) -> Any:
        if not isinstance(value, (list, tuple)):
            return UNFIT
        elements = [instead if element is UNFIT else element for element in map(item, value)]
        return tuple(elements if instead is not UNFIT else [element for element in elements if element is not UNFIT])

    return decode


def _object_of(kind: Any) -> Decode:
    def decode(value: Any) -> Any:
        if not isinstance(value, Mapping):
            return UNFIT
        arguments = {}
        for name, key, part, absent, unfit in _parts(kind):
            argument = part(value[key]) if key in value else absent
            arguments[name] = unfit if argument is UNFIT else argument
        return kind(**arguments)

    return decode


@cache
def _parts(kind: Any) -> tuple[tuple[str, str, Decode, Any, Any], ...]:
    """(field, key, decoder, value for an absent value, value for a value that does not fit) of each field."""
    hints = typing.get_type_hints(kind, include_extras=True)
    return tuple(_part(spec, hints[spec.name]) for spec in dataclasses.fields(kind))


def _part(spec: dataclasses.Field[Any], hint: Any) -> tuple[str, str, Decode, Any, Any]:
    key, default = key_of(spec), spec.default
    plain = typing.get_args(hint)[0] if typing.get_origin(hint) is Annotated else hint
    if default == NOT_RECORDED and plain == Figure:
        default = Missing("not_recorded", f"no figure {key}")
    unfit = default
    if Missing in typing.get_args(plain) and not isinstance(default, Missing):
        unfit = NOT_RECORDED
    return spec.name, key, decoder(hint), default, spec.metadata.get("unfit", unfit)


def key_of(spec: dataclasses.Field[Any]) -> str:
    """The JSON name of a field."""
    key: str = spec.metadata.get("key", spec.name)
    return key


# ---------------------------------------------------------------- types that several probes share


def _word(value: Any) -> Any:
    return value if isinstance(value, str) and value else UNFIT


def _size(value: Any) -> Any:
    number = _whole(value)
    return number if number is not UNFIT and number > 0 else UNFIT


def _written(value: Any) -> Any:
    return value if isinstance(_number(value), float) else UNFIT


def _names(value: Any) -> Any:
    """A list of names, or UNFIT: from a part of a list one could not say which names are absent."""
    whole = isinstance(value, (list, tuple)) and all(isinstance(name, str) for name in value)
    return tuple(value) if whole else UNFIT


def _capabilities(value: Any) -> Any:
    return UNFIT if (names := _names(value)) is UNFIT or not all("." in name for name in names) else names


def _error(value: Any) -> Any:
    if value is None:
        return ""
    if is_missing(value):
        reading = missing_of(value)
        return f"{reading.reason}: {reading.detail}".rstrip(": ")
    return value if isinstance(value, str) else f"an error that is no text: {value!r:.60}"


Figure = Union[float, Missing]
Word = Annotated[str, _word]  # a text that is not empty
Size = Annotated[Optional[int], _size]  # a whole number above 0
Written = Annotated[float, _written]  # a finite number as it was written, for words: 5 is not shown as 5.0
Names = Annotated[Union[tuple[str, ...], Missing], _names]  # a list of texts and nothing else
Capabilities = Annotated[Union[tuple[str, ...], Missing], _capabilities]  # names such as nvenc.h264
Error = Annotated[str, _error]  # what went wrong, also where the error itself is Missing; "" where nothing did
Column = tuple[Optional[float], ...]  # of telemetry; None where a reading failed
