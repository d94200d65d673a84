"""Does the toolkit compile programs that run, and may an ordinary user read the performance counters?"""

from __future__ import annotations

from gpuprep import catalogue
from gpuprep.checks.common import check, skip, unknown
from gpuprep.checks.evidence import Evidence
from gpuprep.records import Finding, Missing
from gpuprep.records.evidence.toolkit import Cupti, Toolkit

CUDA_ROLE, DRIVER_ROLE = "gpu_cuda", "gpu_driver"
# What a program prints that cannot run, and what that asks for.
RUN_REMEDIES = {
    "InsufficientDriver": "the driver is older than the toolkit needs: install a newer driver or an older CUDA",
    "NoDevice": "no GPU is visible: see the driver's findings, and CUDA_VISIBLE_DEVICES",
    "SystemNotReady": "start Fabric Manager (nvidia-fabricmanager): without it GPUs behind an NVSwitch do not start",
    "SystemDriverMismatch": "reboot, so that module and library are of one version",
    "NoKernelImageForDevice": "this CUDA does not compile for this GPU: choose a CUDA version that supports it",
}

ADMINISTRATORS = ("root", "0")


def findings(evidence: Evidence) -> list[Finding]:
    """Findings on nvcc, compiling, running and counters; without running if nothing was compiled."""
    if evidence.wanted.cuda.version == "none":
        return []
    values = evidence.of(Toolkit, "toolkit")
    compiled = _compiles(values)
    if isinstance(values, Missing):
        return [compiled]
    runs = [_runs(values)] if values.compiles is True else []
    return [compiled, _compiler(evidence, values), *runs, _counters(evidence, values)]


def _compiles(values: Toolkit | Missing) -> Finding:
    compiles = values if isinstance(values, Missing) else values.compiles
    output = "" if isinstance(values, Missing) else values.output.strip()
    why = f"nvcc does not compile: {output.splitlines()[-1] if output else 'it printed nothing'}"
    remedy = "`gpuprep provision HOST --profile PROFILE --only cuda`; the probe's output has nvcc's last lines"
    return check("cuda", "compiles", compiles, compiles is True, expected="yes", why=why, role=CUDA_ROLE, remedy=remedy)


def _compiler(evidence: Evidence, values: Toolkit) -> Finding:
    version, wanted = values.version, evidence.wanted.cuda.version
    reading = catalogue.host_version(version or Missing("not_recorded", "no version of nvcc"))
    good = isinstance(reading, str) and catalogue.matches(reading, wanted)
    why = f"nvcc compiles for CUDA {version}: programs are built for another toolkit than the profile's"
    return check("cuda", "compiler", reading, good, expected=wanted, why=why, role=CUDA_ROLE)


def _runs(values: Toolkit) -> Finding:
    runs, output = values.runs, values.run_output.strip()
    last = output.splitlines()[-1] if output else "it printed nothing"
    remedy = next((advice for word, advice in RUN_REMEDIES.items() if word in last), "see the driver's findings")
    mismatch = "SystemDriverMismatch" in last
    what = "whether a compiled CUDA program runs"
    if isinstance(runs, Missing):
        return unknown("cuda", "runs", runs, expected="yes", what=what, remedy="measure again")
    why = f"a compiled CUDA program does not run: {last}"
    return check("cuda", "runs", runs, runs is True, expected="yes", why=why, remedy=remedy, reboot=mismatch)


def _counters(evidence: Evidence, values: Toolkit) -> Finding:
    wish = evidence.wanted.tuning.profiling_counters
    if wish != "open":
        reason = "the profile leaves the performance counters to administrators"
        return skip("cupti", "counters", expected=wish, actual="not checked", reason=reason)
    cupti = Cupti(counters=values.cupti) if isinstance(values.cupti, Missing) else values.cupti
    counters, user = cupti.counters, cupti.as_user
    expected = f"readable by {user}"
    remedy = (
        "`gpuprep provision HOST --profile PROFILE --only driver` opens them "
        "(NVreg_RestrictProfilingToAdminUsers=0) and reboots"
    )
    if counters is True and user in ADMINISTRATORS:
        counters = Missing("not_recorded", f"{user} read them, which this user may always do")
    if isinstance(counters, Missing):
        what = "whether an ordinary user may read the performance counters"
        return unknown("cupti", "counters", counters, expected=expected, remedy="measure again", what=what)
    why = (
        f"{user} may not read the GPU's performance counters, so profilers show "
        f"nothing{f': {cupti.detail}' if cupti.detail else ''}"
    )
    ok, shown = counters is True, "readable" if counters is True else "restricted to administrators"
    return check(
        "cupti", "counters", counters, ok, expected=expected, shown=shown, why=why, role=DRIVER_ROLE, remedy=remedy
    )
