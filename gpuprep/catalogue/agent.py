"""Which libraries the agent's environment has: the data of the role gpu_agent, which installs them by hash.

Stdlib only: the wheel's build runs this file by its path.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

# The Ansible collection gpuprep.gpu: beside the package, in a source tree as where it is installed.
COLLECTION = Path(__file__).resolve().parents[2] / "ansible_collections/gpuprep/gpu"


@dataclass(frozen=True)
class Pin:
    """One package of the agent's environment."""

    version: str
    sha256: tuple[str, ...]  # of the wheels that may be installed, one for each Python and machine, in hex digits


def role_folder(role: str) -> Path:
    return COLLECTION / "roles" / role


def agent_libraries(cuda_major: str) -> dict[str, str]:
    """Name ► version, for a toolkit of this major version; "" for none."""
    return {name: pin.version for name, pin in agent_pins(cuda_major).items()}


@cache
def agent_pins(cuda_major: str) -> dict[str, Pin]:
    """Name ► Pin, for a toolkit of this major version; "" for none."""
    known = {path.name: path for path in (role_folder("gpu_agent") / "files/requirements").glob("*.txt")}
    wanted = [known["base.txt"], known.get(f"cuda{cuda_major}.txt")]
    return {name: pin for path in wanted if path for name, pin in read_pins(path.read_text(encoding="utf-8")).items()}


def read_pins(text: str) -> dict[str, Pin]:
    """Name ► Pin, of the lines of a requirements file that are pinned by hash."""
    pins: dict[str, Pin] = {}
    for line in text.replace("\\\n", " ").splitlines():
        if match := re.match(r"([\w.-]+)==([\w.+!]+)((?: +--hash=sha256:[0-9a-f]{64})+)$", line):
            pins[match[1]] = Pin(match[2], tuple(re.findall(r"sha256:([0-9a-f]{64})", match[3])))
    return pins
