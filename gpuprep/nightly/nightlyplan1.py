"""Reads plan files of form 1, in which `wanted` was flat, so that hosts with such a file still check themselves."""

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


def as_form_2(document: dict[str, Any]) -> dict[str, Any]:
    """The document in form 2. Absent or wrong values are kept, because decoding reports them."""
    flat = document.get("wanted")
    if not isinstance(flat, dict):
        return document
    flat = {**_DEFAULTS, **flat}
    nested = {part: {name: flat[old] for name, old in names.items() if old in flat} for part, names in _PARTS.items()}
    return {**document, "wanted": {**flat, **nested}, "schema_version": 2}
