"""Does the driver work, and is it the one that is expected?

    look()               what module, libraries, nvidia-smi and CUDA say
    faults(seen, ...)    what is not as expected, in words; empty where all is

The CUDA call runs in a process of its own: a driver that hangs must not keep this one.
"""

from __future__ import annotations

import json
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import List

from gpuprep.agent import host_paths
from gpuprep.agent.rollback.commands import MINUTE, run

LOADED = Path("/proc/driver/nvidia/version")
LIBRARIES = ("libcuda.so.1", "libnvidia-ml.so.1")
# Answers of cuInit and cuDeviceGetCount. -1: the library could not be loaded or lacks the function.
CUDA = """\
import ctypes, json, sys
count = ctypes.c_int(-1)
try:
    library = ctypes.CDLL("libcuda.so.1")
    if {simulated}:
        sys.path.insert(0, {program!r})
        from gpuprep.agent.rollback.working import simulated_cuda
        code, number = simulated_cuda({version!r})
    else:
        code = library.cuInit(0) or library.cuDeviceGetCount(ctypes.byref(count))
        number = count.value
    print(json.dumps([code, number, ""]))
except (OSError, AttributeError) as error:
    print(json.dumps([-1, -1, str(error)[:300]]))
"""
MISMATCH, NO_DEVICE = 803, 100  # CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, CUDA_ERROR_NO_DEVICE


@dataclass(frozen=True)
class Seen:
    loaded: str  # version of the loaded module; empty without one
    libraries: List[str]  # versions of the libraries, each once
    smi: List[str]  # the driver's version as nvidia-smi says it, a line for each GPU
    smi_error: str
    cuda_devices: int  # -1 where CUDA does not start
    cuda_error: str
    loads: bool = True  # libcuda can be loaded: it is whole, and has what CUDA calls

    @property
    def gpus(self) -> int:
        return len(self.smi)


def loaded_version() -> str:
    try:
        text = LOADED.read_text(encoding="utf-8", errors="replace")[:4096]
    except OSError:
        return ""
    match = re.search(r"^NVRM version:.*?(\d+\.\d+(?:\.\d+)?)\s", text, re.MULTILINE)
    return match[1] if match else ""


def look() -> Seen:
    smi = run(["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"], limit=2 * MINUTE)
    lines = [line.strip() for line in smi.out.splitlines() if line.strip()][:1024]
    libraries = _libraries()
    devices, error, loads = _cuda(libraries[0] if len(libraries) == 1 else "")
    return Seen(
        loaded_version(),
        libraries,
        lines if smi.code == 0 else [],
        "" if smi.code == 0 else smi.why,
        devices,
        error,
        loads,
    )


def _libraries() -> List[str]:
    """By the names of their files, which NVIDIA ends with the version."""
    listed = run(["ldconfig", "-p"], limit=MINUTE).out
    found = set()
    for name in LIBRARIES:
        for path in re.findall(
            rf"^\s*{re.escape(name)} \(libc6,(?:x86-64|AArch64)[^)]*\) => (\S+)$", listed, re.MULTILINE
        )[:1]:
            file = Path(path).resolve().name
            match = re.search(r"\.so\.(\d+\.\d+(?:\.\d+)?)$", file)
            found.add(match[1] if match else file[:60])
    return sorted(found)


def _cuda(library: str) -> "tuple[int, str, bool]":
    simulated = Path(host_paths.SIMULATION_MARK).exists()
    text = CUDA.format(simulated=simulated, program=sys.path[0], version=library)
    ended = run([sys.executable, "-I", "-c", text], limit=2 * MINUTE)
    try:
        code, number, error = json.loads(ended.out)
    except ValueError:
        return -1, f"the CUDA call ended with {ended.code}: {ended.why}", True
    if code != 0:
        return -1, str(error) or f"cuInit answers {code}", code > 0
    return int(number), "", True


def simulated_cuda(library: str) -> "tuple[int, int]":
    """What CUDA would answer: the stand-in for libcuda of a simulated machine has no functions."""
    from gpuprep.agent.gpu import simstate

    state = simstate.read()
    if not library or state.get("system", {}).get("driver", "") != library:
        return MISMATCH, -1
    count = len(simstate.gpu_sections(state))
    return (0, count) if count else (NO_DEVICE, -1)


def faults(seen: Seen, driver: str, gpus: int, cuda_devices: int) -> List[str]:
    """What is not as expected. `gpus` is what nvidia-smi counts, `cuda_devices` what CUDA counts (other with MIG)."""
    found = []
    if seen.loaded != driver:
        found.append(f"the loaded module is {seen.loaded or 'none'}, not {driver}")
    if seen.libraries != [driver]:
        found.append(f"the libraries are {', '.join(seen.libraries) or 'not there'}, not {driver}")
    if seen.smi_error:
        found.append(f"nvidia-smi fails: {seen.smi_error}")
    elif set(seen.smi) - {driver}:
        found.append(f"nvidia-smi says {', '.join(sorted(set(seen.smi)))[:200]}, not {driver}")
    elif seen.gpus != gpus:
        found.append(f"nvidia-smi shows {seen.gpus} of {gpus} GPUs")
    if seen.cuda_error:
        found.append(f"CUDA does not start: {seen.cuda_error}")
    elif seen.cuda_devices != cuda_devices:
        found.append(f"CUDA shows {seen.cuda_devices} of {cuda_devices} devices")
    return found
