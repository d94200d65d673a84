"""Unfinished package states, and which program works with the packages now. Changes nothing. Python 3.9 or newer."""

from __future__ import annotations

DOCUMENTATION = r"""
module: package_state
short_description: Unfinished package states, and which program works with the packages now
version_added: 0.1.0
author: [gpuprep]
description: Reads the locks, the states and the history of apt or dnf
"""

EXAMPLES = r"""
- name: Read the state of the package manager
  gpuprep.gpu.package_state:
  register: found
"""

RETURN = r"""
unfinished:
  description: What is wrong with a package, by its name.
  type: dict
  returned: always
journal:
  description: Files of a run of dpkg that was broken off.
  type: list
  returned: always
holders:
  description: Who holds a lock now, by the lock.
  type: dict
  returned: always
others:
  description: Those of RV(unfinished) that are no part of gpuprep's own last step.
  type: dict
  returned: always
ours:
  description: Packages of gpuprep's own last step, if that did not end.
  type: list
  returned: always
msg:
  description: The holder in words; empty without one.
  type: str
  returned: always
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gpuprep.gpu.plugins.module_utils import packagestate


def main():
    module = AnsibleModule(argument_spec={}, supports_check_mode=True)
    try:
        state = packagestate.state()
    except packagestate.Unreadable as error:
        module.fail_json(msg=str(error))
    module.exit_json(msg=packagestate.sentence(state["holders"]), **state)


if __name__ == "__main__":
    main()
