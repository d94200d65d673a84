"""The stub archives of simulated RPM systems: which packages they have, what is inside one, and dnf that reads them."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import yaml

from gpuprep.sim import base, rpmpresented
from gpuprep.sim.archive import rpmmodules, rpmpayload, rpmspec, stubs, systems
from gpuprep.sim.archive.payload import Payload
from gpuprep.sim.archive.stubs import Stub
from gpuprep.sim.rpmrepository import Workshop as Workshop

# One system of each kind, as the roles name it ► as `sim up` does; its kin have the same archives.
SYSTEMS = {"EL-10": "rocky10", "EL-9": "rocky9", "EL-8": "rocky8", "Amazon-2023": "amzn2023"}


@dataclass(frozen=True)
class Package:
    name: str
    upstream: str  # the driver's or toolkit's own version
    nevra: str
    requires: tuple[str, ...]
    provides: tuple[str, ...]


@cache
def archives(os_name: str) -> dict[str, list[Package]]:
    """Folder ► packages."""
    return {archive.folder: [_package(stub) for stub in _stubs(archive)] for archive in _archives(os_name)}


@cache
def _stubs(archive: stubs.Archive) -> list[Stub]:
    return list(stubs.stubs(archive))


def _archives(os_name: str) -> tuple[stubs.Archive, ...]:
    return systems.systems()[os_name].archives


def _package(stub: Stub) -> Package:
    relations = stub.relations
    required, provided = tuple(relations.get("depends", ())), tuple(relations.get("provides", ()))
    return Package(stub.name, stub.upstream, rpmspec.nevra(stub), required, provided)


def packages(os_name: str) -> list[Package]:
    return [package for found in archives(os_name).values() for package in found]


def release_package(os_name: str) -> str:
    """The name of the package that says which system it is."""
    return systems.rpm_systems()[os_name].release.package


def nvidias(os_name: str) -> str:
    """The folder of NVIDIA's repository."""
    return f"nvidia/{systems.rpm_systems()[os_name].nvidia}/x86_64"


@cache
def streams(os_name: str) -> dict[str, set[str]]:
    """Module stream of NVIDIA's repository ► its packages."""
    archive = next(one for one in _archives(os_name) if one.folder == nvidias(os_name))
    documents = yaml.safe_load_all(rpmmodules.modules(archive, _stubs(archive)))
    data = [document["data"] for document in documents if document["document"] == "modulemd"]
    return {entry["stream"]: set(entry["artifacts"]["rpms"]) for entry in data}


def inside(name: str, version: str, architecture: str = "noarch") -> Payload:
    """What is in a package."""
    return rpmpayload.rpm_payload(Stub(name, version, architecture, {}))


def batches(os_name: str) -> list[int]:
    """How many packages each run of rpmbuild makes."""
    every = (stub for archive in _archives(os_name) for stub in _stubs(archive))
    return [len(batch.packages) for batch in rpmspec.batches((stub, rpmpayload.rpm_payload(stub)) for stub in every)]


def batches_of(*packages: tuple[str, str]) -> int:
    """How many runs of rpmbuild make these packages (name, version)."""
    made = (Stub(name, version, "noarch", {}) for name, version in packages)
    return len(rpmspec.batches((stub, rpmpayload.rpm_payload(stub)) for stub in made))


def os_release(os_name: str) -> str:
    return rpmpresented.os_release(systems.rpm_systems()[os_name])


def repositories(os_name: str) -> tuple[set[str], set[str], set[str]]:
    """(their ids, those that are off, their folders) of a machine's own repositories."""
    system = systems.rpm_systems()[os_name]
    ids = {name for entries in system.repositories.values() for name in entries}
    folders = {folder for entries in system.repositories.values() for folder in entries.values()}
    return ids, set(system.disabled), folders


RPM_SYSTEMS = list(systems.rpm_systems())


def built(os_name: str) -> Path:
    """The archives as rpmbuild and createrepo_c made them."""
    return rpmpresented.archives(os_name)


def root(os_name: str) -> Path:
    """What a machine has from the beginning."""
    return rpmpresented.system(os_name)


def machines_base(os_name: str) -> Path:
    """The disk that a machine stands on."""
    return base.ensure(os_name)


@contextmanager
def workshop(copied: Path, name: str) -> Iterator[Workshop]:
    """The build root, with a copy of a folder."""
    with Workshop() as found:
        shutil.copytree(copied, found.folder / name, symlinks=True)
        yield found
