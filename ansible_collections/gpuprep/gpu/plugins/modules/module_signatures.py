"""Which of the driver's kernel modules are not signed by a certificate?

As gpuprep's agent decides (agent/programs/modulesignature.py, agent/facts/signatures.py), which comes after the driver: tests compare.
Stdlib only, Python 3.9 or newer.
"""

from __future__ import annotations

DOCUMENTATION = r"""
module: module_signatures
short_description: Which kernel modules of the NVIDIA driver are not signed by a certificate
version_added: 0.1.0
author: [gpuprep]
description: Each signature is verified with openssl; what a module says of itself proves nothing
options:
  modules:
    description: Names of the main kernel module, to be tried in this order.
    type: list
    elements: str
    required: true
  kernels:
    description: Kernels whose modules are looked at.
    type: list
    elements: str
    required: true
  certificate:
    description: A file on the machine, PEM or DER.
    type: path
    required: true
"""

EXAMPLES = r"""
- name: Verify the signatures of the modules
  gpuprep.gpu.module_signatures:
    modules: [nvidia]
    kernels: [6.8.0-136-generic]
    certificate: /etc/keys/mok.der
  register: found
"""

RETURN = r"""
unsigned:
  description: Paths of modules that the certificate has not signed, by kernel.
  type: dict
  returned: always
"""

import base64
import gzip
import lzma
import re
import struct
import subprocess
import tempfile
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

MARK = b"~Module signature appended~\n"
INFO = struct.Struct(">5B3sI")
PKCS7 = 2  # the only kind that kernels take
MOST = 256 << 20
VERIFY = ("openssl", "cms", "-verify", "-binary", "-inform", "DER", "-nointern", "-noverify", "-out", "/dev/null")


def run(*command, **more):
    return subprocess.run(command, capture_output=True, check=False, timeout=120, **more)


def content(path):
    if path.suffix == ".zst":
        return run("zstd", "-dcq", "--", str(path)).stdout
    opened = {".xz": lzma.open, ".gz": gzip.open}.get(path.suffix, open)(path, "rb")
    with opened as file:
        return file.read(MOST + 1)


def is_signed(path, certificate):
    """Verified by openssl: what a module says of itself, and what modinfo repeats, proves nothing."""
    try:
        data = content(path)
    except (OSError, EOFError, lzma.LZMAError):
        return False
    end = len(data) - len(MARK) - INFO.size
    if end < 0 or len(data) > MOST or not data.endswith(MARK):
        return False
    algorithm, digest, kind, name, key, padding, length = INFO.unpack(data[end : end + INFO.size])
    if kind != PKCS7 or algorithm or digest or name or key or any(padding) or not 0 < length < end:
        return False
    with tempfile.TemporaryDirectory(prefix="gpuprep-module-") as folder:
        Path(folder, "module").write_bytes(data[: end - length])
        Path(folder, "signature").write_bytes(data[end - length : end])
        Path(folder, "certificate").write_text(certificate)
        files = ("-in", "signature", "-content", "module", "-certfile", "certificate")
        return run(*VERIFY, *files, cwd=folder).returncode == 0


def pem(path):
    data = path.read_bytes()
    if b"-----BEGIN" in data:
        return data.decode("ascii", "replace")
    return f"-----BEGIN CERTIFICATE-----\n{base64.encodebytes(data).decode()}-----END CERTIFICATE-----\n"


def modules(kernel, names):
    """The main module as modprobe finds it, and those beside it."""
    for name in names:
        found = run("modinfo", "-k", kernel, "-F", "filename", name).stdout.decode(errors="replace").strip()
        if re.fullmatch(r"/\S+", found):
            return sorted(Path(found).parent.glob("nvidia*.ko*"))
    return []


def main():
    module = AnsibleModule(
        argument_spec={
            "modules": {"type": "list", "elements": "str", "required": True},
            "kernels": {"type": "list", "elements": "str", "required": True},
            "certificate": {"type": "path", "required": True},
        },
        supports_check_mode=True,
    )
    certificate = pem(Path(module.params["certificate"]))
    wrong = {
        kernel: [str(path) for path in modules(kernel, module.params["modules"]) if not is_signed(path, certificate)]
        for kernel in module.params["kernels"]
    }
    module.exit_json(unsigned={kernel: paths for kernel, paths in wrong.items() if paths})


if __name__ == "__main__":
    main()
