"""Records ─► JSON and back, and Missing: the value in a record for a reading that failed.

Stdlib only; this module also runs on the GPU VM (Python 3.9 or newer).
"""

from __future__ import annotations

import collections.abc
import dataclasses
import enum
import json
import math
import re
import reprlib
import types
import typing
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import lru_cache
from operator import attrgetter
from typing import Annotated, Any, Callable, TypeVar, Union

from gpuprep.untrusted.limits import DEPTH, PART_DEPTH, TEXT_LETTERS, json_document
from gpuprep.untrusted.plaintext import one_line, visible


@dataclass(frozen=True)
class Missing:
    """A reading that failed. `reason` is one of the words below, `detail` the original message.

    not_supported, function_not_found, gpu_is_lost, no_permission, deprecated, driver_not_loaded,
    library_not_found, version_mismatch, cuda_not_started, command_not_found, command_failed, unparsable,
    not_installed, not_read, not_visible
    """

    reason: str
    detail: str = ""


_T = TypeVar("_T")


@dataclass(frozen=True)
class Form:
    """The form that a text must have: `Annotated[str, Form(...)]`."""

    what: str  # "a moment": "want a moment, got 'yesterday'"
    fits: Callable[[str], bool]


class DecodeError(ValueError):
    """A JSON document is not a valid record; the message names the field."""


def to_json_value(value: Any) -> Any:
    """A record as plain JSON values. Missing becomes {"missing": reason, "detail": ...}, and so does NaN."""
    kind: Any = type(value)
    if kind is str:  # half of all values
        return _whole(value)
    return _encoder(kind)(value)


def to_json(value: Any, indent: int | None = None) -> str:
    return json.dumps(to_json_value(value), indent=indent, sort_keys=False, allow_nan=False)


def from_json(cls: type[_T], text: str) -> _T:
    """Decode `text` as a `cls`. Raises DecodeError that names the wrong field.

    The result is safe to judge, store and show: it is within the limits of untrusted/limits.py, its texts have no
    unsafe characters, and its numbers are finite.
    """
    return from_json_value(cls, plain_json(text))


def from_last_line(cls: type[_T], output: str) -> _T:
    """As from_json, for the last line of an agent's output: a login script may have printed text before it.

    It may be less deep than a document, because it becomes a part of one.
    """
    return from_json_value(cls, plain_json(last_line(output), PART_DEPTH))


def last_line(output: str) -> str:
    return output.strip().rpartition("\n")[2]


def plain_json(text: str, depth: int = DEPTH) -> Any:
    """The JSON value of a text, within untrusted/limits.py, not yet decoded to a record. Raises DecodeError."""
    try:
        return json_document(text, depth)
    except ValueError as error:
        raise DecodeError(f"not JSON: {error}") from error


def from_json_value(cls: type[_T], document: Any) -> _T:
    """As from_json, for a document that json_document read."""
    kind: Any = cls
    try:
        return typing.cast(_T, _decoder(kind)(document))
    except _Misfit as error:
        raise DecodeError(f"{cls.__name__}{error.place}: {error}") from error
    except RecursionError as error:
        raise DecodeError(f"{cls.__name__}: it is nested too deep") from error


def is_moment(text: str) -> bool:
    """Whether the text is a moment as gpuprep writes it: ISO 8601 with a time zone, in a plausible year."""
    if not _MOMENT.fullmatch(text):
        return False
    try:
        return 1970 <= datetime.fromisoformat(text).astimezone(timezone.utc).year <= 9999
    except (ValueError, OverflowError):
        return False


# What Python 3.9 reads, too.
_MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{3}|\.\d{6})?[+-]\d\d:\d\d", re.ASCII)
_DAY = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_RUN_ID = re.compile(r"[0-9A-Za-z-]{1,64}")


def _is_day(text: str) -> bool:
    return bool(_DAY.fullmatch(text)) and is_moment(f"{text}T12:00:00+00:00")


