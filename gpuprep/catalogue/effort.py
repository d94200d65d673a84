"""What does a step of provision take before anybody has timed it? effort.yml: seconds and downloads, as documented."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import yaml


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
    document: dict[str, Any] = yaml.safe_load((Path(__file__).parent / "effort.yml").read_text(encoding="utf-8"))
    return document
