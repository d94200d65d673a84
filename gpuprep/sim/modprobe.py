"""Reads a machine's modprobe configuration and kernel modules: which NVIDIA module would load, with what options."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from gpuprep.errors import SimError
from gpuprep.sim import moduleinfo
from gpuprep.sim.machinedisk import Disk

FOLDERS = ("etc/modprobe.d", "run/modprobe.d", "usr/lib/modprobe.d", "lib/modprobe.d")
MODULE = re.compile(r"(nvidia(?:-current|-tesla-\d+|-tesla)?(?:-open)?)\.ko(?:\.(?:xz|zst|gz))?")
VERSION = re.compile(r"\d{1,4}(\.\d{1,4}){1,3}")
MOST_TEXT = 1 << 20  # bytes of a file of modprobe.d


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
    configuration = Configuration()
    for text in texts:
        for line in text.replace("\\\n", " ").splitlines():
            words = line.split()
            if len(words) < 2 or words[0].startswith("#"):
                continue
            name = words[1].replace("-", "_")
            if words[0] == "blacklist":
                configuration.blacklist.add(name)
            elif words[0] == "options":
                pairs = (word.partition("=") for word in words[2:])
                configuration.options.setdefault(name, {}).update({key: value.strip("\"'") for key, _, value in pairs})
            elif words[0] == "install":
                configuration.install[name] = " ".join(words[2:])
    return configuration


def read(disk: Disk) -> Configuration:
    """The configuration on a machine's disk. A file of /etc hides one of the same name in /usr/lib."""
    files: dict[str, str] = {}
    for folder in FOLDERS:
        for name in disk.names(folder):
            if name.endswith(".conf"):
                files.setdefault(name, f"{folder}/{name}")
    texts = (disk.read(files[name], MOST_TEXT) or b"" for name in sorted(files))
    return parse(text.decode("utf-8", "replace") for text in texts)


def nvidia_module(disk: Disk, release: str, configuration: Configuration) -> Module | None:
    """The NVIDIA module that `modprobe nvidia` would load for a kernel, or None: none built, or forbidden."""
    command = configuration.install.get("nvidia", "")
    if "nvidia" in configuration.blacklist or command.split()[:1] in (["/bin/false"], ["/bin/true"], ["false"]):
        return None
    built = {}
    for path in disk.walk(f"lib/modules/{release}") if release else ():
        match = MODULE.fullmatch(path.rpartition("/")[2])
        if match:
            built[match[1]] = path
    wanted = re.search(r"modprobe\s+(?:-\S+\s+)*(nvidia[\w-]*)", command)
    name = wanted[1] if wanted else "nvidia"
    if name not in built and not wanted and built:
        # Without Debian's alternative (install nvidia modprobe -i nvidia-current) depmod's alias finds what there is.
        name = min(built)
    return _module(disk, built[name]) if name in built else None


def _module(disk: Disk, path: str) -> Module:
    try:
        with disk.file(path) as descriptor:
            if descriptor is None:
                raise ValueError("no file")
            with open(descriptor, "rb", closefd=False) as file:
                facts = moduleinfo.read(file, path)
        version = facts.get("version", "")
        if version and not VERSION.fullmatch(version):
            raise ValueError(f"the version {version!r}")
    except ValueError as error:
        raise SimError(
            f"/{path} is no kernel module of NVIDIA's driver: {error}", "the module on the machine's disk is damaged"
        ) from None
    return Module(path.rpartition("/")[2].split(".ko")[0], f"/{path}", version, facts.get("license", ""))


def nvidia_options(configuration: Configuration, module: Module) -> dict[str, str]:
    """Options that reach the module: its own, and those of `nvidia`, which Debian's install line passes on."""
    own = configuration.options.get(module.name.replace("-", "_"), {})
    return {**configuration.options.get("nvidia", {}), **own}