Moment = Annotated[str, Form("a moment such as 2026-11-22T02:30:00+00:00", is_moment)]
RunId = Annotated[str, Form("the id of a run", lambda text: bool(_RUN_ID.fullmatch(text)))]
# The same, or "" where there is none.
OptMoment = Annotated[str, Form('a moment such as 2026-11-22T02:30:00+00:00, or ""', lambda t: not t or is_moment(t))]
OptDay = Annotated[str, Form('a day such as 2026-11-22, or ""', lambda text: not text or _is_day(text))]
OptRunId = Annotated[str, Form('the id of a run, or ""', lambda text: not text or bool(_RUN_ID.fullmatch(text)))]
ExitCode = Annotated[int, range(256)]

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
    if issubclass(kind, str):
        return _whole
    if issubclass(kind, float):
        return lambda value: value if math.isfinite(value) else {"missing": "unparsable", "detail": _number(value)}
    if issubclass(kind, collections.abc.Mapping):
        return lambda value: {_whole(str(key)): to_json_value(item) for key, item in value.items()}
    if issubclass(kind, (list, tuple)):
        return lambda value: [to_json_value(item) for item in value]
    return lambda value: value


def _whole(text: str) -> str:
    """The text, with half surrogate pairs as escapes, because they cannot be written as UTF-8."""
    return text if text.isprintable() else text.encode("utf-8", "backslashreplace").decode()


