"""The form of measurements that come from a file: what docs/records.md calls a list is a list, and so on down.

Probes keep to it by construction; a file may hold anything, and a judge shall not have to doubt every level of it. Only
what is named here is looked at: keys may be absent, and a figure or text may be null or missing. What a measurement
lacks is the judges' matter.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from gpuprep.records.codec import shown

TEXT, NUMBER, FLAG = "a text", "a number", "true or false"
# What nobody read, and so cannot be missing: names, and what a case expects.
NAME, CAPABILITY, WISHED_TEXT, WISHED_NUMBER = (
    "a name",
    "a name such as nvenc.h264",
    "a text or null",
    "a number or null",
)
TEXTS, NUMBERS = [TEXT], [NUMBER]
GPU = {"index": NUMBER, "uuid": TEXT, "name": TEXT, "pci_device_id": TEXT}
PROCESSES = [{"pid": NUMBER, "name": TEXT, "owner": TEXT, "age_seconds": NUMBER}]
STREAM = {
    "codec": TEXT, "profile": TEXT, "pixel_format": TEXT, "width": NUMBER, "height": NUMBER, "frames": NUMBER,
    "duration_seconds": NUMBER, "audio": TEXT, "bit_rate_kbps": NUMBER, "bytes": NUMBER, "psnr_db": NUMBER,
    "ssim": NUMBER,
}  # fmt: skip
WISHES = {key: WISHED_TEXT if kind is TEXT else WISHED_NUMBER for key, kind in STREAM.items()}
FORMS: dict[str, dict[str, Any]] = {
    "transcode": {
        "gpu": GPU,
        "chunks": {"files": NUMBER, "renditions": NUMBER, "one_process_seconds": NUMBER,
                   "many_processes_seconds": NUMBER, "saved_seconds": NUMBER},
        "cases": [
            {
                "id": NAME, "chapter": TEXT, "title": TEXT, "command": TEXT, "outcome": TEXT, "decisive_line": TEXT,
                "exit_code": NUMBER, "seconds": NUMBER, "missing_parts": TEXTS, "warnings": TEXTS,
                "needs": {"encoders": TEXTS, "decoders": TEXTS, "filters": TEXTS, "capabilities": [CAPABILITY],
                          "lines": TEXTS},
                "outputs": [
                    {
                        **STREAM, "name": TEXT, "b_frames": NUMBER, "xpsnr_db": NUMBER, "quality_judged": FLAG,
                        "black_seconds": NUMBER, "frozen_seconds": NUMBER, "error": TEXT,
                        "expected": {**WISHES, "b_frames": WISHED_TEXT, "asked_kbps": WISHED_NUMBER},
                    }
                ],
                "gpu_proof": {
                    "nvenc_lines": TEXTS, "nvdec_lines": TEXTS, "encoder_utilization_percent": NUMBER,
                    "decoder_utilization_percent": NUMBER, "encoder_sessions": NUMBER,
                },
            }
        ],
    },
    "throughput": {
        "gpu": GPU,
        "gpus": [{**GPU, "engines": {"nvenc": NUMBER, "nvdec": NUMBER}, "max_video_clock_mhz": NUMBER, "error": TEXT,
                  "before": {"encoder_utilization_percent": NUMBER, "decoder_utilization_percent": NUMBER},
                  "other_processes": PROCESSES}],
        "series": [
            {
                "gpu": GPU, "kind": TEXT, "codec": TEXT, "preset": TEXT, "width": NUMBER, "height": NUMBER,
                "engines": NUMBER, "command": TEXT, "outcome": TEXT, "decisive_line": TEXT,
                "steps": [
                    {
                        "sessions": NUMBER, "died": NUMBER, "died_because": TEXT, "fps": NUMBER, "fps_each": NUMBERS,
                        "frames": NUMBER, "seconds": NUMBER, "start_seconds": NUMBER, "event_reasons": NUMBER,
                        "encoder_utilization_percent": NUMBER, "decoder_utilization_percent": NUMBER,
                        "video_clock_mhz": NUMBER, "power_watts": NUMBER, "temperature_c": NUMBER,
                        "cpu_percent": NUMBER, "io_wait_percent": NUMBER,
                    }
                ],
            }
        ],
    },
}  # fmt: skip


def problems(probe: str, values: object) -> Iterator[str]:
    """ "series[3].steps: want a list, got 3" for each value that is of another kind than the probe writes."""
    if isinstance(values, dict) and probe in FORMS:
        yield from _object(FORMS[probe], values, "")


def _object(form: dict[str, Any], value: dict[str, Any], where: str) -> Iterator[str]:
    for key, part in form.items():
        if key in value:
            yield from _check(part, value[key], f"{where}.{key}" if where else key, optional=True)


def _check(form: Any, value: object, where: str, *, optional: bool = False) -> Iterator[str]:
    if isinstance(form, dict):
        if not isinstance(value, dict):
            yield f"{where}: want an object, got {shown(value)}"
        else:
            yield from _object(form, value, where)
    elif isinstance(form, list):
        if not isinstance(value, list):
            yield f"{where}: want a list, got {shown(value)}"
        else:
            for index, item in enumerate(value):
                yield from _check(form[0], item, f"{where}[{index}]")
    elif not _is(form, value) and not (optional and _is_absent(form, value)):
        yield f"{where}: want {form}, got {shown(value)}"


def _is_absent(form: str, value: object) -> bool:
    if form in (WISHED_TEXT, WISHED_NUMBER):
        return value is None
    return form in (TEXT, NUMBER, FLAG) and (value is None or (isinstance(value, dict) and "missing" in value))


def _is(form: str, value: object) -> bool:
    if form == CAPABILITY:
        return isinstance(value, str) and "." in value
    if form in (TEXT, NAME, WISHED_TEXT):
        return isinstance(value, str)
    if form == FLAG:
        return isinstance(value, bool)
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
