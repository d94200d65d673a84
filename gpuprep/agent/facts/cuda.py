"""CUDA toolkit and cuDNN as a program would find them."""

from __future__ import annotations

import os
import platform
import re
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple

from gpuprep.agent.facts import parse
from gpuprep.agent.facts.digests import Digests
from gpuprep.agent.facts.loader import Loader
from gpuprep.agent.facts.manifest import is_intact, read_manifest
from gpuprep.agent.programs.run import read_text, run
from gpuprep.records import NOT_READ, CudaFacts, CudnnFacts, Missing, OptStr, Str

STAND_IN = "stand-in of a simulated machine"  # an nvcc that compiles nothing
# Places of toolkits whose nvcc is not on the PATH.
NVCC_PLACES = ("/usr/local/cuda/bin/nvcc", "/usr/local/cuda-*/bin/nvcc", "/usr/lib/cuda/bin/nvcc")


def cuda_facts(nvcc_on_path: OptStr, loader: Loader, search_path: Str) -> CudaFacts:
    nvcc = find_nvcc(nvcc_on_path)
    return CudaFacts(
        nvcc_path=nvcc,
        nvcc_version=nvcc_version(nvcc),
        cupti_path=loader.find_newest("libcupti.so"),
        library_folders=tuple(library_folders(nvcc)) if isinstance(nvcc, str) else (),
        compiler_refused=compiler_refused(nvcc, search_path),
    )


def find_nvcc(on_path: OptStr) -> OptStr:
    if isinstance(on_path, str):
        return on_path
    for pattern in NVCC_PLACES:
        for path in sorted(Path("/").glob(pattern[1:]), reverse=True):
            return str(path)
    return on_path


def nvcc_version(nvcc: OptStr) -> OptStr:
    if not isinstance(nvcc, str):
        return nvcc
    text = run([nvcc, "--version"])
    if isinstance(text, Missing):
        return text
    return parse.nvcc_version(text) or Missing("unparsable", f"{nvcc} --version: {text.strip()[-80:]}")


def compiler_refused(nvcc: OptStr, search_path: Str) -> OptStr:
    """nvcc's error if it accepts no compiler of the host; None if it accepts one.

    nvcc preprocesses an empty program, in a tenth of a second: its headers refuse a compiler of a wrong version.
    """
    if not isinstance(nvcc, str) or isinstance(search_path, Missing):
        return nvcc if isinstance(nvcc, Missing) else Missing("not_installed", "there is no nvcc")
    environment = {"PATH": search_path, "LC_ALL": "C", "HOME": "/"}
    command = [nvcc, "-E", "-x", "cu", os.devnull]
    if not isinstance(run(command, timeout=60, env=environment), Missing):
        return None
    text = run(command, timeout=60, env=environment, accept=range(1, 256), merge_stderr=True)
    if isinstance(text, Missing):
        return text
    if STAND_IN in text:
        return NOT_READ
    lines = [line.strip() for line in text.splitlines() if re.search(r"(?i)error|fatal|not found", line)]
    return (lines or text.strip().splitlines() or ["it says nothing"])[0][:200]


def library_folders(nvcc: str, root: Path = Path("/")) -> List[str]:
    """Folders with the libraries of nvcc's toolkit, as written and with links resolved (/proc/PID/maps shows these).

    NVIDIA's packages keep everything below one prefix; a distribution's go to the system's own folder.
    """
    machine = platform.machine()
    places = []
    for program in (Path(nvcc), Path(os.path.realpath(nvcc))):
        prefix = program.parent.parent
        if str(prefix) == "/usr" or "nvidia-cuda-toolkit" in program.parts:
            places.append(root / f"usr/lib/{machine}-linux-gnu")
        elif prefix != Path("/"):
            places += [prefix / "lib64", prefix / f"targets/{machine}-linux/lib"]
    folders = [str(path) for path in places if path.is_dir()]
    return list(dict.fromkeys([*folders, *(os.path.realpath(path) for path in folders)]))


def cudnn_facts(loader: Loader, digests: Digests) -> CudnnFacts:
    """The library that the loader finds, and the header and manifest beside it, which belong to the same cuDNN."""
    library = loader.find_newest("libcudnn.so")
    if not isinstance(library, str):
        return CudnnFacts(library, library, library, library, library)
    header, version = _header(Path(library))
    if version is None:  # no header was found: take the version from the file name, libcudnn.so.9.14.0
        version = parse.soname_version(os.path.realpath(library))
    folder, manifest = _manifest_near(Path(library))
    return CudnnFacts(
        library_path=library,
        version=version,
        header_path=header,
        wheel_version=_field(manifest, "version"),
        cuda_major=_field(manifest, "cuda_major"),
        manifest_intact=None if manifest is None else is_intact(folder, manifest, digests.of),
    )


def _header(library: Path) -> Tuple[OptStr, OptStr]:
    """(path, version) of the header: in <prefix>/include for <prefix>/lib*/, in /usr/include for a distribution's."""
    for folder in (library.parent.parent / "include", library.parent / "include", Path("/usr/include")):
        path = folder / "cudnn_version.h"
        text = read_text(path)
        if isinstance(text, Missing):
            return str(path), text
        if text is not None:
            return str(path), parse.cudnn_header(text) or Missing("unparsable", f"{path} names no version")
    return None, None


def _manifest_near(library: Path) -> Tuple[Path, Optional[Dict[str, Any]]]:
    for folder in (library.parent.parent, library.parent):
        manifest = read_manifest(folder)
        if isinstance(manifest, dict):
            return folder, manifest
    return library.parent, None


def _field(manifest: Optional[Dict[str, Any]], name: str) -> OptStr:
    if manifest is None:
        return None
    value = manifest.get(name)
    return str(value) if value is not None else Missing("unparsable", f"the manifest has no {name}")
