"""How fast and how exact are matrix products with the cuBLAS of the installed toolkit (never a bundled copy)?

nvmath-python calls cuBLASLt of CUDA 12 and newer. For CUDA 11, which it no longer supports, CuPy calls cuBLAS.
"""

from __future__ import annotations

import importlib
import os
from typing import Any, Dict, List, Optional, Tuple, Union

from gpuprep.agent.compute import cudacalls, kernels, libraries
from gpuprep.agent.gpu.nvml import Nvml
from gpuprep.agent.probereports import measured_each, tell
from gpuprep.agent.probes import gemmkernels, simulated
from gpuprep.agent.probes.burst import Rule
from gpuprep.agent.probes.gemmtypes import TYPES, asked
from gpuprep.agent.probes.gemmvalues import Pace, gpu_values
from gpuprep.agent.probes.gpuforms import other_processes
from gpuprep.records import Missing, to_json_value

CALLERS = ("nvmath-python", "cupy-cuda11x", "cupy-cuda12x", "cupy-cuda13x")  # the first that is there is used
OLDEST_CUDA = 11
# A burst is the load before the power cap acts. In a full measurement it is repeated, each time after a rest, until one
# is steady. A quick measurement has no time for that, and single bursts differ by up to 5 %, because the cap acts early
# or late in them. So a quick burst is made of pulses, with pauses in which the power falls.
# Seven runs of each of eight types differed by 0.1 to 1.8 %; 0.12 s under load, where the clock swings, by 7. All
# measured on H200s.
FULL = {
    "warm_seconds": 2.5,
    "pause_seconds": 0.0,
    "rest_seconds": 0.2,
    "load_seconds": 0.2,
    "candidates": 8,
    "finalists": 2,
    "final_seconds": 0.045,
    "final_rounds": 2,
    "sustained_seconds": 20.0,
    "together_seconds": 5.0,
}
QUICK = {
    "warm_seconds": 0.15,
    "pause_seconds": 0.006,  # three times the work of a pulse: together they draw far less than the power limit
    "rest_seconds": 0.02,
    "load_seconds": 0.1,
    "candidates": 4,
    "finalists": 1,
    "final_seconds": 0.02,  # pulses are too short for the cap
    "final_rounds": 1,
    "sustained_seconds": 0.0,
    "together_seconds": 0.0,  # not measured: there is no sustained load of one GPU to compare it with
}
# One burst in forty varied by 16 %; a second one is then worth its 0.2 s.
QUICK_RULE = Rule(
    batch_seconds=0.002, least_samples=16, least_seconds=0.02, short_seconds=0.03, most_seconds=0.25, tries=2,
    rel_stdev_percent=3.0,
)  # fmt: skip
# GPUs after the first are measured in fewer shapes. Their bursts are like the first one's: the GPUs are compared with
# each other.
BRIEF = {**FULL, "candidates": 4, "finalists": 1, "sustained_seconds": 0.0}


def measure(arguments: Dict[str, Any]) -> Union[Dict[str, Any], Missing]:
    """arguments: quick (bool), shapes ([[m, n, k], ...] or {dtype: [[m, n, k], ...]}; default: large aligned ones),
    main_dtype ("bf16": also measured at length; default: the first that the GPU has), sustained_seconds (20).

    Values: docs/records.md, "gemm". Missing without bindings, or without a toolkit that the bindings support.
    """
    try:
        for kind in TYPES:
            asked(arguments.get("shapes"), kind.dtype)
    except ValueError as error:
        return Missing("bad_arguments", str(error))
    toolkit = libraries.toolkit()
    refused = unsuitable(toolkit["version"])
    if refused is not None:
        return refused
    if simulated.available():
        gemmsim = importlib.import_module("gpuprep.agent.probes.gemmsim")
        values: Dict[str, Any] = gemmsim.measure(arguments, toolkit)
        return values
    return _measured(arguments, toolkit)


def get_ready(_arguments: Dict[str, Any]) -> None:
    """Load the libraries and compile our kernels."""
    toolkit = libraries.toolkit()
    versions = bindings()
    if unsuitable(toolkit["version"]) is not None or simulated.available() or isinstance(versions, Missing):
        return
    # CuPy would open the GPU.
    if CALLERS[0] in versions and not isinstance(_load(toolkit), Missing):
        cuda = cudacalls.open_cuda()
        if not isinstance(cuda, Missing):
            kernels.prepare(cuda.core, gemmkernels.SOURCE)


def unsuitable(version: Any) -> Optional[Missing]:
    """Missing if nothing can be measured with a toolkit of this version ("12.4"), else None."""
    if not isinstance(version, str):
        why = version.get("detail", "") if isinstance(version, dict) else ""
        return Missing(
            "not_installed", f"no CUDA toolkit was found ({why}); install one: gpuprep provision with cuda.version"
        )
    if int(version.split(".")[0]) < OLDEST_CUDA:
        return Missing(
            "not_supported",
            f"the toolkit is CUDA {version}, and the libraries through which it is called need 11 or newer; "
            "ask for a newer cuda.version in the profile",
        )
    return None


