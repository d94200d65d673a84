"""Convolutions through cuDNN: was it the installed library that ran, and is what it computed right?"""

from __future__ import annotations

from gpuprep.checks.common import check, unknown
from gpuprep.checks.evidence import Evidence
from gpuprep.records import Finding, Missing, Status
from gpuprep.records.evidence.cudnn import Convolution, Cudnn

ROLE = "gpu_cudnn"
AGAIN = "measure again"
MEASURE = "see that cuDNN is installed; gpuprep provision gives the agent cuDNN's frontend (it needs CUDA 12 or newer)"
ELSEWHERE = "take the other one off LD_LIBRARY_PATH and /etc/ld.so.conf.d; gpuprep provision sets the loader's"


def findings(evidence: Evidence) -> list[Finding]:
    """Library, version, one of each convolution."""
    if evidence.wanted.cudnn.version == "none":
        return []
    values = evidence.of(Cudnn, "cudnn")
    if isinstance(values, Missing):
        return [unknown("cudnn", "convolutions", values, expected="right", remedy=MEASURE)]
    if not values.convolutions:
        nothing = Missing("unparsable", "the probe lists no convolution")
        return [*_library(evidence, values), unknown("cudnn", "convolutions", nothing, expected="right", remedy=AGAIN)]
    found = [*_library(evidence, values), *map(_convolution, values.convolutions)]
    have = {(case.dtype, case.layout) for case in values.convolutions}
    absent = [f"{dtype} {layout}" for dtype in ("fp16", "fp32") for layout in ("NHWC", "NCHW")
              if (dtype, layout) not in have]  # fmt: skip
    if absent:
        gone = Missing("not_recorded", ", ".join(absent))
        found.append(unknown("cudnn", "convolutions", gone, expected="four of them", remedy=AGAIN))
    return found


def _library(evidence: Evidence, values: Cudnn) -> list[Finding]:
    """Which file ran: the one that facts found, where gpuprep put it, and no second one beside it."""
    loaded = [(lib.path, lib.version or "") for lib in values.libraries if lib.name == "cudnn"]
    wanted, installed = evidence.wanted, evidence.snapshot.cudnn.library_path
    if not loaded:
        reading = Missing("unparsable", "the probe names no cudnn among its libraries")
        return [unknown("cudnn", "loaded", reading, expected="the installed one", remedy=AGAIN)]
    home = f"{wanted.cudnn_directory}/"
    expected = wanted.cudnn_directory if wanted.installs else str(installed)
    strangers = [path for path, _ in loaded if not _ours(path, installed, home, wanted.installs)]
    why = f"a program gets another cuDNN than the installed one: {', '.join(strangers)} comes first"
    shown = ", ".join(path for path, _ in loaded)
    found = check(
        "cudnn", "loaded", shown, not strangers, expected=expected, why=why, role=ROLE, remedy=ELSEWHERE
    )  # fmt: skip
    if not wanted.installs and isinstance(installed, Missing):
        found = unknown("cudnn", "loaded", installed, expected="the installed one", remedy=AGAIN)
    version = loaded[0][1]
    asked = ".".join(wanted.cudnn.version.split(".")[:3]) if wanted.installs else evidence.snapshot.cudnn.version
    if not isinstance(asked, str):
        reading = asked if isinstance(asked, Missing) else Missing("not_installed", "no header beside the library")
        return [found, unknown("cudnn", "loaded_version", reading, expected="the installed one", remedy=AGAIN)]
    told = f"the cuDNN that a program loads is {version or 'of unknown version'}, and {asked} is wanted"
    return [found, check("cudnn", "loaded_version", version, version == asked, expected=asked, why=told, role=ROLE)]


def _ours(path: str, installed: object, home: str, installs: bool) -> bool:
    return path.startswith(home) if installs else path == installed


def _convolution(case: Convolution) -> Finding:
    dtype, layout = case.dtype, case.layout or "?"
    prop, what = f"convolution_{dtype}_{layout}".lower(), f"{dtype.upper()} {layout}"
    if case.error:
        last = case.error.strip().splitlines()[-1] if case.error.strip() else "no message"
        why = f"the convolution in {what} did not run: {last}"
        remedy = "see whether this cuDNN still knows the GPU (9.11 dropped Volta) and fits the driver"
        return Finding("cudnn", prop, Status.FAIL, "runs", "failed", why, remedy)
    off, allowed = case.max_relative_error, case.error_tolerance
    compared = f"the result in {what}"
    if isinstance(off, Missing):
        return unknown("cudnn", prop, off, expected="compared with FP64", what=compared, remedy=AGAIN)
    if isinstance(allowed, Missing):
        return unknown("cudnn", prop, allowed, expected="compared with FP64", what=compared, remedy=AGAIN)
    expected, speed = f"off by at most {allowed:g}", case.tflops
    shown = f"{off:.2g}" + ("" if isinstance(speed, Missing) else f" at {speed:.0f} TFLOPS")
    if 0 <= off <= allowed:
        return Finding("cudnn", prop, Status.PASS, expected, shown)
    why = f"the convolution in {what} is off by {off:.2g} of its largest value, and {allowed:g} is allowed"
    remedy = (
        "do not calculate on this GPU before it is explained: try another machine, and show the provider this report"
    )
    return Finding("cudnn", prop, Status.FAIL, expected, shown, why, remedy)
