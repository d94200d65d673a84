"""The RPM systems that a simulated machine can present, as archive/data/rpm-systems.yml describes them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

import yaml

from gpuprep.sim.archive import stubs


@dataclass(frozen=True)
class Release:
    """The package that says which system it is: dnf takes the release's number from it."""

    package: str
    version: str
    text: str  # of /etc/system-release
    file: str  # its own name of that


@dataclass(frozen=True)
class RpmSystem:
    dist: str
    nvidia: str
    release: Release
    key: str  # file of /etc/pki/rpm-gpg with the key that signs its packages
    os_release: Mapping[str, str]
    repositories: Mapping[str, Mapping[str, str]]
    disabled: tuple[str, ...]


@cache
def systems() -> Mapping[str, RpmSystem]:
    data = yaml.safe_load(stubs.text("rpm-systems"))
    return {
        name: RpmSystem(**{**entry, "release": Release(**entry["release"]), "disabled": tuple(entry["disabled"])})
        for name, entry in data.items()
    }


def names() -> tuple[str, ...]:
    return tuple(systems())
