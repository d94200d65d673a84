"""The matrix products (docs/records.md, gemm): is every GPU there, right, alone, unthrottled, and fast enough.

Figures that someone published (`published` names where) tell only the speed; what belongs to a host is then SKIP.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpuprep.checks import gemmpeers, gemmspeed, gemmtrust
from gpuprep.checks.common import skip, unknown
from gpuprep.checks.evidence import Evidence
from gpuprep.checks.gemmrecord import Gpu, error_of, gpus, is_published
from gpuprep.records import Finding, Missing, Status

EXPECTED = "matrix products of every GPU"


def findings(evidence: Evidence) -> list[Finding]:
    values = evidence.results["gemm"]
    if isinstance(values, Missing):
        return [unknown("gemm", "measured", values, expected=EXPECTED, what="the speed of matrix products")]
    measured = gpus(values)
    found = _all_there(evidence, values, measured)
    if is_published(values):
        why = f"figures that were published ({values['published']}): nothing is known of the host"
        found.append(skip("gemm", "host", expected="of this host", actual="published", reason=why))
    else:
        found.append(gemmtrust.library(values))
    for gpu in measured:
        found += _gpu(evidence, gpu)
    return found + gemmpeers.findings(evidence, measured, values)


def _gpu(evidence: Evidence, gpu: Gpu) -> list[Finding]:
    if gpu.published:
        return gemmspeed.findings(evidence, gpu, disturbed="") or [_empty(gpu)]
    failed = gemmtrust.errors(gpu)
    if not gpu.gemms:
        return failed or [_empty(gpu)]
    disturbed, alone = gemmtrust.alone(gpu)
    return [
        *failed,
        *alone,
        *gemmtrust.results(gpu),
        *gemmtrust.slowdowns(gpu),
        *gemmspeed.findings(evidence, gpu, disturbed),
    ]


def _empty(gpu: Gpu) -> Finding:
    why = f"no matrix product of {gpu.subject} was measured"
    return Finding(gpu.subject, "gemm", Status.UNKNOWN, EXPECTED, "none", why, "measure again")


def _all_there(evidence: Evidence, values: Mapping[str, Any], measured: list[Gpu]) -> list[Finding]:
    """Every GPU that NVML showed, and every entry readable."""
    listed = values.get("gpus")
    if not isinstance(listed, (list, tuple)) or not listed or len(measured) < len(listed):
        said = f" ({error_of(values)})" if error_of(values) else ""
        why = f"the measurement has no list of GPUs, or an entry that is none{said}"
        return [Finding("gemm", "gpus", Status.UNKNOWN, EXPECTED, "no figures", why, "measure again")]
    absent = evidence.not_measured({gpu.uuid for gpu in measured})
    if not absent or is_published(values):
        return []
    why = f"{', '.join(absent)} was seen by NVML and not measured"
    return [Finding("gemm", "gpus", Status.UNKNOWN, EXPECTED, f"without {', '.join(absent)}", why, "measure again")]
