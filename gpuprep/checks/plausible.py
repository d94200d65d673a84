"""Doubts about a measurement's own values: figures that nothing can produce, and values of another type.

Impossible is NaN, infinite, negative, a GPU without SMs, 4 GHz. The type is that which the value's dataclass names:
probes always write it; a file may contain anything.

Decoding turns what does not fit into "not recorded" (records/evidence), and many checks accept a missing figure. But a
program that wrote one wrong value may have written others, so the probe is UNKNOWN. A file of video figures is refused,
with the wrong key. Keys may be absent, and a figure or text may be null or missing: the checks decide what that means.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import typing
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, Union

from gpuprep.agent.probes.transcodeproof import IDENTICAL_DB
from gpuprep.checks.conditions import (
    ANY_CLOCK_MHZ,
    ANY_MEMORY_CLOCK_MHZ,
    COLDEST_C,
    HOTTEST_C,
    POWER_PEAK,
    SENSORS_DIFFER_C,
    most_watts,
)
from gpuprep.checks.evidence import Values
from gpuprep.records import Finding, Missing, Status
from gpuprep.records.evidence import LARGEST, Capabilities, Word, is_missing, key_of, missing_of
from gpuprep.records.evidence.kinds import OF_PROBE
from gpuprep.records.evidence.transcode import Expected
from gpuprep.records.serialize import shown

MOST_NAMED = 3


def findings(results: Mapping[str, Values]) -> list[Finding]:
    """UNKNOWN for each probe that has impossible figures, and for each that has values of a wrong type."""
    return [*_each(results, _of_figures), *_each(results, _of_forms)]


def _each(results: Mapping[str, Values], judge: Callable[[str, dict[str, Any]], Finding | None]) -> Iterator[Finding]:
    for probe, values in results.items():
        if not isinstance(values, Missing) and (finding := judge(probe, values)):
            yield finding


def _of_figures(probe: str, values: dict[str, Any]) -> Finding | None:
    if not (wrong := list(figures(values))):
        return None
    why = f"no measurement can give {', '.join(wrong[:MOST_NAMED])}{_more(wrong)}"
    remedy = "measure again; if it happens again, show gpuprep's authors the record"
    return Finding(probe, "figures", Status.UNKNOWN, "possible figures", f"{len(wrong)} impossible", why, remedy)


def _of_forms(probe: str, values: dict[str, Any]) -> Finding | None:
    if not (wrong := list(problems(probe, _without_nulls(values)))):
        return None
    why = f"{'; '.join(wrong[:MOST_NAMED])}{_more(wrong)}: no probe writes that, so the record is damaged"
    remedy = "measure again; figures that you wrote yourself: docs/records.md has their forms"
    expected, actual = "values of the kind that the probe writes", f"{len(wrong)} of another kind"
    return Finding(probe, "forms", Status.UNKNOWN, expected, actual, why, remedy)


def _more(wrong: list[str]) -> str:
    return f" and {len(wrong) - MOST_NAMED} more" if len(wrong) > MOST_NAMED else ""


# ---------------------------------------------------------------- impossible figures

NO_NUMBERS = ("NaN", "Infinity", "-Infinity")  # how the codec keeps a float that is not finite
# Every GPU has more than none of these.
POSITIVE = {
    "sms", "l2_mib", "power_limit_watts", "max_graphics_clock_mhz", "max_video_clock_mhz", "iterations", "buffer_mib",
    "repeats",
}  # fmt: skip
# All other figures are at least 0. exit_code: of a program ended by a signal. saved_seconds: one process may be slower.
LEAST: Mapping[str, float] = {"exit_code": -255, "saved_seconds": -100_000, "temperature_c": COLDEST_C}
# No GPU and no host has more, whatever its board: also for single readings, which the checks of a board do not cover.
MOST: Mapping[str, float] = {
    **dict.fromkeys(("graphics_clock_mhz", "video_clock_mhz", "max_graphics_clock_mhz", "max_video_clock_mhz"),
                    ANY_CLOCK_MHZ),
    "memory_clock_mhz": ANY_MEMORY_CLOCK_MHZ,
    "temperature_c": HOTTEST_C + SENSORS_DIFFER_C,
    "power_watts": POWER_PEAK * most_watts(None),
    **dict.fromkeys(("gpu_utilization_percent", "encoder_utilization_percent", "decoder_utilization_percent",
                     "cpu_percent", "io_wait_percent"), 100.0),
    **dict.fromkeys(("channels", "nvls_channels"), 128),  # of NCCL, which has MAXCHANNELS 64
    "encoder_sessions": 1000,  # one takes some 100 MiB of the GPU's memory
    "l2_mib": 1000,  # a B200 has 126
    "hz": 10_000,  # readings a second: NVML needs a millisecond for one
    "exit_code": 255,  # POSIX
    "index": 1000,  # of a GPU; machines have up to 16
    **dict.fromkeys(("nvenc", "nvdec", "engines"), 100),  # no GPU has more than 10 of them
    "seconds": 100_000,  # a day and more: no probe may take an hour
}  # fmt: skip
ROUNDED = 0.5  # per cent, degrees and watts are means, or rounded


def figures(values: Mapping[str, Any]) -> Iterator[str]:
    """ "gpus[0].gemms[3].microseconds = NaN", in the order of the record. Records are bounded in size and depth."""
    waiting: list[tuple[str, Any]] = [("", values)]
    while waiting:
        path, value = waiting.pop()
        if is_missing(value):  # the codec keeps NaN and infinity so
            if (detail := missing_of(value).detail) in NO_NUMBERS:
                yield f"{path} = {detail}"
        elif isinstance(value, dict):
            waiting += [(f"{path}.{key}" if path else str(key), child) for key, child in reversed(value.items())]
        elif isinstance(value, list):
            waiting += [(f"{path}[{place}]", value[place]) for place in reversed(range(len(value)))]
        elif _is_none(path.rpartition(".")[2].partition("[")[0], value):
            yield f"{path} = {_shown(value)}"


def _is_none(key: str, value: object) -> bool:
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return False
    if not abs(value) < LARGEST or (key in POSITIVE and value <= 0):
        return True
    return value < LEAST.get(key, 0) or value > MOST.get(key, LARGEST) + ROUNDED


def _shown(value: float) -> str:
    if abs(value) < LARGEST:
        return f"{value:g}"
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if value != value else "infinity"
    return "10^15 or more"


# ---------------------------------------------------------------- values of another type

REFUSED = ("transcode", "throughput")
# Older files have other forms of these; nothing but `quick` counts, and whatever is not `true` there is stricter.
# No check reads the layout, the number of repetitions and of candidates of a product.
NOT_CHECKED = (
    "quick", "ffmpeg", "inputs", "number", "first_frame", "last_frame", "memory_mib", "age_seconds", "layout",
    "iterations", "candidates", "error_tolerance",
)  # fmt: skip
WORDS = {str: "a text", bool: "true or false", int: "a number", float: "a number"}
CAPABILITY = "a name such as nvenc.h264"


def refused(probe: str, values: object) -> str:
    """What is wrong with a file of video figures, which is then not judged; "" if nothing is."""
    return next(problems(probe, values), "") if probe in REFUSED else ""


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


# ---------------------------------------------------------------- PSNR and XPSNR (dB) of an output and its source

APART_DB = 25.0  # PSNR and XPSNR of the same pictures differ less


def impossible_quality(psnr: float | None, xpsnr: float | None, *, lossy: bool) -> Iterator[str]:
    """Why the figures are impossible. For identical pictures FFmpeg prints "inf" and the probes write IDENTICAL_DB.
    `lossy`: an encoder or a scaler changed the pictures.
    """
    for name, value in (("PSNR", psnr), ("XPSNR", xpsnr)):
        if value is not None and not 0 <= value <= IDENTICAL_DB:
            yield f"a {name} of {value:g} dB is recorded, and 0 to {IDENTICAL_DB:g} can be"
    if psnr is None:
        return
    if psnr >= IDENTICAL_DB:
        if lossy:
            yield "its pictures are reported as identical with the source's, but an encoder or scaler changes them"
        if xpsnr is not None and xpsnr < IDENTICAL_DB:
            yield f"identical pictures (PSNR) are reported with an XPSNR of {xpsnr:g}"
    elif xpsnr is not None and abs(psnr - xpsnr) > APART_DB:
        yield f"PSNR {psnr:g} and XPSNR {xpsnr:g} dB are of different pictures"
