"""The systems that a simulated machine can present, and the stub archives of each: data/systems.yml."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from gpuprep.sim.archive import stubs
from gpuprep.sim.archive.stubs import Archive

CONTAINERS = Archive("container-toolkit/deb/amd64", ("container-toolkit",), label="NVIDIA container toolkit")


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
    files: tuple[str, ...]
    release: Release
    key: str  # file of /etc/pki/rpm-gpg with the key that signs its packages
    os_release: Mapping[str, str]
    repositories: Mapping[str, Mapping[str, str]]
    disabled: tuple[str, ...]
    driver: Archive | None = None  # with the system's own driver, where it has one


@dataclass(frozen=True)
class Presented:
    """What a system with apt says it is, where that is not Debian."""

    name: str  # "Ubuntu"
    version: str  # "24.04"
    codename: str


@dataclass(frozen=True)
class System:
    debian: str  # codename of the Debian release that the machine really is
    lacks: str  # what a rehearsal on it does not show
    archives: tuple[Archive, ...] = ()
    presents: Presented | None = None
    rpm: RpmSystem | None = None


@cache
def systems() -> Mapping[str, System]:
    return {name: _system(entry) for name, entry in stubs.data("systems").items()}


@cache
def rpm_systems() -> Mapping[str, RpmSystem]:
    return {name: system.rpm for name, system in systems().items() if system.rpm}


def _system(entry: Mapping[str, Any]) -> System:
    if "rpm" in entry:
        rpm = _rpm(entry["rpm"])
        archives = stubs.rpm_archives(rpm.dist, rpm.nvidia, rpm.files, rpm.driver)
        return System(entry["debian"], entry["lacks"], archives, rpm=rpm)
    archives = (CONTAINERS, *map(_archive, entry["archives"]))
    return System(
        entry["debian"], entry["lacks"], archives, Presented(**entry["presents"]) if "presents" in entry else None
    )


def _archive(entry: Mapping[str, Any]) -> Archive:
    fields: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in entry.items()}
    return Archive(**fields)


def _rpm(entry: Mapping[str, Any]) -> RpmSystem:
    fields = {**entry, "release": Release(**entry["release"])}
    fields.update({name: tuple(entry[name]) for name in ("files", "disabled")})
    if "driver" in entry:
        fields["driver"] = _archive({"files": entry["files"], "dist": entry["dist"], **entry["driver"]})
    return RpmSystem(**fields)
