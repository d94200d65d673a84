"""Writes /etc/gpuprep/provenance.json: what is installed, from where, when, by which run.

A record that differs in nothing but time and run is left as it is: it then names the run that brought the machine to this
state. Stdlib only, Python 3.9 or newer.
"""

from __future__ import annotations

DOCUMENTATION = r"""
module: provenance
short_description: Records what is installed, from where and by which run
version_added: 0.1.0
author: [gpuprep]
description: Writes C(/etc/gpuprep/provenance.json) where it differs in more than time and run
options:
  run:
    description: The run's name.
    type: str
    required: true
"""

EXAMPLES = r"""
- name: Record what is installed
  gpuprep.gpu.provenance:
    run: by hand
  register: found
"""

RETURN = r"""
{}
"""

import datetime
import json
import os
import platform
import re
import stat
import subprocess
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

MOST_BYTES = 1 << 20  # of a file that is read
MOST_SECONDS = 60  # that a program may take
RECORD = Path("/etc/gpuprep/provenance.json")
FAMILIES = re.compile(
    r"^(nvidia-|libnvidia-|kmod-nvidia|firmware-nvidia|libcuda1$|libnvcuvid1$|cuda-|libcudnn|linux-headers-|kernel[0-9.]*-devel$"
    r"|libcupti|dkms$)"
)


def run(*command):
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            check=False,
            env={**os.environ, "LC_ALL": "C"},
            timeout=MOST_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout


def read(path):
    """The text of a small file; "" where it cannot be read, is none (a pipe never ends) or is too large."""
    try:
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                return ""
            content = file.read(MOST_BYTES + 1)
    except (OSError, ValueError):
        return ""
    return content.decode("utf-8", "replace") if len(content) <= MOST_BYTES else ""


def packages():
    """Name ► version and the archive it came from, of the installed packages that this is about."""
    if Path("/etc/system-release").exists():
        return rpm_packages()
    listing = run("dpkg-query", "-W", "-f", "${db:Status-Status} ${Package} ${Version}\n")
    rows = [line.split() for line in listing.splitlines()]
    installed = {row[1]: row[2] for row in rows if row[0] == "installed" and FAMILIES.match(row[1])}
    origins = {}
    name, installed_block = "", False
    for line in run("apt-cache", "policy", *installed).splitlines() if installed else []:
        if line[:1].strip():
            name, installed_block = line.rstrip(":"), False
        elif line.startswith(" *** "):
            installed_block = True
        elif re.match(r"     \S", line):
            installed_block = False
        elif installed_block and ("://" in line or "mirror+" in line):
            origins.setdefault(name, " ".join(line.split()[1:3]))
    return {
        name: {"version": version, "from": origins.get(name, "unknown")} for name, version in sorted(installed.items())
    }


def rpm_packages():
    """The same on Red Hat's systems, where several versions of a kernel's headers may be installed."""
    form = "%{NAME} %|EPOCH?{%{EPOCH}:}:{}|%{VERSION}-%{RELEASE}\\n"
    installed = {}
    for line in sorted(run("rpm", "-qa", "--qf", form).splitlines()):
        name, version = line.split()
        if FAMILIES.match(name):
            installed[name] = f"{installed[name]}, {version}" if name in installed else version
    if not installed:
        return {}
    said = run("dnf", "-q", "-C", "repoquery", "--installed", "--qf", "%{name} %{from_repo}", *installed)
    origins = dict(line.split() for line in said.splitlines() if len(line.split()) == 2)
    return {name: {"version": version, "from": origins.get(name, "unknown")} for name, version in installed.items()}


def manifest(path):
    try:
        document = json.loads(read(path) or "null")
    except (ValueError, RecursionError):
        return None
    if not isinstance(document, dict):
        return None
    return {key: value for key, value in document.items() if key != "files"}


def record():
    os_release = dict(line.partition("=")[::2] for line in read("/etc/os-release").splitlines())
    loaded = re.search(r"\s(\d+\.\d+(?:\.\d+)?)\s", read("/proc/driver/nvidia/version"))
    agent = Path("/opt/gpuprep/agent/current")
    codec = run("readlink", "-f", "/usr/local/bin/ffmpeg").strip()
    return {
        "schema_version": 1,
        "os": os_release.get("PRETTY_NAME", "").strip('"'),
        "kernel": platform.release(),
        "driver": loaded.group(1) if loaded else None,
        "packages": packages(),
        "agent": agent.resolve().name if agent.exists() else None,
        "cudnn": manifest("/opt/gpuprep/cudnn/current/manifest.json"),
        "ffmpeg": manifest(Path(codec).parent.parent / "manifest.json") if codec else None,
    }


def main():
    module = AnsibleModule(argument_spec={"run": {"type": "str", "required": True}}, supports_check_mode=True)
    wanted = record()
    there = manifest(RECORD) or {}
    changed = {key: value for key, value in there.items() if key not in ("written_at", "run")} != wanted
    if changed and not module.check_mode:
        now = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
        RECORD.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        new = RECORD.with_name(".provenance.json.new")
        new.write_text(json.dumps({"written_at": now, "run": module.params["run"], **wanted}, indent=1) + "\n")
        new.chmod(0o644)
        new.replace(RECORD)
    module.exit_json(changed=changed)


if __name__ == "__main__":
    main()
