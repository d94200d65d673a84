"""Our own CUDA C kernels, compiled by the installed toolkit for one device.

With the toolkit's NVRTC if the agent's bindings are for its CUDA version, else with nvcc, which always works. For CUDA
11 there are no bindings any more; those of CUDA 12 are used, and they cannot use the NVRTC of CUDA 11.
"""

from __future__ import annotations

import importlib.metadata
from typing import Any

from gpuprep.agent import children, libraries
from gpuprep.agent.run import SEARCH_PATH, run
from gpuprep.records import Missing

NVCC_SECONDS = 120


def compiled(core: Any, source: str, arch: str) -> Any:
    """cuda.core's ObjectCode for a device of `arch` ("90"). Raises RuntimeError with what the compiler said."""
    toolkit = libraries.toolkit()
    version = toolkit["version"]
    bindings = importlib.metadata.version("cuda-bindings").split(".")[0]
    if isinstance(version, str) and version.split(".")[0] == bindings:
        options = core.ProgramOptions(std="c++17", arch=f"sm_{arch}")
        return core.Program(source, "c++", options=options).compile("cubin")
    if not isinstance(toolkit["nvcc"], str):
        raise RuntimeError("no CUDA toolkit (no nvcc), which compiles the kernels")
    return core.ObjectCode.from_cubin(by_nvcc(toolkit["nvcc"], source, arch))


def by_nvcc(nvcc: str, source: str, arch: str) -> bytes:
    """The cubin. Raises RuntimeError with nvcc's last words."""
    with children.scratch("kernels") as folder:
        (folder / "kernels.cu").write_text(source)
        argv = [nvcc, "-cubin", f"-arch=sm_{arch}", "-std=c++17", "-o", "kernels.cubin", "kernels.cu"]
        place = {"PATH": SEARCH_PATH, "LC_ALL": "C", "HOME": str(folder), "TMPDIR": str(folder)}
        said = run(argv, timeout=NVCC_SECONDS, env=place, cwd=str(folder), merge_stderr=True)
        if isinstance(said, Missing):
            raise RuntimeError(said.detail)
        return (folder / "kernels.cubin").read_bytes()
