"""What is wrong with the settings of container engines and of NVIDIA's toolkit: broken files, programs that are named
there and are absent, and what is meant for another kind of engine."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Iterator, List

from gpuprep.agent.facts.shells import which
from gpuprep.agent.programs.run import SEARCH_PATH, read_text
from gpuprep.untrusted.limits import json_document

DAEMON_JSON = "/etc/docker/daemon.json"
TOOLKIT_TOML = "/etc/nvidia-container-runtime/config.toml"
CONTAINERD_TOML = "/etc/containerd/config.toml"
DOCKER_SOCKET = "/run/docker.sock"  # of an engine that runs as root
KUBELET = "/var/lib/kubelet/config.yaml"
NO_CGROUPS = re.compile(r"(?m)^\s*no-cgroups\s*=\s*true")
LDCONFIG = re.compile(r'(?m)^\s*ldconfig\s*=\s*"@?(/[\w/.-]{1,200})"')
BINARY = re.compile(r'(?m)^\s*BinaryName\s*=\s*"(/[\w/.-]{0,200}nvidia[\w/.-]{0,200})"')
WITHOUT_CRI = re.compile(r'(?m)^\s*disabled_plugins\s*=\s*\[[^\]\n]{0,200}"(?:io\.containerd\.grpc\.v1\.)?cri"')


def wrong() -> List[str]:
    """One sentence for each thing that is wrong; [] on a machine without engines."""
    return [*_docker(), *_toolkit(), *_containerd()]


def _docker() -> Iterator[str]:
    text = read_text(DAEMON_JSON)
    if not isinstance(text, str) or not text.strip():
        return
    try:
        document: Any = json_document(text)
    except ValueError as error:
        yield f"{DAEMON_JSON} is not valid JSON: {error}"
        return
    if not isinstance(document, dict):
        yield f"{DAEMON_JSON} is not valid: it has no keys"
        return
    runtimes = document.get("runtimes")
    nvidia = runtimes.get("nvidia") if isinstance(runtimes, dict) else None
    path = nvidia.get("path") if isinstance(nvidia, dict) else None
    if isinstance(path, str) and _absent(path):
        yield f"{DAEMON_JSON} names {path}, which is not there"
    if document.get("default-runtime") == "nvidia" and nvidia is None:
        yield f"{DAEMON_JSON} is not valid: its default runtime nvidia is not among its runtimes"


def _toolkit() -> Iterator[str]:
    text = read_text(TOOLKIT_TOML)
    if not isinstance(text, str):
        return
    if NO_CGROUPS.search(text) and Path(DOCKER_SOCKET).exists():
        yield f"docker runs as root, and {TOOLKIT_TOML} has no-cgroups = true"
    for match in LDCONFIG.finditer(text):
        if _absent(match.group(1)):
            yield f"{TOOLKIT_TOML} names {match.group(1)}, which is not there"


def _containerd() -> Iterator[str]:
    text = read_text(CONTAINERD_TOML)
    if not isinstance(text, str):
        return
    if WITHOUT_CRI.search(text) and Path(KUBELET).exists():
        yield f'Kubernetes is here, and {CONTAINERD_TOML} has disabled_plugins = ["cri"]'
    for path in dict.fromkeys(BINARY.findall(text)):
        if _absent(path):
            yield f"{CONTAINERD_TOML} names {path}, which is not there"


def _absent(program: str) -> bool:
    """Whether a program that settings name is not there; one without a folder is looked for as the engine would."""
    if program.startswith("/"):
        return len(program) < 4096 and "\0" not in program and not Path(program).exists()
    return which(program, SEARCH_PATH) is None
