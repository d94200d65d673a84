"""Records ─► JSON and back, and Missing, the value that stands in a record for a reading that could not be taken.

Stdlib only; this module also runs on the GPU VM (Python 3.9 or newer).
"""

from __future__ import annotations

import collections.abc
import dataclasses
import enum
import functools
import json
import types
import typing
from dataclasses import dataclass
from typing import Any, TypeVar, Union


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
    if isinstance(value, Missing):
        return {"missing": value.reason, "detail": value.detail}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: to_json_value(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, collections.abc.Mapping):
        return {str(k): to_json_value(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_json_value(v) for v in value]
    return value


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
    return typing.cast(_T, _decode(cls, document, cls.__name__))


def _decode(kind: Any, value: Any, where: str) -> Any:
    if kind is Any:
        return value
    origin = typing.get_origin(kind)
    if origin is Union or origin is getattr(types, "UnionType", Union):
        return _decode_union(typing.get_args(kind), value, where)
    if origin is tuple:
        if not isinstance(value, list):
            raise DecodeError(f"{where}: want a list, got {value!r:.60}")
        item = typing.get_args(kind)[0]
        return tuple(_decode(item, v, f"{where}[{i}]") for i, v in enumerate(value))
    if origin in (dict, collections.abc.Mapping):
        if not isinstance(value, dict):
            raise DecodeError(f"{where}: want an object, got {value!r:.60}")
        item = typing.get_args(kind)[1]
        return {k: _decode(item, v, f"{where}.{k}") for k, v in value.items()}
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        try:
            return kind(value)
        except ValueError as error:
            allowed = ", ".join(str(member.value) for member in kind)
            raise DecodeError(f"{where}: {value!r:.60} is none of {allowed}") from error
    if kind is Missing:
        if not (isinstance(value, dict) and "missing" in value):
            raise DecodeError(f"{where}: want a missing reading, got {value!r:.60}")
        return Missing(str(value["missing"]), str(value.get("detail", "")))
    if dataclasses.is_dataclass(kind):
        return _decode_dataclass(kind, value, where)
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if kind is type(None):
        if value is not None:
            raise DecodeError(f"{where}: want null, got {value!r:.60}")
        return None
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise DecodeError(f"{where}: want {kind.__name__}, got {value!r:.60}")
    return value


def _decode_union(options: tuple[Any, ...], value: Any, where: str) -> Any:
    if value is None and type(None) in options:
        return None
    if isinstance(value, dict) and "missing" in value and Missing in options:
        return _decode(Missing, value, where)
    errors = []
    for option in options:
        if option in (Missing, type(None)):
            continue
        try:
            return _decode(option, value, where)
        except DecodeError as error:
            errors.append(str(error))
    raise DecodeError(errors[0] if errors else f"{where}: {value!r:.60} does not fit")


def _decode_dataclass(kind: Any, value: Any, where: str) -> Any:
    if not isinstance(value, dict):
        raise DecodeError(f"{where}: want an object, got {value!r:.60}")
    hints = _hints(kind)
    arguments = {}
    for spec in dataclasses.fields(kind):
        if spec.name in value:
            arguments[spec.name] = _decode(hints[spec.name], value[spec.name], f"{where}.{spec.name}")
        elif spec.default is dataclasses.MISSING and spec.default_factory is dataclasses.MISSING:
            raise DecodeError(f"{where}.{spec.name}: missing")
    return kind(**arguments)


@functools.lru_cache(maxsize=None)
def _hints(kind: type) -> dict[str, Any]:
    """A record has hundreds of parts of a few kinds; to work out the types of one takes longer than to decode it."""
    return typing.get_type_hints(kind)
