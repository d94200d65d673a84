"""The module streams of NVIDIA's RPM repositories, as metadata of a stub repository."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import yaml

from gpuprep import catalogue
from gpuprep.sim.archive import rpmpayload, rpmspec, stubs
from gpuprep.sim.archive.stubs import Archive, Stub


def modules(archive: Archive, packages: Sequence[Stub]) -> str:
    """The module streams of a repository in their own format, modulemd."""
    data = stubs.data(archive.modules)
    documents: list[dict[str, object]] = []
    profiles: dict[str, list[str]] = {}
    for name, stream in data["streams"].items():
        if archive.dist not in stream["systems"]:
            continue
        artifacts = _artifacts(packages, stream)
        profiles[name] = ["default"]
        documents.append(
            {
                "document": "modulemd",
                "version": 2,
                "data": {
                    "name": data["name"],
                    "stream": name,
                    "version": 20261101000000,
                    "context": hashlib.sha256(name.encode()).hexdigest()[:8],
                    "arch": "x86_64",
                    "summary": f"stand-in of a simulated machine: NVIDIA's driver, {name}",
                    "description": "A stand-in of a simulated machine (gpuprep sim).",
                    "license": {"module": ["MIT"]},
                    "profiles": {key: {"rpms": rpms} for key, rpms in stream["profiles"].items()},
                    "artifacts": {"rpms": artifacts},
                },
            }
        )
    default = {"module": data["name"], "stream": data["default"][archive.dist], "profiles": profiles}
    documents.append({"document": "modulemd-defaults", "version": 1, "data": default})
    return yaml.safe_dump_all(documents, explicit_start=True, explicit_end=True, sort_keys=False)


def _artifacts(packages: Sequence[Stub], stream: dict[str, str]) -> list[str]:
    """All versions of the branch, of the kernel modules its own kind alone, in the newest version alone."""
    chosen = []
    for stub in packages:
        if stub.name == "dnf-plugin-nvidia":
            chosen.append(stub)
        elif not stub.upstream.startswith(f"{stream['branch']}."):
            continue
        elif rpmpayload.MODULE.fullmatch(stub.name):
            newest = _newest(packages, stub.name, stream["branch"])
            chosen += [stub] if stub.name == stream.get("kernel_module") and stub.version == newest else []
        else:
            chosen.append(stub)
    return sorted(map(rpmspec.nevra, chosen))


def _newest(packages: Sequence[Stub], name: str, branch: str) -> str:
    versions = [stub.version for stub in packages if stub.name == name and stub.upstream.startswith(f"{branch}.")]
    return max(versions, key=lambda version: [int(part) for part in catalogue.upstream(version).split(".")])
