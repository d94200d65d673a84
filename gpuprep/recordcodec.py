"""Records ─► JSON and back, and Missing, the value that stands in a record for a reading that could not be taken.

Stdlib only; this module also runs on the GPU VM (Python 3.9 or newer).
"""

from __future__ import annotations

import collections.abc
import dataclasses
import enum
import json
import types
import typing
from dataclasses import dataclass
from functools import lru_cache
from operator import attrgetter
from typing import Any, Callable, TypeVar, Union


@dataclass(frozen=True)
class Missing:
    """A reading that could not be taken. `reason` is one of the words below, `detail` the original message.

    not_supported, function_not_found, gpu_is_lost, no_permission, deprecated, driver_not_loaded,
    library_not_found, version_mismatch, command_not_found, command_failed, unparsable, not_installed, not_read
    """

    reason: str
    detail: str = ""


_T = TypeVar("_T")


class DecodeError(ValueError):
    """A JSON document is not the record it should be; the message names the field."""


def to_json_value(value: Any) -> Any:
    """A record as plain JSON values. Missing becomes {"missing": reason, "detail": ...}."""
    kind: Any = type(value)
    return _encoder(kind)(value)


def to_json(value: Any, indent: int | None = None) -> str:
    return json.dumps(to_json_value(value), indent=indent, sort_keys=False)


def from_json(cls: type[_T], text: str) -> _T:
    """Decode `text` as a `cls`. Raises DecodeError naming the field that does not fit."""
    try:
        document = json.loads(text)
    except ValueError as error:
        raise DecodeError(f"not JSON: {error}") from error
    return from_json_value(cls, document)


def from_json_value(cls: type[_T], document: Any) -> _T:
    kind: Any = cls
    try:
        return typing.cast(_T, _decoder(kind)(document))
    except _Misfit as error:
        raise DecodeError(f"{cls.__name__}{error.place}: {error}") from error


# A record has thousands of parts of a few kinds: how a kind is read and written is worked out once.


@lru_cache(maxsize=None)
def _encoder(kind: type) -> Callable[[Any], Any]:
    if issubclass(kind, Missing):
        return lambda value: {"missing": value.reason, "detail": value.detail}
    if dataclasses.is_dataclass(kind):
        names = [spec.name for spec in dataclasses.fields(kind)]
        return lambda value: {name: to_json_value(getattr(value, name)) for name in names}
    if issubclass(kind, enum.Enum):
        return attrgetter("value")
    if issubclass(kind, collections.abc.Mapping):
        return lambda value: {str(key): to_json_value(item) for key, item in value.items()}
    if issubclass(kind, (list, tuple)):
        return lambda value: [to_json_value(item) for item in value]
    return lambda value: value


class _Misfit(Exception):
    """A value that is not of its kind; `place` is completed on the way out."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.place = ""

    def inside(self, place: str) -> _Misfit:
        self.place = place + self.place
        return self


def _decoder(kind: Any) -> Callable[[Any], Any]:
    """What makes a `kind` of a JSON value, or raises _Misfit. Not cached: two unions in another order are equal."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if kind is Any:
        return lambda value: value
    if kind is type(None):
        return _none
    if kind is Missing:
        return _missing
    if origin is Union or origin is getattr(types, "UnionType", Union):
        return _union_of(arguments)
    if origin is tuple:
        return _tuple_of(arguments[0])
    if origin in (dict, collections.abc.Mapping):
        return _dict_of(arguments[1])
    if issubclass(kind, enum.Enum):
        return _member_of(kind)
    if dataclasses.is_dataclass(kind):
        return _record_of(kind)
    return _plain(kind)


def _none(value: Any) -> None:
    if value is not None:
        raise _Misfit(f"want null, got {value!r:.60}")


def _missing(value: Any) -> Missing:
    if not (isinstance(value, dict) and "missing" in value):
        raise _Misfit(f"want a missing reading, got {value!r:.60}")
    return Missing(str(value["missing"]), str(value.get("detail", "")))


def _plain(kind: type) -> Callable[[Any], Any]:
    def decode(value: Any) -> Any:
        if type(value) is kind:
            return value
        if kind is float and type(value) is int:
            return float(value)
        if not isinstance(value, kind) or kind is int:  # bool is an int to Python, and none here
            raise _Misfit(f"want {kind.__name__}, got {value!r:.60}")
        return value

    return decode


def _member_of(kind: type[enum.Enum]) -> Callable[[Any], Any]:
    def decode(value: Any) -> Any:
        try:
            return kind(value)
        except ValueError as error:
            allowed = ", ".join(str(member.value) for member in kind)
            raise _Misfit(f"{value!r:.60} is none of {allowed}") from error

    return decode


def _tuple_of(kind: Any) -> Callable[[Any], Any]:
    item = _decoder(kind)

    def decode(value: Any) -> Any:
        if not isinstance(value, list):
            raise _Misfit(f"want a list, got {value!r:.60}")
        found: list[Any] = []
        try:
            for one in value:
                found.append(item(one))
        except _Misfit as error:
            raise error.inside(f"[{len(found)}]") from None
        return tuple(found)

    return decode


def _dict_of(kind: Any) -> Callable[[Any], Any]:
    item = _decoder(kind)

    def decode(value: Any) -> Any:
        if not isinstance(value, dict):
            raise _Misfit(f"want an object, got {value!r:.60}")
        found = {}
        for key, one in value.items():
            try:
                found[key] = item(one)
            except _Misfit as error:
                raise error.inside(f".{key}") from None
        return found

    return decode


def _union_of(kinds: tuple[Any, ...]) -> Callable[[Any], Any]:
    may_be_none, may_be_missing = type(None) in kinds, Missing in kinds
    others = [_decoder(kind) for kind in kinds if kind not in (Missing, type(None))]

    def decode(value: Any) -> Any:
        if value is None and may_be_none:
            return None
        if may_be_missing and isinstance(value, dict) and "missing" in value:
            return _missing(value)
        first = None
        for decode_other in others:
            try:
                return decode_other(value)
            except _Misfit as error:
                first = first or error
        raise first or _Misfit(f"{value!r:.60} does not fit")

    return decode


def _record_of(kind: Any) -> Callable[[Any], Any]:
    def decode(value: Any) -> Any:
        if not isinstance(value, dict):
            raise _Misfit(f"want an object, got {value!r:.60}")
        arguments = {}
        for name, part, is_required in _parts(kind):
            if name in value:
                try:
                    arguments[name] = part(value[name])
                except _Misfit as error:
                    raise error.inside(f".{name}") from None
            elif is_required:
                raise _Misfit("missing").inside(f".{name}")
        return kind(**arguments)

    return decode


@lru_cache(maxsize=None)
def _parts(kind: Any) -> tuple[tuple[str, Callable[[Any], Any], bool], ...]:
    """(name, what decodes it, is it required). Not asked for before a record is read: it may hold its own kind."""
    hints = typing.get_type_hints(kind)
    return tuple((spec.name, _decoder(hints[spec.name]), _is_required(spec)) for spec in dataclasses.fields(kind))


def _is_required(spec: dataclasses.Field[Any]) -> bool:
    return spec.default is dataclasses.MISSING and spec.default_factory is dataclasses.MISSING
