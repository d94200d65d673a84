"""Who would lose work if the machine were restarted now? Changes nothing. Python 3.9 or newer."""

from __future__ import annotations

DOCUMENTATION = r"""
module: in_use
short_description: Who would lose work if the machine were restarted now
version_added: 0.1.0
author: [gpuprep]
description: Looks for programs on the GPUs, jobs of Slurm and users who are logged in; the own session does not count
options:
  own:
    description: The file in which gpuprep notes its own programs on the GPUs.
    type: str
    required: true
"""

EXAMPLES = r"""
- name: Look who uses the machine
  gpuprep.gpu.in_use:
    own: /run/gpuprep/turn
  register: found
"""

RETURN = r"""
by:
  description: Who uses it, and what could not be read of that.
  type: list
  returned: always
"""

import os
import subprocess
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gpuprep.gpu.plugins.module_utils import inuse


def run(*command):
    try:
        done = subprocess.run(
            command, capture_output=True, encoding="utf-8", errors="replace", check=False, timeout=30,
            env={**os.environ, "LC_ALL": "C"},
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def main():
    module = AnsibleModule(argument_spec={"own": {"type": "str", "required": True}}, supports_check_mode=True)
    try:
        own = inuse.noted(Path(module.params["own"]).read_bytes()[-4096:])
    except OSError:
        own = []
    by, unknown = inuse.hindering(inuse.state(run, own=own), restart=True)
    module.exit_json(by=by + unknown)


if __name__ == "__main__":
    main()
