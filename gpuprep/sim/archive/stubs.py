"""Reads stub packages, with their names, versions and relations, from the data files."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from gpuprep.catalogue import datafile, upstream

RELATIONS = ("depends", "recommends", "provides", "conflicts", "breaks", "replaces", "obsoletes")


@dataclass(frozen=True)
class Archive:
    """One folder of the stub archives: where it lies, and which data files fill it."""

    folder: str  # below the root of all: "nvidia/ubuntu2404/x86_64"
    files: tuple[str, ...]
    codename: str = ""  # "": a flat repository, as NVIDIA's are
    components: tuple[str, ...] = ()
    label: str = "NVIDIA CUDA"
    dist: str = ""  # of RPM packages: which versions of a group, "el9"
    sections: tuple[str, ...] = ("",)  # which groups of a file that has those of several repositories
    modules: str = ""  # the data file of a repository's module streams


@dataclass(frozen=True)
class Stub:
    name: str
    version: str  # the package's: "580.95.05-0ubuntu1"
    architecture: str
    relations: Mapping[str, tuple[str, ...]]
    installed: bool = False  # on a machine from the beginning
    component: str = "restricted"  # of Ubuntu's archive; all of its driver packages are there, Fabric Manager nearly

    @property
    def upstream(self) -> str:
        """The driver's or toolkit's own version: "580.95.05"."""
        return upstream(self.version)

    @property
    def source(self) -> str:
        """The source package, by which NVIDIA's pins match: that of a driver has the branch where the name has it."""
        branch = re.search(r"-(\d{3})(-|$)", self.name)
        if not re.match(r"\d{3}\.", self.version):
            return self.name
        return f"nvidia-graphics-drivers-{branch[1]}" if branch else "nvidia-graphics-drivers"


VAULTS = {"el10": "10.0", "el9": "9.6", "el8": "8.9"}  # an earlier minor release, whose kernels the vault has


def rpm_archives(dist: str, nvidia: str, files: tuple[str, ...], driver: Archive | None) -> tuple[Archive, ...]:
    """Archives of an RPM system: NVIDIA's repository with these files, its own ones, the vault.

    `driver`: the archive with the system's own driver: a package of the section of its name adds it.
    """
    modules = "nvidia-rpm-modules" if dist in data("nvidia-rpm-modules")["default"] else ""
    archives = [Archive(f"nvidia/{nvidia}/x86_64", files, dist=dist, modules=modules)]
    archives.append(Archive("container-toolkit/rpm/x86_64", ("container-toolkit-rpm",), dist=dist))
    own: dict[str, tuple[str, ...]]
    if driver:
        archives.append(driver)
    if dist == "amzn2023":
        own = {"amazonlinux": ("baseos", "appstream", "crb", "amazon"), "vault": ("vault",)}
    else:
        own = {name: (name,) for name in ("baseos", "appstream", "crb", "extras", "epel")}
        own["extras"] += driver.sections if driver else ()
        vault = f"vault/{VAULTS[dist]}"
        own[f"{vault}/BaseOS/x86_64/os"] = ("vault-baseos",)
        own[f"{vault}/AppStream/x86_64/os"] = ("vault-appstream",)
    return (*archives, *(Archive(name, ("el",), dist=dist, sections=sections) for name, sections in own.items()))


@cache
def data(file: str) -> dict[str, Any]:
    return datafile.read(path(file))


def path(file: str) -> Path:
    return Path(__file__).parent / "data" / f"{file}.yml"


def stubs(archive: Archive) -> Iterator[Stub]:
    """Every package of an archive in every version."""
    for file in archive.files:
        for group in data(file)["groups"]:
            if group.get("section", "") not in archive.sections:
                continue
            versions = group["versions"]
            if isinstance(versions, dict):
                versions = versions.get(archive.dist, ())
            for number, version in enumerate(versions, 1):
                installed = bool(group.get("installed")) and number == len(versions)
                for entry in group["packages"]:
                    architecture = entry.get("arch", "x86_64" if archive.dist else "amd64")
                    stub = _stub(entry, version.replace("{dist}", archive.dist), architecture, installed)
                    yield dataclasses.replace(stub, component=group.get("component", stub.component))


def _stub(entry: Mapping[str, Any], version: str, architecture: str, installed: bool) -> Stub:
    epoch, colon, rest = version.rpartition(":")
    values = {"v": version, "u": upstream(version), "E": epoch + colon, "R": f"{rest}.x86_64"}

    def filled(word: str) -> str:
        return re.sub(r"\{(\w)\}", lambda match: values[match[1]], word)

    relations = {name: tuple(map(filled, entry[name])) for name in RELATIONS if name in entry}
    return Stub(filled(entry["name"]), version, architecture, relations, installed)
