"""Reads the driver's version in four places: loaded module, module on disk, library, NVML."""

from __future__ import annotations

import mmap
import os
import re
from pathlib import Path
from typing import Callable, Dict, Iterator, Optional, Tuple, Union

from gpuprep.agent.facts import parse
from gpuprep.agent.facts.loader import Loader
from gpuprep.agent.facts.modprobe import nouveau_in_initramfs, stale_in_initramfs
from gpuprep.agent.facts.modulecache import remembered
from gpuprep.agent.programs.run import read_text, run
from gpuprep.records import (
    DRIVER_LIBRARIES,
    Bool,
    DkmsModule,
    DriverFacts,
    LoadedLibrary,
    Missing,
    ModprobeLine,
    OptStr,
    Str,
)
from gpuprep.untrusted.limits import open_regular

# ---------------------------------------------------------------- modules of DKMS

# Reads DKMS's own tree, as `dkms status` does; but that command also unpacks every module, which takes seconds.
#
# <module>/<version>/source                          added
# <module>/<version>/<kernel>/<arch>/module/         built
# <module>/kernel-<kernel>-<arch> ─► that folder     installed


TREE = Path("/var/lib/dkms")


def dkms_modules(tree: Path = TREE) -> Tuple[DkmsModule, ...]:
    """Every module version with its state for each kernel.

    "installed" is what DKMS recorded. Whether the file still exists shows in DriverFacts.module_version: the
    installed file may have another name than the built file (nvidia.ko becomes nvidia-current.ko on Debian).
    """
    return tuple(_walk(tree))


def _walk(tree: Path) -> Iterator[DkmsModule]:
    for version in sorted(path for path in tree.glob("*/*") if path.is_dir() and not path.is_symlink()):
        name = version.parent.name
        builds = sorted(path.parent for path in version.glob("*/*/module") if path.is_dir())
        for build in builds:
            state = "installed" if _is_installed(build) else "built"
            yield DkmsModule(name, version.name, build.parent.name, state)
        if not builds and (version / "source").is_dir():
            yield DkmsModule(name, version.name, None, "added")


def _is_installed(build: Path) -> bool:
    link = build.parents[2] / f"kernel-{build.parent.name}-{build.name}"
    return link.is_symlink() and os.path.realpath(str(link)) == os.path.realpath(str(build))


PROC = Path("/proc/driver/nvidia")
MODULES = Path("/lib/modules")
CUDA_LIBRARY = "libcuda.so.1"
# Files that NVIDIA's .run installer leaves, and no package has.
RUNFILE_TRACES = ("/usr/bin/nvidia-uninstall", "/usr/bin/nvidia-installer")

VersionAndFlavour = Union[Tuple[str, ...], None, Missing]


def driver_facts(
    running: str,
    next_boot: OptStr,
    fallback: OptStr,
    modules: Tuple[str, ...],
    loader: Loader,
    nvml_version: OptStr,
    modprobe_lines: Union[Tuple[ModprobeLine, ...], Missing],
) -> DriverFacts:
    loaded = _parsed(PROC / "version", parse.proc_version)
    on_disk = module_on_disk(running)
    following = on_disk if next_boot == running else module_on_disk(next_boot) if isinstance(next_boot, str) else None
    left = on_disk if fallback == running else module_on_disk(fallback) if isinstance(fallback, str) else fallback
    starts = next_boot if isinstance(next_boot, str) else running
    return DriverFacts(
        loaded_version=_part(loaded, 0),
        loaded_flavour=_part(loaded, 1),
        module_version=_part(on_disk, 0),
        module_flavour=_part(on_disk, 1),
        module_next_boot_version=_part(following, 0),
        library_version=library_version(loader),
        nvml_version=nvml_version,
        runfile=next((path for path in RUNFILE_TRACES if Path(path).exists()), None),
        nouveau_loaded="nouveau" in modules,
        counters_restricted=counters_restricted(),
        dkms=dkms_modules(),
        nouveau_in_initramfs=nouveau_in_initramfs(starts, modprobe_lines),
        module_next_boot_flavour=_part(following, 1),
        module_fallback_version=_part(left, 0),
        initramfs_stale=stale_in_initramfs(starts, module_file(starts)),
    )


def module_on_disk(kernel: str) -> VersionAndFlavour:
    """Version and flavour of the module that modprobe would load for `kernel`; None if there is none."""
    path = module_file(kernel)
    return remembered(Path(path), _modinfo) if isinstance(path, str) else path


