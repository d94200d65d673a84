"""NVIDIA's container toolkit, and what a container with a GPU would get on this machine: its CDI specification."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Dict, Iterator, List, Tuple, Union

from gpuprep.agent.facts.shells import which
from gpuprep.agent.host_paths import CDI
from gpuprep.agent.programs.run import SEARCH_PATH, read_text, run
from gpuprep.records import Bool, ContainerFacts, ContainerRuntime, Missing, OptStr
from gpuprep.untrusted.limits import json_document

KIND = "nvidia.com/gpu"
MOST = 20  # paths that are named
MOST_ITEMS = 4096  # devices, mounts and device nodes that are looked at
LIBRARY = re.compile(r"\.so\.(\d{3}(?:\.\d+){1,2})$")
# A runtime's program, the places of its settings, and how these name NVIDIA's runtime. Docker's own containerd needs no
# settings.
DOCKER = ("dockerd", ("/etc/docker/daemon.json",), re.compile(r'"runtimes"\s*:\s*\{[^}]*"nvidia"\s*:'))
CONTAINERD = (
    "containerd", ("/etc/containerd/config.toml", "/etc/containerd/conf.d/99-nvidia.toml"),
    re.compile(r"(?m)^\s*\[plugins\..*\.runtimes\.nvidia\]"),
)  # fmt: skip
CRIO = (
    "crio", ("/etc/crio/crio.conf.d/99-nvidia.toml", "/etc/crio/conf.d/99-nvidia.toml"),
    re.compile(r"(?m)^\s*\[crio\.runtime\.runtimes\.nvidia\]"),
)  # fmt: skip


def facts(specification: str = CDI) -> ContainerFacts:
    devices, paths = _specification(specification)
    absent = [path for path in paths if not Path(path).exists()]
    drivers = sorted({match.group(1) for match in map(LIBRARY.search, paths) if match})
    return ContainerFacts(
        toolkit=_toolkit(),
        devices=devices,
        absent=tuple(absent[:MOST]),
        drivers=tuple(drivers[:MOST]),
        runtimes=tuple(_runtimes()),
    )


def _toolkit() -> OptStr:
    if which("nvidia-ctk", SEARCH_PATH) is None:
        return None
    text = run(["nvidia-ctk", "--version"])
    if isinstance(text, Missing):
        return text
    match = re.search(r"version v?([0-9][0-9.]{0,20})", text)
    return match.group(1) if match else Missing("unparsable", f"nvidia-ctk --version says {text[:60]!r}")


def _specification(path: str) -> Tuple[Union[Tuple[str, ...], Missing, None], List[str]]:
    """(names of the devices, paths on this machine that a container would get)."""
    text = read_text(path)
    if not isinstance(text, str):
        return text, []
    try:
        document = json_document(text)
    except ValueError as error:
        return Missing("unparsable", f"{path}: {error}"), []
    if not isinstance(document, dict) or document.get("kind") != KIND:
        return Missing("unparsable", f"{path} is no specification of {KIND}"), []
    listed = document.get("devices")
    devices = [device for device in listed[:MOST_ITEMS] if isinstance(device, dict)] if isinstance(listed, list) else []
    names = tuple(device["name"] for device in devices if isinstance(device.get("name"), str))
    edits = [document.get("containerEdits"), *(device.get("containerEdits") for device in devices)]
    return names, list(
        dict.fromkeys(host_path for edit in edits if isinstance(edit, dict) for host_path in _paths(edit))
    )


def _paths(edit: Dict[str, Any]) -> Iterator[str]:
    for kind, keys in {"deviceNodes": ("hostPath", "path"), "mounts": ("hostPath",), "hooks": ("path",)}.items():
        listed = edit.get(kind)
        for entry in listed[:MOST_ITEMS] if isinstance(listed, list) else ():
            paths = [entry[key] for key in keys if isinstance(entry.get(key), str)] if isinstance(entry, dict) else []
            if paths and paths[0].startswith("/") and len(paths[0]) < 4096 and "\0" not in paths[0]:
                yield paths[0]


def _runtimes() -> Iterator[ContainerRuntime]:
    for name, files, pattern in (DOCKER, CONTAINERD, CRIO):
        alone = name == "containerd" and which("dockerd", SEARCH_PATH) is not None
        if which(name, SEARCH_PATH) is not None and not alone:
            yield ContainerRuntime("docker" if name == "dockerd" else name, _knows(files, pattern))


def _knows(files: Tuple[str, ...], pattern: "re.Pattern[str]") -> Bool:
    texts = [read_text(file) for file in files]
    if any(isinstance(text, str) and pattern.search(text) for text in texts):
        return True
    return next((text for text in texts if isinstance(text, Missing)), False)
