"""Parses outputs and files of a Linux machine. Cases are in tests/cases/."""

from __future__ import annotations

import re
import shlex
from typing import Dict, List, Optional, Tuple

from gpuprep.records import Mount, Package, UnitFacts

OPEN_LICENCE = "Dual MIT/GPL"
# Free space is checked at these paths: their file systems are always facts, whatever their type.
DISK_PATHS = (
    "/", "/boot", "/etc", "/lib/modules", "/opt", "/opt/gpuprep", "/tmp", "/usr", "/usr/local", "/usr/src", "/var",
    "/var/cache", "/var/lib", "/var/lib/dkms",
)  # fmt: skip


def key_values(text: str) -> Dict[str, str]:
    """Shell-like KEY=value lines (os-release, /etc/environment), without quotes and comments."""
    values = {}
    for line in text.splitlines():
        line = line.strip()
        if line.startswith("export "):
            line = line[len("export ") :].lstrip()
        name, equals, value = line.partition("=")
        if not equals or line.startswith("#"):
            continue
        try:
            words = shlex.split(value, comments=True)
        except ValueError:  # a lone quote
            words = [value.strip("\"'")]
        values[name.strip()] = " ".join(words)
    return values


def debian_order(version: str) -> Tuple[Tuple[Tuple[int, ...], int], ...]:
    """Sort key in the order of Debian versions: `~` before the end, letters before other signs, numbers by value.

    Kernel releases carry neither epoch nor revision in dpkg's sense, so the string is compared as one.
    """
    key = []  # by hand: `packaging` refuses 6.1.0-18-amd64, and an agent that is sent along brings no libraries
    for text, digits in re.findall(r"(\D*)(\d*)", version):
        if text or digits:
            signs = tuple(-1 if c == "~" else ord(c) if c.isalpha() else ord(c) + 256 for c in text)
            key.append(((*signs, 0), int(digits or 0)))
    return (*key, ((0,), 0))


def proc_version(text: str) -> Optional[Tuple[str, str]]:
    """/proc/driver/nvidia/version ─► (version, "open" | "proprietary")."""
    match = re.search(r"^NVRM version:.*?Kernel Module.*?\s(\d+\.\d+(?:\.\d+)*)\s", text + "\n", re.MULTILINE)
    if match is None:
        return None
    return match.group(1), "open" if "Open Kernel Module" in match.group(0) else "proprietary"


def proc_params(text: str) -> Dict[str, str]:
    """/proc/driver/nvidia/params: `Name: value` lines."""
    pairs = (line.partition(":") for line in text.splitlines())
    return {name.strip(): value.strip() for name, colon, value in pairs if colon}


def modinfo(text: str) -> Optional[Tuple[str, str]]:
    """`modinfo MODULE` ─► (version, "open" | "proprietary"), the flavour by the licence."""
    fields: Dict[str, str] = {}
    for line in text.splitlines():
        name, colon, value = line.partition(":")
        if colon:
            fields.setdefault(name.strip(), value.strip())
    if "version" not in fields or "license" not in fields:
        return None
    return fields["version"], "open" if fields["license"] == OPEN_LICENCE else "proprietary"


def driver_modules(modules_dep: str) -> List[str]:
    """modules.dep ─► paths of main NVIDIA modules: nvidia.ko, or Debian's nvidia-current.ko, nvidia-current-open.ko."""
    paths = []
    for line in modules_dep.splitlines():
        path = line.partition(":")[0]
        name = path.rpartition("/")[2].partition(".ko")[0].replace("_", "-")
        part = re.fullmatch(r"nvidia(?:-(?:current|tesla|legacy|open|server|\d\w*))*", name)
        if part:
            paths.append(path)
    return paths


DPKG_FORMAT = "${Package}\\t${Version}\\t${db:Status-Abbrev}\\t${Architecture}\\n"


def dpkg(text: str) -> Dict[str, Package]:
    """`dpkg-query -W -f DPKG_FORMAT`: what is installed, and whether it is held (the first letter of the state)."""
    packages: Dict[str, Package] = {}
    for line in text.splitlines():
        fields = line.split("\t")
        if len(fields) != 4 or fields[2][1:2] != "i":
            continue
        name, version, state, architecture = fields
        if name in packages and architecture in ("i386", "armhf"):  # of the system's second architecture
            continue
        packages[name] = Package(version, held=state[0] == "h")
    return packages


RPM_FORMAT = "%{NAME}\\t%{EPOCHNUM}\\t%{VERSION}-%{RELEASE}\\n"


