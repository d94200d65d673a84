"""Which driver are these packages with prebuilt kernel modules built for? Changes nothing.

Each package depends on the modules of one kernel, and these on one version of the driver.
Stdlib only, Python 3.9 or newer.
"""

from __future__ import annotations

DOCUMENTATION = r"""
module: prebuilt_modules
short_description: Which driver packages with prebuilt kernel modules are built for
version_added: 0.1.0
author: [gpuprep]
description: Asks apt for what it would install
options:
  packages:
    description: Names such as C(linux-modules-nvidia-580-server-open-aws).
    type: list
    elements: str
    required: true
"""

EXAMPLES = r"""
- name: Read which driver the prebuilt modules are built for
  gpuprep.gpu.prebuilt_modules:
    packages: [linux-modules-nvidia-580-server-aws]
  register: found
"""

RETURN = r"""
packages:
  description: The packages that are offered, as C(NAME=VERSION).
  type: list
  returned: always
drivers:
  description: Versions of the driver that they are built for.
  type: list
  returned: always
absent:
  description: Names that are not offered.
  type: list
  returned: always
"""

import os
import re
import subprocess

from ansible.module_utils.basic import AnsibleModule

NEEDED = re.compile(r"(linux-modules-nvidia-[a-z0-9.+-]+) \(= ")
BUILT_FOR = re.compile(r"nvidia-kernel-common-[a-z0-9-]+ \(>= ([0-9]{3}(?:\.[0-9]{1,4}){1,3})[)-]")


def shown(name):
    """The fields of the version of a package that apt would install; {} if it has none."""
    command = ["apt-cache", "show", "--no-all-versions", name]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, "LC_ALL": "C"})
    lines = [
        line.partition(": ")[::2] for line in done.stdout.split("\n\n")[0].splitlines() if not line.startswith(" ")
    ]
    return dict(lines) if done.returncode == 0 else {}


def main():
    module = AnsibleModule(
        argument_spec={"packages": {"type": "list", "elements": "str", "required": True}}, supports_check_mode=True
    )
    found = {name: shown(name) for name in module.params["packages"]}
    needed = {kernel for fields in found.values() for kernel in NEEDED.findall(fields.get("Depends", ""))}
    kernels = {kernel: shown(kernel) for kernel in sorted(needed)}
    drivers = {driver for fields in kernels.values() for driver in BUILT_FOR.findall(fields.get("Depends", ""))}
    module.exit_json(
        packages=[f"{name}={fields['Version']}" for name, fields in found.items() if "Version" in fields],
        drivers=sorted(drivers),
        absent=[name for name, fields in {**found, **kernels}.items() if "Version" not in fields],
    )


if __name__ == "__main__":
    main()
