"""What is true of GPUs and package archives, and which versions fit each other? Facts as data, in .yml files.

board("1eb8")               the board with these PCI ids, or None (boards.py)
limits("volta")             what an architecture can and cannot have
archive("debian", "13")     what an OS release offers, or None
ffmpeg_accepts(...)         whether the configure of this FFmpeg accepts these headers
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from gpuprep.catalogue import datafile
from gpuprep.catalogue.boards import (
    INSTANCE,
    Board,
    Model,
    board,
    board_in,
    board_like,
    board_of,
    boards,
    has_mig,
    mig_profiles,
    models,
)
from gpuprep.catalogue.packagenames import ARCHITECTURES, X86, is_version, matches, upstream
from gpuprep.catalogue.versions import branch, host_version, parse
from gpuprep.records import OsFacts

__all__ = [
    "INSTANCE",
    "Archive",
    "ArchiveDriver",
    "Board",
    "Limits",
    "Model",
    "Source",
    "archive",
    "archive_of",
    "archives",
    "board",
    "board_in",
    "board_like",
    "board_of",
    "boards",
    "branch",
    "container_toolkits",
    "cuda_minimum_branch",
    "cudnn_checksums",
    "disk_mib",
    "ffmpeg_accepts",
    "ffmpeg_headers",
    "framework",
    "has_fabric_manager",
    "has_mig",
    "headers_minimum_driver",
    "host_version",
    "is_version",
    "limits",
    "matches",
    "mig_profiles",
    "models",
    "nccl_checksums",
    "npp_limits",
    "nvidia_folder",
    "nvidia_path",
    "open_only_from_branch",
    "parse",
    "series",
    "source",
    "tools",
    "upstream",
]


@dataclass(frozen=True)
class Limits:
    """What an architecture can have. None: no such limit is known."""

    architecture: str
    module_flavours: tuple[str, ...]
    minimum_branch: int
    maximum_branch: int | None
    minimum_cuda: str
    maximum_cuda: str | None
    maximum_cudnn: str | None


@dataclass(frozen=True)
class ArchiveDriver:
    version: str
    modules: tuple[str, ...]  # flavours of kernel modules packaged for this version, and known to build
    broken: Mapping[str, str] = field(default_factory=dict)  # flavour ► why its package does not build
    fabric_manager: bool = True  # False: the source has some, but not of this version


@dataclass(frozen=True)
class Archive:
    """What one source of packages offers for one OS release, newest first."""

    drivers: tuple[ArchiveDriver, ...]
    cuda: tuple[str, ...]
    auto: str = ""  # the branch for a profile that names none; "": the newest
    flavour: str = ""  # of the kernel modules, for a profile that names none; "": the open ones where the GPU can
    unsuited: Mapping[str, str] = field(default_factory=dict)  # branch ► why its packages here cannot be used
    prebuilt: tuple[str, ...] = ()  # branches of which it has prebuilt kernel modules
    dkms: bool = True  # False: its kernel modules are prebuilt alone


@dataclass(frozen=True)
class OsRelease:
    key: str  # "debian-13"
    title: str  # "Debian 13"
    architectures: tuple[str, ...]
    sources: Mapping[str, Archive]
    roles: str  # its name in the roles, with the release: "Debian-13", "EL-9"
    rpm: bool = False  # its packages are rpm, not deb
    signed_driver: str = ""  # a command of the system's own that installs signed open modules; gpuprep only names it
    architecture: str = X86  # whose packages `sources` are of, as `uname -m` names it
    lacks: Mapping[str, str] = field(
        default_factory=dict
    )  # source ► why it is not among `sources` for this architecture
    unserved: Mapping[str, str] = field(default_factory=dict)  # architecture ► why there is no source at all for it

    @property
    def system(self) -> str:
        """The release in words, with the architecture where it is not the usual one: "Ubuntu 24.04 on aarch64"."""
        return self.title if self.architecture == X86 else f"{self.title} on {self.architecture}"


@dataclass(frozen=True)
class Source:
    """One tarball: its upstream URL, and the sha256 of each archive format."""

    version: str
    url: str
    sha256: tuple[str, ...]


@dataclass(frozen=True)
class Tool:
    """An extra tool: what to install, and how to check that it is there."""

    packages: tuple[str, ...]
    commands: tuple[str, ...]
    python_modules: tuple[str, ...]


@cache
def _data(name: str) -> dict[str, Any]:
    return datafile.read(Path(__file__).parent / f"{name}.yml")


# ---------------------------------------------------------------- what fits what


@cache
def limits(architecture: str) -> Limits:
    entry = _data("compatibility")["architectures"][architecture]
    return Limits(
        architecture=architecture,
        module_flavours=tuple(entry["module_flavours"]),
        minimum_branch=entry["driver_branch"]["minimum"],
        maximum_branch=entry["driver_branch"].get("maximum"),
        minimum_cuda=entry["cuda"]["minimum"],
        maximum_cuda=entry["cuda"].get("maximum"),
        maximum_cudnn=entry.get("cudnn", {}).get("maximum"),
    )


def open_only_from_branch() -> int:
    """From this driver branch on there are no proprietary modules."""
    return int(_data("compatibility")["open_modules_only_from_branch"])


def cuda_minimum_branch(cuda: str) -> int | None:
    """The lowest driver branch that runs programs of this CUDA version; None: not known."""
    driver_branch: int | None = _data("compatibility")["cuda_driver_branch"].get(parse(cuda)[0])
    return driver_branch


def headers_minimum_driver(headers: str) -> str | None:
    """The lowest driver for these nv-codec-headers; None: a series the catalogue does not know."""
    driver_version: str | None = _data("compatibility")["headers_driver"].get(series(headers))
    return driver_version


def series(version: str) -> str:
    """The first two numbers: "12.1.14.0" ► "12.1"."""
    return ".".join(version.split(".")[:2])


def ffmpeg_headers(ffmpeg: str) -> tuple[Mapping[str, str], ...] | None:
    """Ranges {"at_least", "below"?} of headers that this FFmpeg's configure accepts; None: series not known."""
    ranges = _data("compatibility")["ffmpeg_headers"].get(series(ffmpeg))
    return None if ranges is None else tuple(ranges)