def bindings() -> Union[Dict[str, str], Missing]:
    """Name ► version of the Python packages that call CUDA; Missing if one is not installed."""
    callers = cudacalls.versions(CALLERS)
    versions = {**dict(list(callers.items())[:1]), **cudacalls.versions(cudacalls.BINDINGS)}
    for name, there in (("nvmath-python", bool(callers)), *((name, name in versions) for name in cudacalls.BINDINGS)):
        if not there:
            return Missing(
                "not_installed",
                f"{name} is not in the agent's Python environment; run the role gpu_agent again with its wheels "
                "(there are some for Python 3.11 and newer)",
            )
    return versions


def _load(toolkit: Dict[str, Any]) -> Union[Tuple[Any, str], Missing]:
    """(the module that measures, cuBLAS's version); Missing without a driver or the toolkit's libraries."""
    if toolkit["nvcc"] and not toolkit["nvcc"].startswith("/usr/bin/"):
        # Where the loader's list does not have the toolkit's folder, the bindings look below CUDA_PATH.
        prefix = os.path.dirname(os.path.dirname(os.path.realpath(toolkit["nvcc"])))  # noqa: PTH120
        os.environ.setdefault("CUDA_PATH", prefix)
    try:
        runner = importlib.import_module("gpuprep.agent.probes.gemmrun")
        return runner, runner.blas.version()
    except ImportError as error:
        return Missing("not_installed", f"{error}; run the role gpu_agent again with its wheels")
    except (RuntimeError, OSError) as error:  # RuntimeError: cuda-pathfinder found no library
        return Missing("library_not_found", f"{type(error).__name__}: {error}")


def _measured(arguments: Dict[str, Any], toolkit: Dict[str, Any]) -> Union[Dict[str, Any], Missing]:
    versions = bindings()
    if isinstance(versions, Missing):
        return versions
    runner_and_version = _load(toolkit)
    if isinstance(runner_and_version, Missing):
        return runner_and_version
    runner, version = runner_and_version
    quick = bool(arguments.get("quick"))
    loaded = to_json_value(libraries.loaded({"cublasLt": version}))
    measured_each({"quick": quick, "libraries": loaded, "toolkit": toolkit, "bindings": versions})
    with Nvml() as nvml:
        gpus = nvml.gpus()
        if isinstance(gpus, Missing):
            return gpus
        full = _settings(runner, arguments, QUICK if quick else FULL)
        brief = full if quick else _settings(runner, arguments, BRIEF)
        sessions: List[Any] = []
        # The common load of all GPUs is compared with the sustained load of the first one (gemm_together).
        rows = [
            _gpu(runner, gpu, brief if number else full, sessions, Pace(number, len(gpus)))
            for number, gpu in enumerate(gpus)
        ]
        together = None
        if len(sessions) > 1 and full.together_seconds:
            tell("all GPUs at once")
            together = runner.together(sessions, full.together_seconds)
        return {
            "quick": quick,
            "libraries": to_json_value(libraries.loaded({"cublasLt": version})),
            "toolkit": toolkit,
            "bindings": versions,
            "gpus": to_json_value(rows),
            "together": to_json_value(together),
        }


def _settings(runner: Any, arguments: Dict[str, Any], seconds: Dict[str, Any]) -> Any:
    chosen = {**seconds}
    if seconds is FULL and "sustained_seconds" in arguments:
        chosen["sustained_seconds"] = float(arguments["sustained_seconds"])
    return runner.Settings(
        rule=QUICK_RULE if seconds is QUICK else Rule(),
        shapes=arguments.get("shapes"),
        main_dtype=arguments.get("main_dtype"),
        one_shape=seconds is not FULL,
        **chosen,
    )


def _gpu(runner: Any, gpu: Any, settings: Any, sessions: List[Any], pace: Pace) -> Dict[str, Any]:
    """Measure one GPU alone. If all products succeed it joins `sessions`, else `error` has the reason."""
    facts = gpu.facts()
    unknown = Missing("not_measured", "the GPU was not opened")
    row = gpu_values(facts, other_processes(gpu), unknown, unknown)
    pace.known(row)
    try:
        pace.tell("opening it")
        session = runner.Session(gpu, facts.pci_address, settings)
        row["sms"], row["l2_mib"] = session.device.sms, session.device.l2_bytes // 2**20
        pace.known(row)
        row["error"] = session.measure(row["gemms"], pace)
    except (LookupError, *runner.FAILURES) as error:
        row["error"] = runner.words(error)
    else:
        if row["error"] is None:
            sessions.append(session)
    pace.ended(row["error"])
    return row
