"""Where gpuprep finds its own files on the controller; the XDG folders are read from the environment at each call."""

from __future__ import annotations

import os
from pathlib import Path


def state_dir() -> Path:
    """Records and logs: $XDG_STATE_HOME/gpuprep."""
    return _base("XDG_STATE_HOME", ".local/state")


def cache_dir() -> Path:
    """What can be fetched or built again: $XDG_CACHE_HOME/gpuprep."""
    return _base("XDG_CACHE_HOME", ".cache")


def config_dir() -> Path:
    """What the user wrote: $XDG_CONFIG_HOME/gpuprep."""
    return _base("XDG_CONFIG_HOME", ".config")


def shipped_profiles_dir() -> Path:
    """The profiles that gpuprep ships, and their schema: inside the package in a wheel, beside it in a source tree."""
    package = Path(__file__).parent
    inside = package / "profiles"
    return inside if inside.is_dir() else package.parent / "profiles"


def _base(variable: str, default: str) -> Path:
    value = os.environ.get(variable, "")
    # The XDG specification: a relative path in these variables is to be ignored.
    root = Path(value) if value.startswith("/") else Path.home() / default
    return root / "gpuprep"