def ffmpeg_accepts(ffmpeg: str, headers: str) -> bool | None:
    ranges = ffmpeg_headers(ffmpeg)
    if ranges is None:
        return None
    version = parse(headers)
    return any(
        version >= parse(allowed["at_least"]) and ("below" not in allowed or version < parse(allowed["below"]))
        for allowed in ranges
    )


def npp_limits() -> tuple[str, str]:
    """(first FFmpeg without scale_npp, first CUDA whose NPP FFmpeg's configure refuses)."""
    entry = _data("compatibility")["npp"]
    return entry["removed_from_ffmpeg"], entry["cuda_below"]


# ---------------------------------------------------------------- what can be had, and from where


@cache
def archives(architecture: str = X86) -> Mapping[str, OsRelease]:
    """OS releases that the roles serve, by key, with what they offer for machines of this architecture."""
    releases = {}
    for key, entry in _data("archives").items():
        if "sources" not in entry:
            continue
        served = architecture if architecture in entry["architectures"] else X86
        offers = {name: {**offer, **offer.get(served, {})} for name, offer in entry["sources"].items()}
        lacks = {name: offer["lacks"] for name, offer in offers.items() if "lacks" in offer}
        releases[key] = OsRelease(
            key,
            entry["title"],
            tuple(entry["architectures"]),
            {name: _offered(offer) for name, offer in offers.items() if name not in lacks},
            entry.get("roles", entry["title"].replace(" ", "-")),
            entry.get("packages") == "rpm",
            entry.get("signed_driver", ""),
            served,
            lacks,
            entry.get("unserved", {}),
        )
    return releases


