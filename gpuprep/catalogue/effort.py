"""Documented seconds and downloads of each step of provision, for the first run: effort.yml."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from gpuprep.catalogue import datafile


def seconds(step: str) -> float:
    """Of a step, or of `measuring` afterwards; 0 for one that the file lacks."""
    return float(_data()["seconds"].get(step, {"seconds": 0})["seconds"])


def megabytes(step: str, packages: str) -> int:
    """What a host downloads for a step from packages of the source "distribution" or "nvidia"; 0 for nothing."""
    return int(_data()["megabytes"].get(step, {}).get(packages, 0))


def restart_seconds() -> float:
    return float(_data()["restart_seconds"]["seconds"])


@cache
def _data() -> dict[str, Any]:
    return datafile.read(Path(__file__).parent / "effort.yml")