class _Misfit(Exception):
    """A value of the wrong type; each caller adds its part to `place`."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.place = ""

    def inside(self, place: str) -> _Misfit:
        self.place = place + self.place
        return self


def _decoder(kind: Any) -> Callable[[Any], Any]:
    """The function that decodes a JSON value to `kind`, or raises _Misfit.

    Not cached: unions with the same members in another order are equal.
    """
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if kind is Any:
        return _any
    if origin is Annotated:
        return _limited(*arguments)
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
        raise _Misfit(f"want null, got {shown(value)}")


def _missing(value: Any) -> Missing:
    if not (isinstance(value, dict) and "missing" in value):
        raise _Misfit(f"want a missing reading, got {shown(value)}")
    return Missing(_text(value["missing"]), _text(value.get("detail", "")))


def _any(value: Any) -> Any:
    """Plain JSON that is safe to show; NaN becomes a reading that failed."""
    return value if _is_fit(value) else _made_fit(value)


def _is_fit(value: Any) -> bool:
    """Whether the value is safe. Nearly every value is, and this test is much faster than cleaning."""
    left, texts = [value], []
    while left:
        item = left.pop()
        kind = type(item)
        if kind is dict:
            texts += item
            left += item.values()
        elif kind is list:
            left += item
        elif kind is str:
            texts.append(item)
        elif kind is float and not math.isfinite(item):
            return False
    return "".join(texts).isprintable() and max(map(len, texts), default=0) <= TEXT_LETTERS


def _made_fit(value: Any) -> Any:
    if type(value) is str:
        return _text(value)
    if type(value) is dict:
        return {_text(key): _made_fit(item) for key, item in value.items()}
    if type(value) is list:
        return [_made_fit(item) for item in value]
    if type(value) is float and not math.isfinite(value):
        return {"missing": "unparsable", "detail": _number(value)}
    return value


# Hosts of a fleet say mostly the same: of a thousand records each text is in memory once. Not sys.intern, whose texts
# Python 3.12 never gives back.
SHARED_LETTERS, MOST_SHARED = 200, 1 << 16
_shared: dict[str, str] = {}


def _text(value: Any) -> str:
    if type(value) is not str:
        raise _Misfit(f"want text, got {shown(value)}")
    if len(value) > TEXT_LETTERS:
        value = f"{value[:TEXT_LETTERS]}… ({len(value) - TEXT_LETTERS} more letters)"
    if not value.isprintable():
        return visible(value)
    if len(_shared) >= MOST_SHARED:
        _shared.clear()
    text: str = value if len(value) > SHARED_LETTERS else _shared.setdefault(value, value)
    return text


def _float(value: Any) -> float:
    if type(value) is float and math.isfinite(value):
        return value
    if type(value) is int:
        return float(value)
    raise _Misfit(f"want a number, got {_number(value) if type(value) is float else shown(value)}")


def _number(value: float) -> str:
    """NaN or Infinity in the spelling of JSON readers."""
    return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"


def shown(value: Any) -> str:
    """A value for a message, cut to a short text."""
    return _brief.repr(value)[:60]


SPOKEN = {int: "a whole number", bool: "true or false"}
_brief = reprlib.Repr()
_brief.maxlevel, _brief.maxstring, _brief.maxlist, _brief.maxdict, _brief.maxlong = 3, 70, 20, 20, 70


def _plain(kind: type) -> Callable[[Any], Any]:
    if kind is str:
        return _text
    if kind is float:
        return _float

    def decode(value: Any) -> Any:
        if type(value) is kind:  # bool is an int to Python, and none here
            return value
        raise _Misfit(f"want {SPOKEN.get(kind, kind.__name__)}, got {shown(value)}")

    return decode


def _limited(kind: Any, limit: Any) -> Callable[[Any], Any]:
    """The decoder of an `Annotated` type: a text with a Form, or a number with a range."""
    decode_plain = _decoder(kind)
    fits = limit.fits if isinstance(limit, Form) else limit.__contains__
    what = limit.what if isinstance(limit, Form) else f"a number from {limit.start} to {limit.stop - 1}"

    def decode(value: Any) -> Any:
        decoded = decode_plain(value)
        if not fits(decoded):
            raise _Misfit(f"want {what}, got {shown(decoded)}")
        return decoded

    return decode


def _member_of(kind: type[enum.Enum]) -> Callable[[Any], Any]:
    def decode(value: Any) -> Any:
        try:
            return kind(value)
        except ValueError as error:
            allowed = ", ".join(str(member.value) for member in kind)
            raise _Misfit(f"{shown(value)} is none of {allowed}") from error

    return decode


def _tuple_of(kind: Any) -> Callable[[Any], Any]:
    item = _decoder(kind)

    def decode(value: Any) -> Any:
        if not isinstance(value, list):
            raise _Misfit(f"want a list, got {shown(value)}")
        elements: list[Any] = []
        try:
            for element in value:
                elements.append(item(element))
        except _Misfit as error:
            raise error.inside(f"[{len(elements)}]") from None
        return tuple(elements)

    return decode


def _dict_of(kind: Any) -> Callable[[Any], Any]:
    item = _decoder(kind)

    def decode(value: Any) -> Any:
        if not isinstance(value, dict):
            raise _Misfit(f"want an object, got {shown(value)}")
        entries = {}
        for key, entry in value.items():
            try:
                entries[_text(key)] = item(entry)
            except _Misfit as error:
                raise error.inside(f".{one_line(key, 60)}") from None
        return entries

    return decode


def _union_of(kinds: tuple[Any, ...]) -> Callable[[Any], Any]:
    may_be_none, may_be_missing = type(None) in kinds, Missing in kinds
    others = [_decoder(kind) for kind in kinds if kind not in (Missing, type(None))]

    def decode(value: Any) -> Any:
        if value is None and may_be_none:
            return None
        if may_be_missing and isinstance(value, dict) and "missing" in value:
            return _missing(value)
        if may_be_missing and type(value) is float and not math.isfinite(value):
            return Missing("unparsable", _number(value))
        first = None
        for decode_other in others:
            try:
                return decode_other(value)
            except _Misfit as error:
                first = first or error
        raise first or _Misfit(f"{shown(value)} does not fit")

    return decode


def _record_of(kind: Any) -> Callable[[Any], Any]:
    def decode(value: Any) -> Any:
        if not isinstance(value, dict):
            raise _Misfit(f"want an object, got {shown(value)}")
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
    """(name, decoder, is it required). Lazy, because record types may be recursive."""
    hints = typing.get_type_hints(kind, include_extras=True)
    return tuple((spec.name, _decoder(hints[spec.name]), _is_required(spec)) for spec in dataclasses.fields(kind))


def _is_required(spec: dataclasses.Field[Any]) -> bool:
    return spec.default is dataclasses.MISSING and spec.default_factory is dataclasses.MISSING
