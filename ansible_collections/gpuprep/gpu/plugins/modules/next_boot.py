"""Would a restart of the machine lose its GPU? Changes nothing. Python 3.9 or newer."""

from __future__ import annotations

DOCUMENTATION = r"""
module: next_boot
short_description: Which kernel the next boot starts, and what would lose the GPU there
version_added: 0.1.0
author: [gpuprep]
description: Reads the boot loader's resolved settings and the files of the kernel that they start
options:
  driver:
    description: Whether the kernel must have the driver; else only the machine itself has to come back.
    type: bool
    default: true
"""

EXAMPLES = r"""
- name: Look at what a restart would start
  gpuprep.gpu.next_boot:
  register: found
"""

RETURN = r"""
kernel:
  description: The kernel that the next boot starts; empty if the settings cannot be understood.
  type: str
  returned: always
setting:
  description: The file and setting that decide.
  type: str
  returned: always
faults:
  description: What would lose the GPU, each with the command that repairs it.
  type: list
  returned: always
"""

import os
import subprocess
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gpuprep.gpu.plugins.module_utils import bootorder, nextboot


def run(*command):
    try:
        return subprocess.run(
            command, capture_output=True, encoding="utf-8", errors="replace", check=False, timeout=120,
            env={**os.environ, "LC_ALL": "C"},
        ).stdout  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return ""


def main():
    module = AnsibleModule(
        argument_spec={"driver": {"type": "bool", "default": True}},
        supports_check_mode=True,
    )
    answer = bootorder.next_boot(bootorder.Tree(), lambda: run("grubby", "--default-kernel"))
    found = nextboot.of_restart(answer, run, driver=module.params["driver"])
    apt, library = not Path("/etc/system-release").exists(), nextboot.library_version()
    dkms = nextboot.dkms_name(library)
    more = {"apt": apt, "dkms": dkms, "library": library, "loader": answer.loader}
    said = [nextboot.said(fault, answer.kernel, **more) for fault in found]
    words = [f"{why} ({answer.setting}). What to do: {command or 'install its module'}" for why, command in said]
    module.exit_json(kernel=answer.kernel, setting=answer.setting, faults=words)


if __name__ == "__main__":
    main()
