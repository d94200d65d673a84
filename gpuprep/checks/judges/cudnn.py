"""Convolutions through cuDNN: did the installed library run, and are its results correct?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from gpuprep import catalogue
from gpuprep.agent.compute.convolution import SHAPE, TOLERANCE
from gpuprep.checks.common import check, unknown
from gpuprep.checks.evidence import Evidence
from gpuprep.checks.floors import figure
from gpuprep.performance import roofline
from gpuprep.performance.roofline import Roof
from gpuprep.records import Finding, Missing, Status
from gpuprep.records.evidence import is_no_number
from gpuprep.records.evidence.cudnn import Convolution, Cudnn

ROLE = "gpu_cudnn"
AGAIN = "measure again"
MEASURE = (
    "see that cuDNN is installed; `gpuprep provision HOST --profile PROFILE --only "
    "agent,cudnn` gives the agent cuDNN's frontend (it needs CUDA 12 or newer)"
)
# A convolution in FP32 may run on Tensor Cores as TF32.
UNITS = {"fp16": ("fp16",), "fp32": ("fp32", "tf32")}
ABOVE = 1.05  # of the peak: clocks may be a little above the boost; a higher speed is impossible
# Of the peak. H200: 13 to 25 %, a T4 more. Small as it is, a convolution that slow did not run as it should.
SLOW, BROKEN = 0.04, 0.02
ROUNDED = 0.02  # by which time and speed of one convolution may differ
WRONG = "do not calculate on this GPU until the cause is known: try another machine, and show the provider this report"
SLOWLY = "see that nothing else used the GPU (nvidia-smi) and its clocks (nvidia-smi -q -d CLOCK), then measure again"
ELSEWHERE = (
    "remove the other one from LD_LIBRARY_PATH and /etc/ld.so.conf.d; `gpuprep provision HOST "
    "--profile PROFILE` sets the loader's path"
)


def findings(evidence: Evidence) -> list[Finding]:
    """Findings on library, version and each convolution."""
    if evidence.wanted.cudnn.version == "none":
        return []
    values = evidence.of(Cudnn, "cudnn")
    if isinstance(values, Missing):
        return [unknown("cudnn", "convolutions", values, expected="right", remedy=MEASURE)]
    if not values.convolutions:
        nothing = Missing("not_recorded", "no convolution is listed")
        return [*_library(evidence, values), unknown("cudnn", "convolutions", nothing, expected="right", remedy=AGAIN)]
    board = evidence.board(values.gpu) if values.gpu else None
    cudnn_findings = _library(evidence, values)
    cudnn_findings += [_convolution(case, board) for case in _once(values)]
    have = {(case.dtype, case.layout) for case in values.convolutions}
    listed = Counter((case.dtype, case.layout) for case in values.convolutions if not _lacks(case))
    if again := [f"{dtype} {layout}" for (dtype, layout), count in listed.items() if count > 1]:
        why = f"there is more than one result of {', '.join(again)}: it is not known which is right"
        cudnn_findings.append(Finding("cudnn", "entries", Status.UNKNOWN, "one of each", "several", why, AGAIN))
    absent = [f"{dtype} {layout}" for dtype in ("fp16", "fp32") for layout in ("NHWC", "NCHW")
              if (dtype, layout) not in have]  # fmt: skip
    if absent:
        gone = Missing("not_recorded", ", ".join(absent))
        cudnn_findings.append(unknown("cudnn", "convolutions", gone, expected="four of them", remedy=AGAIN))
    return cudnn_findings


def _library(evidence: Evidence, values: Cudnn) -> list[Finding]:
    """Whether the right file ran: the one in the facts, in gpuprep's folder, and no second copy."""
    loaded = [(lib.path, lib.version or "") for lib in values.libraries if lib.name == "cudnn"]
    wanted, installed = evidence.wanted, evidence.snapshot.cudnn.library_path
    if not loaded:
        reading = Missing("not_recorded", "no cudnn among its libraries")
        return [unknown("cudnn", "loaded", reading, expected="the installed one", remedy=AGAIN)]
    if any(not path for path, _ in loaded):
        reading = Missing("not_recorded", "no path of the loaded cudnn")
        return [unknown("cudnn", "loaded", reading, expected="the installed one", remedy=AGAIN)]
    home = f"{wanted.cudnn_directory}/"
    expected = wanted.cudnn_directory if wanted.installs else str(installed)
    strangers = [path for path, _ in loaded if not _ours(path, installed, home, wanted.installs)]
    why = f"a program gets another cuDNN than the installed one: {', '.join(strangers)} comes first"
    shown = ", ".join(path for path, _ in loaded)
    finding = check(
        "cudnn", "loaded", shown, not strangers, expected=expected, why=why, role=ROLE, remedy=ELSEWHERE
    )  # fmt: skip
    if not wanted.installs and isinstance(installed, Missing):
        finding = unknown("cudnn", "loaded", installed, expected="the installed one", remedy=AGAIN)
    version = loaded[0][1]
    asked = ".".join(wanted.cudnn.version.split(".")[:3]) if wanted.installs else evidence.snapshot.cudnn.version
    if not isinstance(asked, str):
        reading = asked if isinstance(asked, Missing) else Missing("not_installed", "no header beside the library")
        return [finding, unknown("cudnn", "loaded_version", reading, expected="the installed one", remedy=AGAIN)]
    if not version:
        reading = Missing("not_recorded", "no version of the loaded cudnn")
        return [finding, unknown("cudnn", "loaded_version", reading, expected=asked, remedy=AGAIN)]
    mismatch = f"the cuDNN that a program loads is {version}, and {asked} is wanted"
    return [
        finding,
        check("cudnn", "loaded_version", version, version == asked, expected=asked, why=mismatch, role=ROLE),
    ]


