"""Dotted version numbers: compare, and match against a wish."""

from __future__ import annotations

import re


def parse(version: str) -> tuple[int, ...]:
    """ "550.163.01" ► (550, 163, 1). What follows the numbers ("-2", "~12.4.1") is left out. Raises ValueError."""
    found = re.match(r"\d+(\.\d+)*", version)
    if found is None:
        raise ValueError(f"{version!r} is not a version number")
    return tuple(int(part) for part in found.group().split("."))


def branch(version: str) -> int:
    """A driver's branch: "550.163.01" ► 550."""
    return parse(version)[0]


def matches(version: str, wish: str) -> bool:
    """Whether `version` is the wished one: equal, or the wish is its beginning ("550" takes "550.163.01")."""
    return version == wish or version.startswith(f"{wish}.")
