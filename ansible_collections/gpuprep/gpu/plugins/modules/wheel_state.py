"""Is the library in a folder (cuDNN, NCCL) the one of a wheel? Changes nothing.

Sizes are compared, and the digests of files that were changed after the manifest was written, which is the last file: all of
1.3 GiB would take seconds a run. Stdlib only, Python 3.9 or newer.
"""

from __future__ import annotations

DOCUMENTATION = r"""
module: wheel_state
short_description: Whether a folder has the library of one of NVIDIA's wheels
version_added: 0.1.0
author: [gpuprep]
description: Compares the files of the folder with its manifest
options:
  path:
    description: The folder.
    type: path
    required: true
  sha256:
    description: The digest of the wheel.
    type: str
    required: true
"""

EXAMPLES = r"""
- name: Read which cuDNN is installed
  gpuprep.gpu.wheel_state:
    path: /opt/gpuprep/cudnn/9.10.2.21-cuda12
    sha256: "{{ digest }}"
  register: found
"""

RETURN = r"""
intact:
  description: Whether it is the wheel's.
  type: bool
  returned: always
why:
  description: V(intact), or what is wrong.
  type: str
  returned: always
"""

import json
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule


def verdict(folder, digest, sha256):
    try:
        manifest = json.loads((folder / "manifest.json").read_text())
        if manifest["wheel_sha256"] != digest:
            return "it is of another wheel"
        files = {name: (entry["size"], entry["sha256"]) for name, entry in manifest["files"].items()}
        written = (folder / "manifest.json").stat().st_ctime_ns
    except OSError:
        return "it is not there"
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return "its manifest.json is damaged"
    for name, (size, right) in files.items():
        path = folder / name
        if not path.is_file() or path.stat().st_size != size:
            return f"{name} is missing or changed"
        if path.stat().st_ctime_ns > written and sha256(path) != right:
            return f"{name} was changed"
    return "intact"


def main():
    module = AnsibleModule(
        argument_spec={"path": {"type": "path", "required": True}, "sha256": {"type": "str", "required": True}},
        supports_check_mode=True,
    )
    why = verdict(Path(module.params["path"]), module.params["sha256"], module.sha256)
    module.exit_json(intact=why == "intact", why=why)


if __name__ == "__main__":
    main()
