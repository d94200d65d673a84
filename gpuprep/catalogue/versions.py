"""Dotted version numbers: compare them, and match them with the version of a profile.

A version from a host goes into commands, paths and Ansible variables of the controller. So the whole text must be a
version number; otherwise it is no version (`is_version`, `host_version`).
Not `packaging`: it takes "v1.0" and " 1.0\\n" for versions, too, and the agent's libraries on hosts do not include it.
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


def upstream(package: str) -> str:
    """A package's version without epoch and revision: "3:580.95.05-0ubuntu1" ► "580.95.05"."""
    return package.split(":")[-1].split("-")[0].split("~")[0]


def matches(version: str, wish: str) -> bool:
    """Whether `version` fits the wanted version: equal, or begins with it ("550" fits "550.163.01").

    The role gpu_driver decides the same about packages (gpu_driver_fits).
    """
    return is_version(version) and (version == wish or version.startswith(f"{wish}."))
