"""The machine's apt sources, in both formats. Changes nothing. Python 3.9 or newer."""

from __future__ import annotations

DOCUMENTATION = r"""
module: apt_sources
short_description: What the machine's package sources of apt have
version_added: 0.1.0
author: [gpuprep]
description: Reads C(sources.list) and the files of both formats in C(sources.list.d)
options:
  uri:
    description: An archive that may be there already.
    type: str
  codename:
    description: The release whose components are asked for.
    type: str
  components:
    description: Components that the machine's own mirrors shall give; only mirrors that already give C(main) count.
    type: list
    elements: str
  folder:
    description: apt's settings.
    type: path
    default: /etc/apt
"""

EXAMPLES = r"""
- name: Read which components the mirrors lack
  gpuprep.gpu.apt_sources:
    codename: noble
    components: [main, restricted, universe, multiverse]
  register: found
"""

RETURN = r"""
known:
  description: Whether another file than gpuprep's own names it.
  type: bool
  returned: with uri
unverified:
  description: What has packages installed from there without a check of signatures, such as V(trusted=yes); else empty.
  type: str
  returned: with uri
missing:
  description: Entries that lack components, each with uri, suite, the lacking components and signed_by of the machine's own entry.
  type: list
  returned: with codename
"""

from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gpuprep.gpu.plugins.module_utils import aptsources


def main():
    module = AnsibleModule(
        argument_spec={
            "uri": {"type": "str"},
            "codename": {"type": "str"},
            "components": {"type": "list", "elements": "str"},
            "folder": {"type": "path", "default": "/etc/apt"},
        },
        required_one_of=[("uri", "codename")],
        required_together=[("codename", "components")],
        supports_check_mode=True,
    )
    asked, folder, answer = module.params, Path(module.params["folder"]), {}
    if asked["uri"]:
        how = aptsources.known(folder, asked["uri"])
        answer = {"known": how is not None, "unverified": how or ""}
    if asked["codename"]:
        answer["missing"] = aptsources.missing(folder, asked["codename"], asked["components"])
    module.exit_json(**answer)


if __name__ == "__main__":
    main()
