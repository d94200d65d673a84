"""Which of the driver's kernel modules are not signed by a certificate? Prints {kernel: [paths]} as JSON.

Argument: JSON {"modules": [names of the main module, in order], "kernels": [...], "certificate": path}.
As agent/programs/appended.py and agent/facts/signatures.py, which are not there where a role runs alone: tests compare.
Stdlib only, Python 3.9 or newer.
"""

import base64
import gzip
import json
import lzma
import re
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

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
    wish = json.loads(sys.argv[1])
    certificate = pem(Path(wish["certificate"]))
    wrong = {
        kernel: [str(path) for path in modules(kernel, wish["modules"]) if not is_signed(path, certificate)]
        for kernel in wish["kernels"]
    }
    json.dump({kernel: paths for kernel, paths in wrong.items() if paths}, sys.stdout)


if __name__ == "__main__":
    main()
