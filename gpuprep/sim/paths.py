"""Folders of simulated VMs: files that can be made again are in the cache, machines in the state folder."""

from __future__ import annotations

import os
from pathlib import Path


def _xdg(variable: str, fallback: str) -> Path:
    value = os.environ.get(variable, "")
    # The XDG specification: a relative value is invalid and to be ignored.
    return Path(value) if value.startswith("/") else Path.home() / fallback


def cache_dir() -> Path:
    """Bases, downloaded packages and compiled stand-ins; may be deleted at any time while no machine runs."""
    return _xdg("XDG_CACHE_HOME", ".cache") / "gpuprep" / "sim"


def state_dir() -> Path:
    """Machines: one folder each under `machines/`, frozen disks under `layers/`."""
    return _xdg("XDG_STATE_HOME", ".local/state") / "gpuprep" / "sim"


def private(folder: Path) -> Path:
    """Makes a folder that only its owner enters: the disks below have programs that run as root, chosen by machines."""
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)
    return folder
