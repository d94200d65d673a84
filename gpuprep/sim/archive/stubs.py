"""What the data files say: stub packages with their names, versions and relations. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any

import yaml

RELATIONS = ("depends", "provides", "conflicts", "breaks", "replaces")


@dataclass(frozen=True)
class Archive:
    """One folder of the stub archives: where it lies, and which data files fill it."""

    folder: str  # below the root of all: "nvidia/ubuntu2404/x86_64"
    files: tuple[str, ...]
    codename: str = ""  # "": a flat repository, as NVIDIA's are
    components: tuple[str, ...] = ()
    label: str = "NVIDIA CUDA"


@dataclass(frozen=True)
class Stub:
    name: str
    version: str  # the package's: "580.95.05-0ubuntu1"
    architecture: str
    relations: Mapping[str, tuple[str, ...]]

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


ARCHIVES: Mapping[str, tuple[Archive, ...]] = {
    "debian12": (Archive("nvidia/debian12/x86_64", ("nvidia-debian12", "toolkit")),),
    "debian13": (),
    "ubuntu2204": (
        Archive("nvidia/ubuntu2204/x86_64", ("nvidia-ubuntu", "toolkit")),
        Archive("ubuntu", ("ubuntu-22.04",), "jammy", ("main", "restricted", "universe", "multiverse"), "Ubuntu"),
    ),
    "ubuntu2404": (
        Archive("nvidia/ubuntu2404/x86_64", ("nvidia-ubuntu", "toolkit")),
        Archive("ubuntu", ("ubuntu-24.04",), "noble", ("main", "restricted", "universe", "multiverse"), "Ubuntu"),
    ),
}


def upstream(version: str) -> str:
    """A package's version without epoch and revision: "3:580.95.05-0ubuntu1" ► "580.95.05"."""
    return version.split(":")[-1].split("-")[0]


def text(file: str) -> str:
    return (resources.files("gpuprep.sim.archive") / "data" / f"{file}.yml").read_text(encoding="utf-8")


def stubs(archive: Archive) -> Iterator[Stub]:
    """Every package of an archive in every version."""
    for file in archive.files:
        for group in yaml.safe_load(text(file))["groups"]:
            for version in group["versions"]:
                for entry in group["packages"]:
                    yield _stub(entry, version)


def _stub(entry: Mapping[str, Any], version: str) -> Stub:
    def filled(word: str) -> str:
        return word.replace("{v}", version).replace("{u}", upstream(version))

    relations = {name: tuple(map(filled, entry[name])) for name in RELATIONS if name in entry}
    return Stub(filled(entry["name"]), version, entry.get("arch", "amd64"), relations)
