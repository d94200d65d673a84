"""Checks the form of measurements: each value has the type that its dataclass names. Pure.

Probes always have this form; a file may contain anything. Decoding turns a value of another type into "not recorded"
(records/evidence.py), and many checks accept a missing figure. But the program that wrote a wrong value may have
written other wrong values, so the result is UNKNOWN. A file of video figures is refused, with the wrong key.
Keys may be absent, and a figure or text may be null or missing: the checks decide what that means.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import typing
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Union

from gpuprep.checks.evidence import Values
from gpuprep.records import Finding, Missing, Status
from gpuprep.records.evidence import Capabilities, Word, key_of
from gpuprep.records.evidence.kinds import OF_PROBE
from gpuprep.records.evidence.transcode import Expected
from gpuprep.records.serialize import shown

REFUSED = ("transcode", "throughput")
# Older files have other forms of these; nothing but `quick` counts, and whatever is not `true` there is stricter.
# No check reads the layout, the number of repetitions and of candidates of a product.
NOT_CHECKED = (
    "quick", "ffmpeg", "inputs", "number", "first_frame", "last_frame", "memory_mib", "age_seconds", "layout",
    "iterations", "candidates", "error_tolerance",
)  # fmt: skip
NAMED = 3
REMEDY = "measure again; figures that you wrote yourself: docs/records.md has their forms"
EXPECTED = "values of the kind that the probe writes"
WORDS = {str: "a text", bool: "true or false", int: "a number", float: "a number"}
CAPABILITY = "a name such as nvenc.h264"


def refused(probe: str, values: object) -> str:
    """What is wrong with a file of video figures, which is then not judged; "" if nothing is."""
    return next(problems(probe, values), "") if probe in REFUSED else ""


def findings(results: Mapping[str, Values]) -> list[Finding]:
    """UNKNOWN for each probe with values of a wrong type."""
    findings = []
    for probe, values in results.items():
        wrong = [] if isinstance(values, Missing) else list(problems(probe, _without_nulls(values)))
        if wrong:
            more = f" and {len(wrong) - NAMED} more" if len(wrong) > NAMED else ""
            why = f"{'; '.join(wrong[:NAMED])}{more}: no probe writes that, so the record is damaged"
            findings.append(
                Finding(probe, "forms", Status.UNKNOWN, EXPECTED, f"{len(wrong)} of another kind", why, REMEDY)
            )
    return findings


def _without_nulls(value: Any) -> Any:
    """`value` without nulls: a null counts as absent."""
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    return [_without_nulls(item) for item in value if item is not None] if isinstance(value, list) else value


def problems(probe: str, values: object) -> Iterator[str]:
    """ "series[3].steps: want a list, got 3" for each value of another type than the probe writes."""
    if isinstance(values, dict) and probe in OF_PROBE:
        yield from _object(OF_PROBE[probe], values, "")


def _object(kind: Any, value: object, where: str) -> Iterator[str]:
    if not isinstance(value, dict):
        yield f"{where}: want an object, got {shown(value)}"
        return
    for key, hint in _keys(kind).items():
        if key in value:
            yield from _value(hint, value[key], f"{where}.{key}" if where else key, kind is Expected)


@functools.cache
def _keys(kind: Any) -> Mapping[str, Any]:
    """Key ► type of the checked fields. Cached, because Python evaluates annotations each time."""
    hints = typing.get_type_hints(kind, include_extras=True)
    keys = {key_of(spec): hints[spec.name] for spec in dataclasses.fields(kind)}
    return {key: hint for key, hint in keys.items() if key not in NOT_CHECKED}


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
        if fits and kind is int and value != int(value):  # type: ignore[call-overload]
            fits, words = False, "a whole number"
    else:
        fits = isinstance(value, kind)
    if not fits:
        yield f"{where}: want {words}, got {shown(value)}"


@functools.cache
def _plain(hint: Any) -> Any:
    """Annotated[X, ...] and Union[X, Missing, None] ► X."""
    while typing.get_origin(hint) in (Annotated, Union):
        hint = next(argument for argument in typing.get_args(hint) if argument not in (Missing, type(None)))
    return hint
