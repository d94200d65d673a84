"""Which packages of the driver or of CUDA are not as they were installed? Changes nothing. Python 3.9 or newer."""

from __future__ import annotations

DOCUMENTATION = r"""
module: package_files
short_description: Which packages of the driver or of CUDA are not as they were installed
version_added: 0.1.0
author: [gpuprep]
description: Looks for files that are gone, changed or closed to users, and for packages that are lacking
options:
  whose:
    description: Whose packages.
    type: str
    choices: [driver, cuda, compiler]
    required: true
"""

EXAMPLES = r"""
- name: Read which files of the driver's packages are not as they were installed
  gpuprep.gpu.package_files:
    whose: driver
  register: found
"""

RETURN = r"""
broken:
  description: Packages whose files are gone, changed or closed to users.
  type: list
  returned: always
absent:
  description: Packages that these need and that are not there.
  type: list
  returned: always
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gpuprep.gpu.plugins.module_utils import packagefiles


def main():
    choices = ["driver", "cuda", "compiler"]
    module = AnsibleModule(
        argument_spec={"whose": {"type": "str", "choices": choices, "required": True}}, supports_check_mode=True
    )
    module.exit_json(**packagefiles.broken_and_absent(module.params["whose"]))


if __name__ == "__main__":
    main()
