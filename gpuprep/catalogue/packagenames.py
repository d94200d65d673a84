"""Names and versions of packages, as the plan and the roles both decide them: judged is what was installed.

Without gpuprep's other modules and stdlib only: the collection has this file, too, by a link.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

# ASCII digits only: \d would take those of every script. No real version has more parts or longer ones.
_VERSION = re.compile(r"[0-9]{1,9}(?:\.[0-9]{1,9}){0,7}")
# A kernel of Ubuntu's archive: "6.8.0-136-generic", "6.17.0-1019-aws". Its flavour is part of a package's name.
_KERNEL = re.compile(r"[0-9]{1,2}\.[0-9]{1,3}\.[0-9]{1,3}-[0-9]{1,5}-([a-z][a-z0-9]{0,20}(?:-[a-z0-9]{1,20}){0,3})")
# What archives call an architecture of the kernel (uname -m): NVIDIA's of driver and CUDA, those with deb and
# those with rpm packages.
X86, ARM = "x86_64", "aarch64"
ARCHITECTURES: dict[str, dict[str, str]] = {
    X86: {"nvidia": "x86_64", "deb": "amd64", "rpm": "x86_64"},
    ARM: {"nvidia": "sbsa", "deb": "arm64", "rpm": "aarch64"},
}
_META = re.compile(r"linux-image-([a-z][a-z0-9.-]{0,60})")


def is_version(text: object) -> bool:
    """Whether `text` is a dotted number and nothing else: "12.4" is, "12.4-1", "12.4\\n" and "١٢" are not."""
    return isinstance(text, str) and _VERSION.fullmatch(text) is not None


def upstream(package: str) -> str:
    """A package's version without epoch and revision: "3:580.95.05-0ubuntu1" ► "580.95.05"."""
    return package.split(":")[-1].split("-")[0].split("~")[0]


def matches(version: str, wish: str) -> bool:
    """Whether `version` fits the wanted version: equal, or begins with it ("550" fits "550.163.01")."""
    return is_version(version) and (version == wish or version.startswith(f"{wish}."))


def of_branch(source: Mapping[str, Any], version: str, architecture: str = X86) -> dict[str, Any]:
    """The driver's packages of a source for one version's branch: `by_branch` applied, {branch} replaced.

    Without those that the source has no package of for this architecture (`absent`).
    """
    branch = version.split(".")[0]
    data = {**source, **source.get("by_branch", {}).get(branch, {})}
    data.pop("by_branch", None)
    absent = data.pop("absent", {}).get(architecture, ())
    return _filled(_without(data, absent), {"{branch}": branch})


def needed_on(packages: Iterable[str], one_only: Mapping[str, str], architecture: str) -> list[str]:
    """`packages` without those of another architecture alone: {"nasm": "x86_64"} is not needed on "aarch64"."""
    return [name for name in packages if one_only.get(name, architecture) == architecture]


def of_toolkit(source: Mapping[str, Any], version: str) -> dict[str, Any]:
    """CUDA's packages of a source for one version: {version}, {dashed} and {major} replaced ("12.8", "12-8", "12")."""
    words = {"{version}": version, "{dashed}": version.replace(".", "-"), "{major}": version.split(".")[0]}
    return _filled(source, words)


def kernel_flavour(kernel: str) -> str:
    """ "6.17.0-1019-aws" ► "aws"; "" for a kernel that is not Ubuntu's."""
    match = _KERNEL.fullmatch(kernel)
    return match[1] if match else ""


def followed(kernel: str, packages: Iterable[str]) -> tuple[str, ...]:
    """The meta packages of kernels of the running flavour that are installed: "aws", "generic-hwe-24.04".

    The machine gets new kernels by them. Without one the flavour itself; none for a kernel that is not Ubuntu's.
    """
    flavour = kernel_flavour(kernel)
    if not flavour:
        return ()
    names = (match[1] for match in map(_META.fullmatch, packages) if match)
    # linux-image-virtual is a smaller package of the same kernels as linux-image-generic.
    metas = {re.sub(r"^virtual\b", "generic", name) for name in names if not name.startswith("unsigned-")}
    return tuple(sorted(name for name in metas if f"{name}-".startswith(f"{flavour}-"))) or (flavour,)


def prebuilt(forms: Iterable[str], kernels: Iterable[str]) -> tuple[str, ...]:
    """The packages with prebuilt modules of these kernels: "linux-modules-nvidia-580-server-{kernel}" for each.

    A name without {kernel} is one for all kernels.
    """
    names = list(forms)
    each = (form.replace("{kernel}", kernel) for kernel in kernels for form in names)
    return tuple(dict.fromkeys([*(form for form in names if "{kernel}" not in form), *each]))


def _without(data: Any, absent: Iterable[str]) -> Any:
    """`data` with these names taken out of all lists in it."""
    if isinstance(data, Mapping):
        return {key: _without(value, absent) for key, value in data.items()}
    return [item for item in data if item not in absent] if isinstance(data, list) else data


def _filled(data: Mapping[str, Any], words: Mapping[str, str]) -> dict[str, Any]:
    text = json.dumps(dict(data))
    for word, value in words.items():
        text = text.replace(word, value)
    found: dict[str, Any] = json.loads(text)
    return found
