"""Reads plan files of earlier forms, so that hosts with such a file still check themselves.

Form 1: `wanted` is flat. Form 2: `thresholds` has percents by name, "sources" by name, and the list "shipped".
"""

from __future__ import annotations

from typing import Any

# Part of Wanted ► its field ► the field's name in form 1.
_PARTS = {
    "agent": {"version": "agent_version", "libraries": "agent_libraries"},
    "driver": {
        name: f"driver_{name}"
        for name in ("source", "version", "archive_version", "flavour", "hold", "gpu_firmware", "packages")
    },
    "cuda": {"version": "cuda_version", "major": "cudnn_cuda_major", "hold": "cuda_hold", "packages": "cuda_packages"},
    "cudnn": {"version": "cudnn_version", "sha256": "cudnn_sha256", "prefix": "cudnn_prefix"},
    "codec": {
        "headers": "headers_version",
        "ffmpeg": "ffmpeg_version",
        "prefix": "codec_prefix",
        "npp": "npp",
        "nvenc": "nvenc",
        "parts": "parts",
    },
    "tuning": {
        name: name
        for name in ("persistence", "clocks", "power_limit_watts", "ecc", "compute_mode", "profiling_counters")
    },
    "extras": {name: f"extras_{name}" for name in ("packages", "commands", "python_modules")},
}
_DEFAULTS = {"installs": True, "decisions": [], "agent_libraries": {}, "nvenc": "auto"}


def as_form_3(document: dict[str, Any]) -> dict[str, Any]:
    """A document of form 1, 2 or 3 in form 3. Absent or wrong values are kept, because decoding reports them."""
    if document["schema_version"] == 1:
        document = _as_form_2(document)
    return _as_form_3(document) if document["schema_version"] == 2 else document


def _as_form_3(document: dict[str, Any]) -> dict[str, Any]:
    flat = document.get("thresholds")
    if not isinstance(flat, dict):
        return document
    sources, shipped = flat.get("sources", {}), flat.get("shipped", [])
    if not isinstance(sources, dict) or not isinstance(shipped, list):
        return document
    thresholds = {
        name: {"percent": percent, "source": sources.get(name, ""), "shipped": name in shipped}
        for name, percent in flat.items()
        if name not in ("sources", "shipped")
    }
    return {**document, "thresholds": thresholds, "schema_version": 3}


def _as_form_2(document: dict[str, Any]) -> dict[str, Any]:
    flat = document.get("wanted")
    if not isinstance(flat, dict):
        return document
    flat = {**_DEFAULTS, **flat}
    nested = {part: {name: flat[old] for name, old in names.items() if old in flat} for part, names in _PARTS.items()}
    return {**document, "wanted": {**flat, **nested}, "schema_version": 2}
