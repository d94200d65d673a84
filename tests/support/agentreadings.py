"""What the agent reads of a machine that a test made of folders, files and programs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from gpuprep.agent.compute import counters, libraries
from gpuprep.agent.facts import apt, cuda, digests, disks, driver, modprobe, modulecache, osfacts
from gpuprep.agent.facts.loader import Loader
from gpuprep.agent.probes import cudnn, toolkit
from gpuprep.records import AptFacts, CudnnFacts, DkmsModule, FolderFacts, LocalDisk, Missing, ModprobeLine

Reading = tuple[str, str, str] | Missing


# ---------------------------------------------------------------- driver and its modules


def driver_library_version(path: str | None) -> Any:
    """The driver's version by its library, which the loader finds here."""

    class Fixed(Loader):
        def __init__(self) -> None:
            self.paths = {}

        def find(self, soname: str) -> str | None:
            assert soname == "libnvidia-ml.so.1"
            return path

    return driver.library_version(Fixed())


def driver_parameters(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """`folder` is what the driver shows in /proc."""
    monkeypatch.setattr(driver, "PROC", folder)


def module_version(module: Path, read: Callable[[Path], Reading], cache: Path, agent: Path) -> Reading:
    """Version and flavour of a module, read or remembered in `cache`."""
    return modulecache.remembered(module, read, cache, agent)


def dkms_modules(tree: Path) -> Any:
    found: tuple[DkmsModule, ...] | Missing = driver.dkms_modules(tree)
    return found


def modprobe_lines(folders: Sequence[Path], command_line: Path) -> tuple[ModprobeLine, ...] | Missing:
    return modprobe.lines(tuple(map(str, folders)), str(command_line))


# ---------------------------------------------------------------- packages and files


def apt_facts(preferences: Path, folder: Path) -> AptFacts:
    return apt.facts(preferences, folder)


def remember_digest(cache: Path, file: Path, digest: str) -> None:
    """As if the file had been read before, as it is now."""
    cache.write_text(json.dumps({modulecache.file_identity(file): digest}))


def blank_disks(*, simulated: bool = False) -> tuple[LocalDisk, ...] | Missing:
    return disks.blank(simulated=simulated)


def folders(*paths: str) -> tuple[dict[str, int], dict[str, FolderFacts]]:
    return osfacts.folders(paths)


def cudnn_facts(library: Path, folder: Path) -> CudnnFacts:
    """Of a machine whose loader has this cuDNN beside an older one."""

    class Fixed(Loader):
        def __init__(self) -> None:
            self.paths = {"libcudnn.so.8": "/nowhere", "libcudnn.so.9": str(library)}

    return cuda.cudnn_facts(Fixed(), digests.Digests(folder / "digests.json", folder / "no-agent"))


# ---------------------------------------------------------------- CUDA


def cudnn_name(path: str | Missing | None) -> str | Missing:
    """The name by which cuDNN is loaded where the loader has this file."""

    class OneLibrary(Loader):
        def __init__(self) -> None:
            self.paths = {}

        def find_newest(self, stem: str) -> str | Missing | None:
            assert stem == "libcudnn.so"
            return path

    return cudnn.installed_name(OneLibrary())


def cudnn_version(library: Path | str) -> str | Missing:
    """The version that a library says it is."""
    return cudnn.version_of(str(library))


def no_nvcc_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """nvcc is on the PATH of a login or nowhere."""
    monkeypatch.setattr(cuda, "NVCC_PLACES", ())


def toolkit_folders(nvcc: str, root: Path = Path("/")) -> list[str]:
    """Where the libraries of this nvcc's toolkit lie."""
    return cuda.library_folders(nvcc, root)


def mapped_libraries(maps: str) -> list[dict[str, str]]:
    """The libraries in the text of a /proc/self/maps."""
    return libraries.mapped(maps)


LOADED = """
import json
from gpuprep.agent.compute import libraries
version = libraries.load_cublaslt("99")
print(json.dumps([version, libraries.loaded({"cublasLt": version})]))
"""


def loaded_cublaslt(library_path: str) -> tuple[str, list[dict[str, str]]]:
    """(the version of libcublasLt.so.99, the libraries that a process has then)."""
    environment = {**os.environ, "LD_LIBRARY_PATH": library_path}
    done = subprocess.run([sys.executable, "-c", LOADED], env=environment, stdout=subprocess.PIPE, check=True)
    version, loaded = json.loads(done.stdout)
    return version, loaded


def seconds_of_the_toolkits_program(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    monkeypatch.setattr(toolkit, "RUN_SECONDS", seconds)


def counters_answer(monkeypatch: pytest.MonkeyPatch, script: str | None = None, *, simulated: bool = False) -> Any:
    """Who may read the counters; `script` is what stands for CUPTI."""
    if script is not None:
        monkeypatch.setattr(counters, "SCRIPT", script)
    return counters.cupti(simulated=simulated)
