"""Figures that others published, by file."""

from __future__ import annotations

from functools import cache
from typing import Any

import yaml
from places import CASES

FOLDER = CASES / "published"


@cache
def published(name: str) -> list[dict[str, Any]]:
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    found: list[dict[str, Any]] = yaml.load((FOLDER / f"{name}.yml").read_text(encoding="utf-8"), Loader=loader)
    return found