def dpkg_owners(text: str) -> Dict[str, str]:
    """`dpkg-query -S PATH...`: path ─► package. A diversion has a line of its own, which names no owner."""
    owners: Dict[str, str] = {}
    for line in text.splitlines():
        names, colon, path = line.partition(": ")
        if colon and not names.startswith("diversion by "):
            owners[path] = names.split(",")[0].strip().partition(":")[0]
    return owners


def rpm(text: str, versionlock: str) -> Dict[str, Package]:
    """`rpm -qa --qf RPM_FORMAT` and dnf's versionlock.list, whose lines are `name-epoch:version-release.arch`."""
    lines = [line.strip() for line in versionlock.splitlines() if not line.lstrip().startswith("#")]
    locked = {lock.rpartition(".")[0] for lock in lines} | {lock.partition("*")[0] for lock in lines}
    packages: Dict[str, Package] = {}
    for line in text.splitlines():
        fields = line.split("\t")
        if len(fields) != 3:
            continue
        name, epoch, version = fields
        packages[name] = Package(version, held=f"{name}-{epoch}:{version}" in locked)
    return packages


def ldconfig(text: str, architecture: str) -> Dict[str, str]:
    """`ldconfig -p` ─► soname ─► the path that the loader takes, for programs of `architecture` (uname -m)."""
    tag = {"x86_64": "x86-64", "aarch64": "AArch64"}.get(architecture, "")
    paths: Dict[str, str] = {}
    for match in re.finditer(r"^\s*(\S+) \(([^)]*)\) => (\S.*)$", text, re.MULTILINE):
        if tag in match.group(2):
            paths.setdefault(match.group(1), match.group(3))
    return paths


def cudnn_header(text: str) -> Optional[str]:
    """cudnn_version.h ─► "9.10.2"."""
    parts = [
        re.search(rf"^#define CUDNN_{name}\s+(\d+)", text, re.MULTILINE) for name in ("MAJOR", "MINOR", "PATCHLEVEL")
    ]
    if any(part is None for part in parts):
        return None
    return ".".join(part.group(1) for part in parts if part)


def soname_version(path: str) -> Optional[str]:
    """The version in a library's file name: .../libcudnn.so.9.14.0 is 9.14.0; None if only the major is in it."""
    match = re.search(r"\.so\.(\d+(?:\.\d+)+)$", path)
    return match.group(1) if match else None


def nvcc_version(text: str) -> Optional[str]:
    """`nvcc --version` ─► "12.4"."""
    match = re.search(r"release (\d+\.\d+)", text)
    return match.group(1) if match else None


def ffmpeg_version(text: str) -> Optional[str]:
    """`ffmpeg -version` ─► "7.1.5"; a distribution's suffix ("7.1.5-0+deb13u1") stays on."""
    match = re.match(r"ffmpeg version (\S+)", text)
    return match.group(1) if match else None


def pkg_config_version(text: str) -> Optional[str]:
    """A .pc file ─► its Version."""
    match = re.search(r"^Version:\s*(\S+)", text, re.MULTILINE)
    return match.group(1) if match else None


def mounts(text: str) -> Tuple[Mount, ...]:
    """/proc/self/mounts ─► the mounts of devices and network folders, and of whatever holds one of DISK_PATHS.

    Other pseudo file systems are left out. The kernel escapes only space, tab and newline, so other separators can be
    in the name of a user's mount.
    """
    entries = []
    for line in text.split("\n"):
        fields = [re.sub(r"\\([0-7]{3})", lambda m: chr(int(m.group(1), 8)), field) for field in line.split(" ")]
        if len(fields) >= 3 and (fields[0].startswith("/") or ":" in fields[0] or fields[1] in DISK_PATHS):
            entries.append(Mount(fields[0], fields[1], fields[2]))
    return tuple(entries)


UNIT_PROPERTIES = "Id,LoadState,UnitFileState,ActiveState,FragmentPath,DropInPaths,ExecStart"


def units(text: str) -> Dict[str, UnitFacts]:
    """`systemctl show -p UNIT_PROPERTIES UNIT...`: blocks with an empty line between."""
    by_name = {}
    for block in text.split("\n\n"):
        fields = dict(line.split("=", 1) for line in block.splitlines() if "=" in line)
        if "Id" in fields:
            enabled = fields.get("UnitFileState") or fields.get("LoadState", "")
            files = (fields.get("FragmentPath", ""), *fields.get("DropInPaths", "").split())
            command = re.search(r"argv\[\]=(.*?) ; ", fields.get("ExecStart", ""))
            by_name[fields["Id"]] = UnitFacts(
                enabled,
                fields.get("ActiveState", ""),
                tuple(path for path in files if path),
                command.group(1) if command else "",
            )
    return by_name


def loaded_modules(text: str) -> Tuple[str, ...]:
    """/proc/modules ─► names."""
    return tuple(line.split()[0] for line in text.splitlines() if line.strip())
