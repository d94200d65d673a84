"""What the roles install by name: their own data, so that what is checked and held is what was installed.

Only where the playbooks are: on the controller, not on a host.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import yaml

from gpuprep.catalogue import OsRelease
from gpuprep.catalogue.agent import role_folder


def driver_packages(release: OsRelease, source: str, flavour: str) -> tuple[str, ...]:
    """Packages of the driver that the role gpu_driver installs and holds, from "distribution" for "proprietary"."""
    distribution = release.title.rpartition(" ")[0]
    data = _variables("gpu_driver", distribution)["gpu_driver_sources"][source]
    return (*data["kernel_packages"][flavour], *data["library_packages"], *data["tool_packages"])


def cuda_packages(release: OsRelease, source: str) -> tuple[str, ...]:
    """Packages of the toolkit that the role gpu_cuda installs and holds."""
    return tuple(_variables("gpu_cuda", release.title.replace(" ", "-"))["gpu_cuda_sources"][source]["packages"])


@cache
def _variables(role: str, system: str) -> dict[str, Any]:
    """Of one file of a role's vars, which has the name of a system as Ansible gives it: "Debian", "Debian-13"."""
    text = (role_folder(role) / "vars" / f"{system}.yml").read_text(encoding="utf-8")
    variables: dict[str, Any] = yaml.safe_load(text)
    return variables
