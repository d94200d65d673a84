"""Reads a YAML file of gpuprep's own data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml


def read(path: Path) -> dict[str, Any]:
    """By libyaml where it is there, which is several times faster. Raises OSError and YAMLError."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    document: dict[str, Any] = yaml.load(path.read_text(encoding="utf-8"), Loader=loader)
    return document
