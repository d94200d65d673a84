"""Which agent of gpuprep is installed? Changes nothing. Stdlib only, Python 3.9 or newer.

`digest` is computed as the filter agent_digest does on the controller, over the files that are there, so that a damaged
installation is noticed.
"""

from __future__ import annotations

DOCUMENTATION = r"""
module: agent_state
short_description: Which agent of gpuprep is installed
version_added: 0.1.0
author: [gpuprep]
description: Reads the agent below C(/opt/gpuprep/agent)
"""

EXAMPLES = r"""
- name: Read which agent is installed
  gpuprep.gpu.agent_state:
  register: found
"""

RETURN = r"""
current:
  description: Name of the folder in use; empty without one.
  type: str
  returned: always
digest:
  description: 12 hex digits of its sources.
  type: str
  returned: always
libraries:
  description: Version of each library of its environment, by name.
  type: dict
  returned: always
answers:
  description: The version that it says itself; empty where it does not start.
  type: str
  returned: always
nightly:
  description: Whether its nightly check is there.
  type: bool
  returned: always
"""

import hashlib
import os
import subprocess
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

HOME = Path("/opt/gpuprep/agent")
PROGRAM = "/usr/local/bin/gpuprep-agent"
NIGHTLY = "/usr/local/bin/gpuprep-drift"


def digest(site):
    total = hashlib.sha256()
    for path in sorted((site / "gpuprep").rglob("*")):
        if not path.is_file() or "__pycache__" in path.parts:
            continue
        name, content = path.relative_to(site).as_posix(), path.read_bytes()
        total.update(f"{name}\0{len(content)}\0".encode() + content)
    return total.hexdigest()[:12]


def answer():
    try:
        done = subprocess.run([PROGRAM, "--version"], capture_output=True, text=True, check=False, timeout=60)
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.split()[-1] if done.returncode == 0 and done.stdout.strip() else ""


def libraries(site):
    """Name ─► version, by pip's own records."""
    found = {}
    for path in sorted(site.glob("*.dist-info")):
        name, _, version = path.name[: -len(".dist-info")].partition("-")
        found[name.lower().replace("_", "-")] = version
    return found


def main():
    module = AnsibleModule(argument_spec={}, supports_check_mode=True)
    current = HOME / "current"
    sites = list(current.glob("lib/python3*/site-packages"))
    module.exit_json(
        current=current.resolve().name if current.exists() else "",
        digest=digest(sites[0]) if sites else "",
        libraries=libraries(sites[0]) if sites else {},
        answers=answer(),
        nightly=os.access(NIGHTLY, os.X_OK),
    )


if __name__ == "__main__":
    main()
