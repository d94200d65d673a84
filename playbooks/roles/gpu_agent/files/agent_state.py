"""Reads which agent is installed and prints it as one JSON object. Changes nothing.

Stdlib only, Python 3.9 or newer. `digest` is computed as the controller does, over the files that are there,
so that a damaged installation is not taken for a good one.
"""

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

HOME = Path("/opt/gpuprep/agent")
PROGRAM = "/usr/local/bin/gpuprep-agent"
NIGHTLY = "/usr/local/bin/gpuprep-drift"


def digest(site):
    total = hashlib.sha256()
    for path in sorted((site / "gpuprep").rglob("*")):
        if not path.is_file() or "__pycache__" in path.parts:
            continue
        name, content = path.relative_to(site).as_posix(), path.read_bytes()
        total.update(f"{name}\0{len(content)}\0".encode() + content)
    return total.hexdigest()[:12]


def answer():
    try:
        done = subprocess.run([PROGRAM, "--version"], capture_output=True, text=True, check=False, timeout=60)
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.split()[-1] if done.returncode == 0 and done.stdout.strip() else ""


def libraries(site):
    """Name ─► version, by pip's own records."""
    found = {}
    for path in sorted(site.glob("*.dist-info")):
        name, _, version = path.name[: -len(".dist-info")].partition("-")
        found[name.lower().replace("_", "-")] = version
    return found


def main():
    current = HOME / "current"
    sites = list(current.glob("lib/python3*/site-packages"))
    json.dump(
        {
            "current": current.resolve().name if current.exists() else "",
            "digest": digest(sites[0]) if sites else "",
            "libraries": libraries(sites[0]) if sites else {},
            "answers": answer(),
            "nightly": os.access(NIGHTLY, os.X_OK),
        },
        sys.stdout,
    )


main()
