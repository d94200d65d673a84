"""Dotted version numbers, as hosts send them.

A version from a host goes into commands, paths and Ansible variables of the controller. So the whole text must be a
version number; otherwise it is no version (`is_version`, `host_version`).
Not `packaging`: it takes "v1.0" and " 1.0\\n" for versions, too, and the agent's libraries on hosts do not include it.
"""

from __future__ import annotations

from gpuprep.catalogue.packagenames import is_version
from gpuprep.records import Missing


def host_version(reading: str | Missing | None) -> str | Missing | None:
    """A version that a host sent; a text that is no version counts as not read."""
    if not isinstance(reading, str) or is_version(reading):
        return reading
    return Missing("unparsable", f"{reading[:60]!r} is not a version number")


def parse(version: str) -> tuple[int, ...]:
    """ "550.163.01" ► (550, 163, 1). Raises ValueError if the whole text is not a version number."""
    if not is_version(version):
        raise ValueError(f"{version[:60]!r} is not a version number")
    return tuple(int(part) for part in version.split("."))


def branch(version: str) -> int:
    """A driver's branch: "550.163.01" ► 550."""
    return parse(version)[0]