def _offered(offer: Mapping[str, Any]) -> Archive:
    return Archive(
        tuple(
            ArchiveDriver(d["version"], tuple(d["modules"]), d.get("broken", {}), d.get("fabric_manager", True))
            for d in offer["driver"]
        ),
        tuple(offer["cuda"]),
        offer.get("auto", ""),
        offer.get("flavour", ""),
        offer.get("unsuited", {}),
        tuple(offer.get("prebuilt", ())),
        offer.get("dkms", True),
    )


def archive(os_id: str, version: str, architecture: str = X86) -> OsRelease | None:
    """What an OS release offers: of "ubuntu", "24.04" exactly that release, of "debian", "12.5" Debian 12.

    Of an architecture that the release is not served on: what it offers on x86_64.
    """
    known = archives(architecture)
    return known.get(f"{os_id}-{version}") or known.get(f"{os_id}-{version.split('.')[0]}")


def archive_of(system: OsFacts) -> OsRelease | None:
    """What a host's OS release offers for the host's architecture."""
    return archive(system.id, system.version_id, system.architecture)


def nvidia_folder(release: OsRelease) -> str:
    """The name of this system in the addresses of NVIDIA's repositories: "ubuntu2404", "rhel9"."""
    system, _, number = release.roles.rpartition("-")
    return {"Debian": "debian", "Ubuntu": "ubuntu", "EL": "rhel", "Amazon": "amzn"}[system] + number.replace(".", "")


def nvidia_path(release: OsRelease) -> str:
    """Where NVIDIA keeps the packages of this system and architecture: "ubuntu2404/x86_64", "rhel9/sbsa"."""
    return f"{nvidia_folder(release)}/{ARCHITECTURES[release.architecture]['nvidia']}"


def has_fabric_manager(os_id: str, source_name: str) -> bool:
    """Whether this source packages Fabric Manager, without which GPUs behind an NVSwitch do not start CUDA."""
    return source_name in _data("archives")["fabric_manager"].get(os_id, ())


def container_toolkits() -> tuple[str, ...]:
    """Versions of NVIDIA's container toolkit, newest first."""
    return tuple(_data("containers")["versions"])


def disk_mib(step: str) -> Mapping[str, int]:
    """Room that a step needs, in MiB by folder: "driver", "cuda nvidia", "codec"; "boot": driver, /boot of its own."""
    needs: Mapping[str, int] = _data("archives")["disk_mib"][step]
    return needs


def source(kind: str) -> Mapping[str, Source]:
    """Tarballs of "ffmpeg" or "nv_codec_headers" by version."""
    entry = _data("sources")[kind]
    return {
        version: Source(version, entry["url"].format(version=version), tuple(checksums))
        for version, checksums in entry["versions"].items()
    }


def cudnn_checksums() -> Mapping[str, Mapping[str, Mapping[str, str]]]:
    """Version of the wheel ► CUDA major ► architecture ► sha256."""
    checksums: Mapping[str, Mapping[str, Mapping[str, str]]] = _data("sources")["cudnn"]
    return checksums


def nccl_checksums() -> Mapping[str, Mapping[str, Mapping[str, str]]]:
    """Version of the wheel, the newest first ► CUDA major ► architecture ► sha256."""
    checksums: Mapping[str, Mapping[str, Mapping[str, str]]] = _data("sources")["nccl"]
    return checksums


def tools(*, rpm: bool = False) -> Mapping[str, Tool]:
    """By name; with `rpm` those that systems with rpm packages have, under their names there."""
    entries = _data("extras")["tools"]
    if rpm:
        entries = {name: {**entry, "packages": entry.get("rpm", entry["packages"])} for name, entry in entries.items()}
    return {name: _tool(entry) for name, entry in entries.items() if entry["packages"] is not None}


def framework(name: str) -> Mapping[str, Tool]:
    """By OS release where the framework can be had; empty where it is not known at all."""
    return {key: _tool(entry) for key, entry in _data("extras")["frameworks"].get(name, {}).items()}


def _tool(entry: dict[str, Any]) -> Tool:
    return Tool(tuple(entry["packages"]), tuple(entry.get("commands", ())), tuple(entry.get("python_modules", ())))
