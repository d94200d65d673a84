"""Keeps what a machine had before gpuprep changed it, and puts it back. Python 3.9 or newer."""

from __future__ import annotations

DOCUMENTATION = r"""
module: ledger
short_description: Keeps what a machine had before gpuprep changed it, and puts files back
version_added: 0.1.0
author: [gpuprep]
description: >-
  Without O(put) it writes C(/var/lib/gpuprep/before.json), unless that is there or gpuprep was here before.
options:
  put:
    description: >-
      Files to put back, each with path and kind (absent, file or link) and what belongs to it, as the unprovision
      command of gpuprep lists them.
    type: list
    elements: dict
  folders:
    description: Folders that were there before, and stay even if they are empty.
    type: list
    elements: str
    default: []
"""

EXAMPLES = r"""
- name: Keep what is there before the first change
  gpuprep.gpu.ledger:
"""

RETURN = r"""
paths:
  description: What was put back.
  type: list
  returned: with O(put)
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gpuprep.gpu.plugins.module_utils import ledger


def main():
    module = AnsibleModule(
        argument_spec={
            "put": {"type": "list", "elements": "dict"},
            "folders": {"type": "list", "elements": "str", "default": []},
        },
        supports_check_mode=True,
    )
    if module.check_mode:
        module.exit_json(changed=False, paths=[])
    try:
        if module.params["put"] is None:
            ledger.write()
            # Only a note about the machine, and none of its settings: a finished machine has no change.
            module.exit_json(changed=False)
        paths = ledger.put(module.params["put"], module.params["folders"])
    except (OSError, ledger.Unreadable) as error:
        module.fail_json(msg=str(error))
    module.exit_json(changed=bool(paths), paths=paths)


if __name__ == "__main__":
    main()
