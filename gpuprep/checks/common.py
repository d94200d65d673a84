"""How a check becomes a Finding; the one place that decides what a missing reading means."""

from __future__ import annotations

import posixpath
from collections.abc import Sequence

from gpuprep.records import Finding, Missing, OptStr, Snapshot, Status

INTERRUPTED = "interrupted"  # reason of a reading that is missing because the user pressed Ctrl-C
FIRST_FAILURE = "first_failure"  # of a probe that did not run because the run had already failed
# Why a reading is missing, in the words of someone who has to act on it.
MISSING_REASONS = {
    "not_supported": "this GPU or driver does not support it",
    "function_not_found": "this driver's library does not have the function",
    "gpu_is_lost": "the GPU has fallen off the bus",
    "no_permission": "reading it needs root",
    "not_trusted": "root does not run files that another user can change",
    "deprecated": "this driver no longer has it",
    "driver_not_loaded": "no NVIDIA driver is loaded",
    "library_not_found": "NVIDIA's management library is not installed",
    "version_mismatch": "the loaded module and the library are of different versions",
    "cuda_not_started": "CUDA does not start here",
    "command_not_found": "the program that shows it is not installed",
    "command_failed": "the program that shows it failed",
    "unparsable": "the answer could not be read",
    "not_installed": "it is not installed",
    "not_read": "it was not read",
    "not_visible": "the process has ended, or this user may not see it",
    "not_recorded": "the record does not have it",
    "not_in_catalogue": "the catalogue does not know it",
    "impossible": "the value is impossible",
    INTERRUPTED: "the run was interrupted before it was measured",
    FIRST_FAILURE: "the run ended at the first FAIL, as --first-failure asks",
}
# cloudmachine.addressed() replaces this by the words of the machine's cloud.
RESTART = "stop the machine and start it again"
RENTED = "if the machine is rented, show the provider this report and ask for another machine"
MAKER = ", or the server's maker,"
YOURS = "if it is yours, "  # begins a step that only the machine's owner can take
REMEDIES = {
    "gpu_is_lost": f"{RESTART}; if it happens again, ask the provider{MAKER} for another",
    "version_mismatch": "reboot, so that module and library are of one version",
    # HMM: NVIDIA/open-gpu-kernel-modules#797, #901, #947.
    "cuda_not_started": "`gpuprep doctor HOST` looks for the cause; if it finds none and nvidia-smi works, switch off"
    " HMM, which some kernels do not bear: options nvidia_uvm uvm_disable_hmm=1 in a file of /etc/modprobe.d, restart",
    "no_permission": "run as a user who may use sudo",
    INTERRUPTED: "run the same command again and let it end",
    FIRST_FAILURE: "repair what failed, then run the same command again",
    "not_trusted": "make root the owner of the file and of each folder above it (chown root, chmod go-w)",
}
MOST_NAMED = 6  # of what one finding names
NOT_READABLE = "not readable: "  # what a finding shows for a missing reading, before the reason
PROVISION = "gpuprep provision HOST --profile PROFILE"
TUNE = "`gpuprep tune HOST --profile PROFILE`"
SET_CLOCKS = f"{TUNE} sets the clocks; a clock that stays low is a fault to show the provider"
# The GPU does not have it, or its driver is older than it.
NOT_TOLD = ("not_supported", "function_not_found", "deprecated", "version_mismatch")
MEASURE_AGAIN = "measure again while nothing else uses the machine"
DEFECT = (
    "measure again; if the result is the same, look for Xid errors (`sudo dmesg | grep -i xid`) and for ECC errors"
    f" (`nvidia-smi -q -d ECC`); {RESTART}; if nothing changes, show the provider this report"
)
COMPARE_IT = "compare its figures with those of a healthy GPU of its kind"  # of a GPU that the catalogue lacks


def known(reading: float | Missing) -> float | None:
    """The figure, or None if it is missing."""
    return None if isinstance(reading, Missing) else reading


def inside(path: str, folder: str) -> bool:
    return posixpath.normpath(path).startswith(posixpath.normpath(folder).rstrip("/") + "/")


def why_missing(reading: Missing) -> str:
    """ "no NVIDIA driver is loaded (NVML: Driver Not Loaded)"."""
    reason = MISSING_REASONS.get(reading.reason, reading.reason.replace("_", " "))
    return f"{reason} ({reading.detail})" if reading.detail else reason


def provision(role: str) -> str:
    """The command, in backticks, that lets a role repair a finding. Reports fill in host and profile."""
    if not role:
        return ""
    if role == "gpu_tuning":
        return TUNE
    step = role.removeprefix("gpu_")
    return f"`{PROVISION}`" if step == "preflight" else f"`{PROVISION} --only {step}`"


def check(
    subject: str,
    prop: str,
    actual: object,
    ok: bool,
    *,
    expected: str,
    why: str,
    role: str = "",
    remedy: str = "",
    shown: str | None = None,
    reboot: bool = False,
) -> Finding:
    """PASS when `ok`, else FAIL because of `why` (a sentence); UNKNOWN when `actual` is a missing reading.

    `reboot`: if the check fails, only a restart of the machine repairs it.
    """
    if isinstance(actual, Missing):
        return unknown(subject, prop, actual, expected=expected, role=role, remedy=remedy)
    text = shown if shown is not None else show(actual)
    if ok:
        return Finding(subject, prop, Status.PASS, expected, text, role=role)
    return Finding(subject, prop, Status.FAIL, expected, text, why, remedy or provision(role), role, reboot=reboot)


def none_of(
    subject: str, prop: str, named: Sequence[str], *, expected: str, why: str, role: str = "", remedy: str = ""
) -> Finding:
    """PASS if `named` is empty, else FAIL with `why` and the first entries of `named`."""
    more = f" and {len(named) - MOST_NAMED} more" if len(named) > MOST_NAMED else ""
    said = f"{'; '.join(named[:MOST_NAMED])}{more}"
    return check(
        subject, prop, len(named), not named,
        expected=expected, shown=said or expected, why=f"{why}: {said}", role=role, remedy=remedy,
    )  # fmt: skip


def unknown(
    subject: str, prop: str, reading: Missing, *, expected: str, role: str = "", remedy: str = "", what: str = ""
) -> Finding:
    """An UNKNOWN finding that says what could not be read, and why."""
    reason = f"{what or f'{subject} {prop}'.replace('_', ' ')} could not be read: {why_missing(reading)}"
    advice = REMEDIES.get(reading.reason) or remedy or provision(role)
    role = "" if reading.reason in (INTERRUPTED, FIRST_FAILURE) else role  # no role repairs it
    actual, reboot = f"{NOT_READABLE}{reading.reason}", reading.reason == "version_mismatch"
    return Finding(subject, prop, Status.UNKNOWN, expected, actual, reason, advice, role, reboot=reboot)


def is_interrupted(finding: Finding) -> bool:
    """Whether the finding is UNKNOWN because the run was interrupted before the measurement."""
    return finding.status is Status.UNKNOWN and finding.actual == NOT_READABLE + INTERRUPTED


def skip(subject: str, prop: str, *, expected: str, actual: str, reason: str, role: str = "") -> Finding:
    return Finding(subject, prop, Status.SKIP, expected, actual, reason, role=role)


def show(value: object) -> str:
    """A reading as text for a report."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)


def small_file(snapshot: Snapshot, path: str) -> OptStr:
    """The text of a file that gpuprep manages; None if it is absent; Missing if the snapshot did not read it."""
    return snapshot.files.get(path, Missing("not_installed", f"{path} was not looked at"))
