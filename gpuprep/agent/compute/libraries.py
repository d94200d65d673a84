"""Which libraries this process really loaded, and where the installed toolkit keeps its own.

The library that a program asks for may not be the library that it gets: a folder on LD_LIBRARY_PATH or a wheel may
come first. /proc/self/maps names the file that was really loaded.
"""

from __future__ import annotations

import ctypes
import re
from functools import lru_cache
from pathlib import Path
from typing import Any, Dict, List, Sequence, Union

from gpuprep.agent.facts.cuda import find_nvcc, library_folders, nvcc_version
from gpuprep.agent.facts.shells import login_path, which
from gpuprep.agent.programs import trusted
from gpuprep.agent.programs.run import read_text
from gpuprep.records import Missing, to_json_value

MAPS = Path("/proc/self/maps")  # psutil would read smaps, for which the kernel counts every page of gigabytes
# NVIDIA's user space libraries that a probe may load. libcuda.so is the driver's own.
NAMES = ("cublasLt", "cublas", "cudart", "nvrtc", "cuda", "nvJitLink", "cudnn", "cupti")
# Last column of a mapping; the kernel adds " (deleted)" where a package upgrade replaced the file meanwhile.
MAPPED = re.compile(r"\s(/\S*/lib([A-Za-z_]+?)(?:64)?\.so(?:\.([0-9.]+))?)(?: \(deleted\))?$", re.MULTILINE)


def mapped(text: str, names: Sequence[str] = NAMES) -> List[Dict[str, str]]:
    """/proc/PID/maps ─► [{"name", "path", "version"}] of `names`; the version is taken from the file name."""
    by_path = {}
    for path, name, version in MAPPED.findall(text):
        if name in names:
            by_path[path] = {"name": name, "path": path, "version": version}
    return [by_path[path] for path in sorted(by_path)]


def loaded(versions: Dict[str, str], names: Sequence[str] = NAMES) -> Union[List[Dict[str, str]], Missing]:
    """As `mapped`, for this process. `versions`: name ► version that a library itself reported, if it was asked."""
    text = read_text(MAPS)
    if not isinstance(text, str):
        return text or Missing("command_failed", f"no {MAPS}")
    return [
        {**library, "version": versions.get(library["name"], library["version"])} for library in mapped(text, names)
    ]


def cublas_version(number: int) -> str:
    """The number of cublasLtGetVersion as text: 120405 ► "12.4.5"."""
    return f"{number // 10000}.{number // 100 % 100}.{number % 100}"


def load_cublaslt(major: str) -> Union[str, Missing]:
    """Load the libcublasLt.so.MAJOR that the loader finds; returns its version as text. Needs no GPU."""
    try:
        library = ctypes.CDLL(f"libcublasLt.so.{major}")
        asked = library.cublasLtGetVersion
    except (OSError, AttributeError) as error:
        return Missing("library_not_found", str(error))
    asked.restype = ctypes.c_size_t
    return cublas_version(asked())


@lru_cache(maxsize=1)
def toolkit() -> Dict[str, Any]:
    """{"nvcc", "version", "library_dirs"} of the toolkit in a login shell's PATH; a reading that fails is Missing."""
    nvcc = find_nvcc(which("nvcc", login_path()))
    if nvcc is None:
        nvcc = Missing("not_installed", "no nvcc on the PATH of a login shell nor under /usr/local/cuda*")
    elif isinstance(nvcc, str) and trusted.is_root() and (why := trusted.untrusted_reason(nvcc)):
        nvcc = Missing("not_trusted", f"root loads no library beside {nvcc}: {why}")
    version = nvcc_version(nvcc)
    folders: Any = library_folders(nvcc) if isinstance(nvcc, str) else nvcc
    return {"nvcc": to_json_value(nvcc), "version": to_json_value(version), "library_dirs": to_json_value(folders)}
