"""Reads a machine's modprobe configuration and kernel modules: which NVIDIA module would load, with what options."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from gpuprep.errors import SimError

FOLDERS = ("etc/modprobe.d", "run/modprobe.d", "usr/lib/modprobe.d", "lib/modprobe.d")
MODULE = re.compile(r"(nvidia(?:-current|-tesla-\d+|-tesla)?(?:-open)?)\.ko(?:\.(?:xz|zst|gz))?$")


@dataclass
class Configuration:
    """What modprobe.d says; module names with underscores."""

    blacklist: set[str] = field(default_factory=set)
    options: dict[str, dict[str, str]] = field(default_factory=dict)
    install: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Module:
    """An NVIDIA kernel module on disk, as modinfo tells it."""

    name: str
    path: str
    version: str
    licence: str

    @property
    def is_open(self) -> bool:
        return self.licence != "NVIDIA"


def parse(texts: Iterable[str]) -> Configuration:
    """The configuration that files, in modprobe's order, make together."""
    found = Configuration()
    for text in texts:
        for line in text.replace("\\\n", " ").splitlines():
            words = line.split()
            if len(words) < 2 or words[0].startswith("#"):
                continue
            name = words[1].replace("-", "_")
            if words[0] == "blacklist":
                found.blacklist.add(name)
            elif words[0] == "options":
                pairs = (word.partition("=") for word in words[2:])
                found.options.setdefault(name, {}).update({key: value.strip("\"'") for key, _, value in pairs})
            elif words[0] == "install":
                found.install[name] = " ".join(words[2:])
    return found


def read(root: Path) -> Configuration:
    """The configuration under a disk's root. A file of /etc hides one of the same name in /usr/lib."""
    files: dict[str, Path] = {}
    for folder in FOLDERS:
        for path in (root / folder).glob("*.conf"):
            files.setdefault(path.name, path)
    return parse(_inside(root, files[name]) for name in sorted(files))


def _inside(root: Path, path: Path) -> str:
    """A file's text; absolute links (Debian's alternatives) are followed below the root."""
    for _ in range(10):
        if not path.is_symlink():
            break
        link = path.readlink()
        path = root / str(link).lstrip("/") if link.is_absolute() else path.parent / link
    return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""


def nvidia_module(root: Path, release: str, configuration: Configuration) -> Module | None:
    """The NVIDIA module that `modprobe nvidia` would load for a kernel, or None: none built, or forbidden."""
    command = configuration.install.get("nvidia", "")
    if "nvidia" in configuration.blacklist or command.split()[:1] in (["/bin/false"], ["/bin/true"], ["false"]):
        return None
    tree = root / "lib/modules" / release
    built = {}
    for path in tree.rglob("nvidia*.ko*") if release else ():
        match = MODULE.fullmatch(path.name)
        if match:
            built[match[1]] = path
    wanted = re.search(r"modprobe\s+(?:-\S+\s+)*(nvidia[\w-]*)", command)
    name = wanted[1] if wanted else "nvidia"
    if name not in built and not wanted and built:
        # Without Debian's alternative (install nvidia modprobe -i nvidia-current) depmod's alias finds what there is.
        name = min(built)
    if name not in built:
        return None
    path = built[name]
    inner = f"/{path.relative_to(root)}"
    return Module(path.name.split(".ko")[0], inner, _modinfo(root, "version", inner), _modinfo(root, "license", inner))


def _modinfo(root: Path, what: str, path: str) -> str:
    done = subprocess.run(
        ["chroot", str(root), "modinfo", "-F", what, path], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise SimError(
            f"modinfo cannot read {path}: {done.stderr.strip()}", "the module on the machine's disk is damaged"
        )
    return done.stdout.strip()


def nvidia_options(configuration: Configuration, module: Module) -> dict[str, str]:
    """Options that reach the module: its own, and those of `nvidia`, which Debian's install line passes on."""
    own = configuration.options.get(module.name.replace("-", "_"), {})
    return {**configuration.options.get("nvidia", {}), **own}
