"""What the roles install by name: their own data, so that what is checked and held is what was installed.

Only where the playbooks are: on the controller, not on a host.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from typing import Any

import yaml

from gpuprep.catalogue import OsRelease
from gpuprep.catalogue.agent import role_folder


def driver_packages(release: OsRelease, source: str, flavour: str, version: str) -> tuple[str, ...]:
    """Packages of the driver that the role gpu_driver installs and holds: source "nvidia", "open", "580.178.04"."""
    data = _driver(release, source, version)
    return (*data["kernel_packages"][flavour], *data["library_packages"], *data["tool_packages"])


def fabric_packages(release: OsRelease, source: str, version: str) -> tuple[str, ...]:
    """What machines with an NVSwitch get besides: Fabric Manager and its libraries."""
    return tuple(_driver(release, source, version)["fabric_packages"])


def cuda_packages(release: OsRelease, source: str, version: str) -> tuple[str, ...]:
    """Packages of the toolkit that the role gpu_cuda installs and holds: source "nvidia", "12.8"."""
    data = _variables("gpu_cuda", release.roles)["gpu_cuda_sources"][source]
    words = {"{version}": version, "{dashed}": version.replace(".", "-"), "{major}": version.split(".")[0]}
    return tuple(_filled(data["packages"], words))


def container_packages() -> tuple[str, ...]:
    """Packages of the container toolkit that the role gpu_containers installs and holds, on every system."""
    return tuple(_variables("gpu_containers", "main")["gpu_containers_packages"])


def codec_libraries(release: OsRelease) -> dict[str, list[str]]:
    """Packages of each library that FFmpeg may be built with on this system, as the role gpu_codec installs them."""
    return dict(_codec(release)["gpu_codec_library_packages"])


def codec_libraries_absent(release: OsRelease) -> dict[str, str]:
    """Libraries that this system does not offer, and why."""
    data = _codec(release)
    number = release.roles.rpartition("-")[2]
    return {**data.get("gpu_codec_library_absent", {}), **data.get("gpu_codec_library_absent_of", {}).get(number, {})}


def _codec(release: OsRelease) -> dict[str, Any]:
    return _variables("gpu_codec", release.roles.rpartition("-")[0])


def ffmpeg_release_key() -> str:
    """Fingerprint of the key that signs FFmpeg's tarballs, as the role gpu_codec has it."""
    return str(_variables("gpu_codec", "main")["gpu_codec_release_key"])


def _driver(release: OsRelease, source: str, version: str) -> dict[str, Any]:
    """The role does the same by gpu_driver_of_branch; tests compare."""
    branch = version.split(".")[0]
    data = _variables("gpu_driver", release.roles.rpartition("-")[0])["gpu_driver_sources"][source]
    found: dict[str, Any] = _filled({**data, **data.get("by_branch", {}).get(branch, {})}, {"{branch}": branch})
    return found


def _filled(data: Any, words: Mapping[str, str]) -> Any:
    text = json.dumps(data)
    for word, value in words.items():
        text = text.replace(word, value)
    return json.loads(text)


@cache
def _variables(role: str, system: str) -> dict[str, Any]:
    """Of one file of a role's vars, which has the name of a system as Ansible gives it: "Debian", "Debian-13"."""
    text = (role_folder(role) / "vars" / f"{system}.yml").read_text(encoding="utf-8")
    variables: dict[str, Any] = yaml.safe_load(text)
    return variables
