"""Does a file that gpuprep did not write already name a repository of dnf? Changes nothing.

As agent/facts/repositories.py reads it. Stdlib only, Python 3.9 or newer.
"""

from __future__ import annotations

DOCUMENTATION = r"""
module: dnf_sources
short_description: Whether a file of somebody else already names a repository of dnf
version_added: 0.1.0
author: [gpuprep]
description: Two entries of one repository would have dnf read it twice
options:
  uri:
    description: The repository's address.
    type: str
    required: true
  folder:
    description: Where the repositories are.
    type: path
    default: /etc/yum.repos.d
  settings:
    description: dnf's own settings.
    type: path
    default: /etc/dnf/dnf.conf
"""

EXAMPLES = r"""
- name: Read whether the machine has this repository already
  gpuprep.gpu.dnf_sources:
    uri: https://developer.download.nvidia.com/compute/cuda/repos/rhel9/x86_64/
  register: found
"""

RETURN = r"""
known:
  description: Whether another file than gpuprep's own names it.
  type: bool
  returned: always
unverified:
  description: What has packages installed from there without a check of signatures, such as V(gpgcheck=0); else empty.
  type: str
  returned: always
"""

import configparser
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

OWN = "gpuprep-nvidia.repo"
OFF = ("0", "no", "false", "off")


def sections(path):
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    try:
        parser.read_string(path.read_text(encoding="utf-8", errors="replace"))
    except (OSError, configparser.Error):
        return configparser.ConfigParser()  # dnf does not read it either
    return parser


def known(uri, folder, settings):
    default = sections(settings).get("main", "gpgcheck", fallback="0")
    answer = None
    for path in sorted(folder.glob("*.repo")):
        parser = sections(path)
        for name in parser.sections() if path.name != OWN else ():
            addresses = parser.get(name, "baseurl", fallback="").replace(",", " ").split()
            enabled = parser.get(name, "enabled", fallback="1").strip().lower() not in OFF
            if enabled and uri.rstrip("/") in {address.rstrip("/") for address in addresses}:
                checked = parser.get(name, "gpgcheck", fallback=default).strip().lower() not in OFF
                answer = answer or ("" if checked else f"gpgcheck=0 in {path}")
    return answer


def main():
    module = AnsibleModule(
        argument_spec={
            "uri": {"type": "str", "required": True},
            "folder": {"type": "path", "default": "/etc/yum.repos.d"},
            "settings": {"type": "path", "default": "/etc/dnf/dnf.conf"},
        },
        supports_check_mode=True,
    )
    answer = known(module.params["uri"], Path(module.params["folder"]), Path(module.params["settings"]))
    module.exit_json(known=answer is not None, unverified=answer or "")


if __name__ == "__main__":
    main()