def module_file(kernel: str) -> OptStr:
    """The file of the main module, None without one. If there are several (Debian can have both flavours), modprobe's
    settings decide.
    """
    folder = MODULES / kernel
    index = read_text(folder / "modules.dep")
    if not isinstance(index, str):
        return index
    modules = [path for path in parse.driver_modules(index) if (folder / path).exists()]  # depmod may run later
    if not modules:
        return None
    return str(folder / (modules[0] if len(modules) == 1 else _chosen_by_modprobe(kernel, tuple(modules))))


def built_for(path: Path) -> str:
    """The kernel in the version magic of a module; "" if it cannot be read."""
    reading = remembered(path, _modinfo)
    return reading[2] if isinstance(reading, tuple) else ""


def _modinfo(path: Path) -> Union[Tuple[str, str, str], Missing]:
    text = run(["modinfo", str(path)], timeout=60)
    if isinstance(text, Missing):
        return text
    read, magic = parse.modinfo(text), re.search(r"^vermagic:\s*(\S+)", text, re.MULTILINE)
    if read is None:
        return Missing("unparsable", f"modinfo {path} names no version and licence")
    return (*read, magic[1] if magic else "")


def _chosen_by_modprobe(kernel: str, paths: Tuple[str, ...]) -> str:
    text = run(["modprobe", "-S", kernel, "--show-depends", "nvidia"], accept=(0, 1))
    words = re.findall(r"[^\s/]+", text) if isinstance(text, str) else []
    for word in reversed(words):
        for path in paths:
            name = path.rpartition("/")[2]
            if word in (name, name.partition(".ko")[0]):
                return path
    return paths[0]


def library_version(loader: Loader) -> OptStr:
    """The driver's version from the file name behind libnvidia-ml.so.1; None without the library."""
    path = loader.find("libnvidia-ml.so.1")
    if not isinstance(path, str):
        return path
    match = re.search(r"\.so\.(\d+\.\d+(?:\.\d+)*)$", path)
    return match.group(1) if match else Missing("unparsable", f"{path} does not end in a version")


def libraries(loader: Loader, module: OptStr) -> Dict[str, LoadedLibrary]:
    """The driver's libraries that programs get; without those that the loader does not find.

    The version is in the file name. libcuda must also contain it, because a stub may have any name.
    """
    places = {name: place for name in DRIVER_LIBRARIES if isinstance(place := loader.place(name), str)}
    found = {}
    for name, place in places.items():
        path = os.path.realpath(place)
        match = re.search(r"\.so\.(\d+\.\d+(?:\.\d+)*)$", path)
        version: OptStr = match.group(1) if match else None
        if name == CUDA_LIBRARY and (claimed := version or module):
            told = claimed if isinstance(claimed, Missing) else _contains_version(Path(path), claimed)
            version = told if isinstance(told, Missing) else claimed if told else None
        found[name] = LoadedLibrary(path, place, version)
    return found


def _contains_version(path: Path, version: str) -> Bool:
    """Whether the library contains the version as text, as each build of libcuda does."""
    try:
        with open_regular(path) as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            return content.find(version.encode()) >= 0
    except ValueError:  # an empty file
        return False
    except OSError as error:
        return Missing("command_failed", str(error))


def counters_restricted() -> Union[bool, Missing, None]:
    """RmProfilingAdminOnly of the loaded module; None if no module is loaded."""
    text = read_text(PROC / "params")
    if not isinstance(text, str):
        return text
    value = parse.proc_params(text).get("RmProfilingAdminOnly")
    return Missing("unparsable", f"{PROC}/params has no RmProfilingAdminOnly") if value is None else value != "0"


def _parsed(path: Path, parser: Callable[[str], Optional[Tuple[str, str]]]) -> VersionAndFlavour:
    text = read_text(path)
    if not isinstance(text, str):
        return text
    return parser(text) or Missing("unparsable", f"{path}: {text.strip():.80}")


def _part(reading: VersionAndFlavour, index: int) -> OptStr:
    return reading[index] if isinstance(reading, tuple) else reading


def as_optional(reading: Str) -> OptStr:
    """NVML's version for DriverFacts: None without a library, because "no library" is a valid reading."""
    return None if isinstance(reading, Missing) and reading.reason == "library_not_found" else reading