def _ours(path: str, installed: object, home: str, installs: bool) -> bool:
    return path.startswith(home) if installs else path == installed


def _once(values: Cudnn) -> list[Convolution]:
    first: dict[tuple[str, str], Convolution] = {}
    for case in values.convolutions:
        first.setdefault((case.dtype, case.layout), case)
    return list(first.values())


def _impossible(case: Convolution, board: catalogue.Board | None) -> str:
    """Why the figures of a convolution are impossible; "" if they are possible."""
    if lacking := _lacks(case):
        return f"its {lacking} is not recorded"
    if case.dtype not in TOLERANCE or case.layout not in ("NHWC", "NCHW"):
        return f"gpuprep measures no convolution in {case.dtype} {case.layout or '?'}"
    if case.shape != str(SHAPE):
        return f"the convolution is {case.shape}, and the probe's is {SHAPE}"
    tflops, microseconds = case.tflops, case.microseconds
    if isinstance(tflops, Missing) or isinstance(microseconds, Missing) or tflops <= 0 or microseconds <= 0:
        return "its time or its speed is not recorded, or is no figure"
    by_time = SHAPE.operations / microseconds / 1e6
    if abs(by_time - tflops) > ROUNDED * tflops + 0.01:
        return f"{microseconds:g} µs are {by_time:.3g} TFLOPS, and {tflops:.3g} are recorded"
    most = _peak(case, board)
    if most and tflops > ABOVE * most:
        return f"{tflops:.3g} TFLOPS are more than the peak of {most:.3g}"
    return ""


def _peak(case: Convolution, board: catalogue.Board | None) -> float:
    """TFLOPS of the fastest units that may have run it; 0 where they are not known."""
    roofs = [roofline.roof(board, unit) for unit in UNITS[case.dtype]] if board else []
    return max((roof.tflops for roof in roofs if isinstance(roof, Roof)), default=0.0)


def _lacks(case: Convolution) -> str:
    """What is not recorded of the three that say which convolution it is; "" if all are."""
    named = {"data type": case.dtype if case.dtype != Convolution().dtype else "", "layout": case.layout,
             "shape": case.shape}  # fmt: skip
    return next((what for what, read in named.items() if not read), "")


def _convolution(case: Convolution, board: catalogue.Board | None) -> Finding:
    dtype, layout = case.dtype, case.layout or "?"
    prop, what = f"convolution_{dtype}_{layout}".lower(), f"{dtype.upper()} {layout}"
    if case.error:
        last = case.error.strip().splitlines()[-1] if case.error.strip() else "no message"
        why = f"the convolution in {what} did not run: {last}"
        remedy = "see whether this cuDNN still knows the GPU (9.11 dropped Volta) and fits the driver"
        return Finding("cudnn", prop, Status.FAIL, "runs", "failed", why, remedy)
    off, compared = case.max_relative_error, f"the result in {what}"
    if why := _wrong(case, what):
        return Finding("cudnn", prop, Status.FAIL, f"off by at most {_allowed(case):g}", "wrong results", why, WRONG)
    if contradiction := _impossible(case, board):
        return Finding("cudnn", prop, Status.UNKNOWN, "possible figures", "not judged", contradiction, AGAIN)
    if isinstance(off, Missing):
        return unknown("cudnn", prop, off, expected="compared with FP64", what=compared, remedy=AGAIN)
    expected, speed = f"off by at most {_allowed(case):g}", case.tflops
    shown = f"{off:.2g}" + ("" if isinstance(speed, Missing) else f" at {speed:.0f} TFLOPS")
    if off == 0:
        why = f"no error at all is recorded: sums of {SHAPE.channels * SHAPE.kernel**2} products always round"
        return Finding("cudnn", prop, Status.UNKNOWN, expected, shown, why, AGAIN)
    peak = _peak(case, board)
    if peak and not isinstance(speed, Missing) and speed < SLOW * peak:
        why = f"the convolution in {what} reaches {speed:.3g} TFLOPS, {100 * speed / peak:.1f} % of {figure(peak)}"
        status = Status.FAIL if speed < BROKEN * peak else Status.WARN
        return Finding("cudnn", prop, status, f"≥ {100 * SLOW:g} % of {figure(peak)} TFLOPS", shown, why, SLOWLY)
    return Finding("cudnn", prop, Status.PASS, expected, shown)


def _allowed(case: Convolution) -> float:
    """gpuprep's own tolerance, or the record's if that is smaller."""
    read = [] if isinstance(case.error_tolerance, Missing) else [case.error_tolerance]
    return min([TOLERANCE.get(case.dtype, min(TOLERANCE.values())), *read])


def _wrong(case: Convolution, what: str) -> str:
    """Why the result is wrong, as for matrix products; "" if it is right or was not compared."""
    off, allowed = case.max_relative_error, _allowed(case)
    if is_no_number(off):
        return f"the convolution in {what} has results that are no numbers, or beyond every bound"
    if isinstance(off, Missing) or 0 <= off <= allowed:
        return ""
    if off < 0:
        return f"the convolution in {what} has an error of {off:.2g}, which is impossible"
    return f"the convolution in {what} is off by {off:.2g} of its largest value, and {allowed:g} is allowed"


def parts(measurement: Cudnn) -> Iterator[str]:
    """ "fp16 nhwc" of each convolution that ran."""
    done = (convolution for convolution in measurement.convolutions if not convolution.error)
    yield from dict.fromkeys(f"{convolution.dtype} {convolution.layout}" for convolution in done)
