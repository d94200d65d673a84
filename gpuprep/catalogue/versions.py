"""Dotted version numbers: compare, and match against a wish.

What a host calls a version goes into commands, paths and Ansible's variables of the controller: it is one from its
first letter to its last, or it is none (`is_version`, `host_version`).
"""

from __future__ import annotations

import re

from gpuprep.records import Missing

# ASCII digits only: \d would take those of every script. No real version has more parts or longer ones.
_VERSION = re.compile(r"[0-9]{1,9}(?:\.[0-9]{1,9}){0,7}")


def is_version(text: object) -> bool:
    """Whether `text` is a dotted number and nothing else: "12.4" is, "12.4-1", "12.4\\n" and "١٢" are not."""
    return isinstance(text, str) and _VERSION.fullmatch(text) is not None


def host_version(reading: str | Missing | None) -> str | Missing | None:
    """A version as a host told it; one that is none counts as not read."""
    if not isinstance(reading, str) or is_version(reading):
        return reading
    return Missing("unparsable", f"{reading[:60]!r} is not a version number")


def parse(version: str) -> tuple[int, ...]:
    """ "550.163.01" ► (550, 163, 1). Raises ValueError for what is not a version number from end to end."""
    if not is_version(version):
        raise ValueError(f"{version[:60]!r} is not a version number")
    return tuple(int(part) for part in version.split("."))


def branch(version: str) -> int:
    """A driver's branch: "550.163.01" ► 550."""
    return parse(version)[0]


def matches(version: str, wish: str) -> bool:
    """Whether `version` is the wished one: equal, or the wish is its beginning ("550" takes "550.163.01")."""
    return is_version(version) and (version == wish or version.startswith(f"{wish}."))
