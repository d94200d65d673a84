"""Filters of the CUDA role."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


def cuda_of_version(source: Mapping[str, Any], version: str) -> dict[str, Any]:
    """The data of a source for one version of the toolkit: {version}, {dashed} and {major} replaced ("12.8", "12-8", "12")."""
    text = json.dumps(source)
    for word, value in {
        "{version}": version,
        "{dashed}": version.replace(".", "-"),
        "{major}": version.split(".")[0],
    }.items():
        text = text.replace(word, value)
    found: dict[str, Any] = json.loads(text)
    return found


class FilterModule:
    def filters(self) -> dict[str, object]:
        return {"cuda_of_version": cuda_of_version}
