"""Which libraries the agent's environment has: the data of the role gpu_agent, which installs them."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import yaml

PACKAGE = Path(__file__).parents[1]
DEFAULTS = "playbooks/roles/gpu_agent/defaults/main.yml"


def agent_libraries(cuda_major: str) -> dict[str, str]:
    """Name ► version, for a toolkit of this major version; "" for none."""
    data = _defaults()
    pins = [*data["gpu_agent_libraries"], *data["gpu_agent_cuda_libraries"].get(cuda_major, [])]
    return dict(pin.split("==") for pin in pins)


@cache
def _defaults() -> dict[str, Any]:
    # In a wheel the playbooks are inside the package, in a source tree beside it.
    path = next(path for path in (PACKAGE / DEFAULTS, PACKAGE.parent / DEFAULTS) if path.is_file())
    data: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return data
