"""Our own CUDA C kernels, compiled by the installed toolkit for one device.

It uses the toolkit's NVRTC if the agent's bindings are for the same CUDA version, else nvcc, which always works. For
CUDA 11 there are no bindings any more; the agent has those of CUDA 12, which cannot use the NVRTC of CUDA 11.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
from functools import lru_cache
from typing import Any

from gpuprep.agent.compute import libraries
from gpuprep.agent.gpu.nvml import Nvml
from gpuprep.agent.programs import children
from gpuprep.agent.programs.run import SEARCH_PATH, run
from gpuprep.records import Missing

NVCC_SECONDS = 120


def compiled(core: Any, source: str, arch: str) -> Any:
    """cuda.core's ObjectCode for a device of `arch` ("90"). Raises RuntimeError with the compiler's output."""
    return core.ObjectCode.from_cubin(cubin(core, source, arch))


@lru_cache(maxsize=None)
def cubin(core: Any, source: str, arch: str) -> bytes:
    """The compiled code, made once for each source and architecture. Needs no GPU. Raises as `compiled`."""
    toolkit = libraries.toolkit()
    version = toolkit["version"]
    bindings = importlib.metadata.version("cuda-bindings").split(".")[0]
    if isinstance(version, str) and version.split(".")[0] == bindings:
        options = core.ProgramOptions(std="c++17", arch=f"sm_{arch}")
        return bytes(core.Program(source, "c++", options=options).compile("cubin").code)
    if not isinstance(toolkit["nvcc"], str):
        raise RuntimeError("no CUDA toolkit (no nvcc), which compiles the kernels")
    return by_nvcc(toolkit["nvcc"], source, arch)


def prepare(core: Any, source: str) -> None:
    """Compile for each GPU that NVML lists, without using it. A failure is ignored: it comes again with `compiled`."""
    with Nvml() as nvml:
        gpus = nvml.gpus()
        capabilities = [] if isinstance(gpus, Missing) else [gpu.facts().compute_capability for gpu in gpus]
    for capability in dict.fromkeys(reading for reading in capabilities if isinstance(reading, str)):
        with contextlib.suppress(RuntimeError, OSError):
            cubin(core, source, capability.replace(".", ""))


def by_nvcc(nvcc: str, source: str, arch: str) -> bytes:
    """The cubin. Raises RuntimeError with the end of nvcc's output."""
    with children.scratch("kernels") as folder:
        (folder / "kernels.cu").write_text(source)
        argv = [nvcc, "-cubin", f"-arch=sm_{arch}", "-std=c++17", "-o", "kernels.cubin", "kernels.cu"]
        place = {"PATH": SEARCH_PATH, "LC_ALL": "C", "HOME": str(folder), "TMPDIR": str(folder)}
        output = run(argv, timeout=NVCC_SECONDS, env=place, cwd=str(folder), merge_stderr=True)
        if isinstance(output, Missing):
            raise RuntimeError(output.detail)
        return (folder / "kernels.cubin").read_bytes()
