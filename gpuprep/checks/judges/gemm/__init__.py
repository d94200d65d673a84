"""The matrix products (docs/records.md, gemm): is every GPU measured, right, undisturbed, unthrottled and fast enough?

Published figures (`published` names the source) contain only the speed; checks about a host are then SKIP.
"""

from __future__ import annotations

from collections.abc import Iterator

from gpuprep.checks.common import skip, unknown
from gpuprep.checks.evidence import Evidence, duplicate_gpus
from gpuprep.checks.judges.gemm import peers, speed, trust
from gpuprep.checks.judges.gemm.decoded import Gpu, gpus
from gpuprep.records import Finding, Missing, Status
from gpuprep.records.evidence.gemm import Gemm

WRONG = (Status.WARN, Status.FAIL)
EXPECTED = "matrix products of every GPU"


def findings(evidence: Evidence) -> list[Finding]:
    values = evidence.of(Gemm, "gemm")
    if isinstance(values, Missing):
        return [unknown("gemm", "measured", values, expected=EXPECTED, what="the speed of matrix products")]
    measured = gpus(values, evidence.board)
    findings = _all_there(evidence, values, measured)
    if values.published:
        why = f"figures that were published ({values.published}): nothing is known about the host"
        findings.append(skip("gemm", "host", expected="of this host", actual="published", reason=why))
    if values.libraries or not values.published:
        findings.append(trust.library(values))
    for gpu in measured:
        findings += _gpu(evidence, gpu)
    findings += _long_run(values, measured)
    return findings + peers.findings(evidence, measured, values)


def _gpu(evidence: Evidence, gpu: Gpu) -> list[Finding]:
    failed = trust.errors(gpu)
    if not gpu.gemms:
        return failed or [_empty(gpu)]
    disturbed, alone = trust.alone(gpu)
    results, slowdowns = trust.results(gpu), trust.slowdowns(gpu)
    if gpu.published:
        # Published figures may lack the other values; the values that they have are judged as usual.
        absent = isinstance(gpu.measured.other_processes, Missing)
        disturbed, alone = ("", []) if absent else (disturbed, alone)
        results, slowdowns = ([f for f in group if f.status in WRONG] for group in (results, slowdowns))
    return [
        *failed,
        *alone,
        *results,
        *slowdowns,
        *trust.temperature(gpu),
        *trust.memory_clock(gpu),
        *trust.power_limit(evidence, gpu),
        *speed.findings(evidence, gpu, disturbed),
    ]


def _long_run(values: Gemm, measured: list[Gpu]) -> list[Finding]:
    """A finding if a full measurement has no product under sustained load, which at least the first GPU must have.

    Figures without telemetry are not from the probe, so they need no sustained load.
    """
    if values.quick is not False or values.published or not measured or measured[0].measured.error:
        return []
    first = measured[0]
    if any(gemm.sustained is not None for gemm in first.gemms) or not any(gemm.telemetry for gemm in first.gemms):
        return []
    why = "no product was measured under sustained load: whether heat or power slows the GPU down is not known"
    return [Finding(first.subject, "gemm_sustained", Status.UNKNOWN, "a product under sustained load", "none", why,
                    "measure again, without --quick")]  # fmt: skip


def _empty(gpu: Gpu) -> Finding:
    why = f"no matrix product of {gpu.subject} was measured"
    return Finding(gpu.subject, "gemm", Status.UNKNOWN, EXPECTED, "none", why, "measure again")


def _all_there(evidence: Evidence, values: Gemm, measured: list[Gpu]) -> list[Finding]:
    """UNKNOWN if a GPU that NVML listed was not measured, or if an entry cannot be read; else []."""
    if not values.gpus or len(measured) < len(values.gpus):
        error = f" ({values.error})" if values.error else ""
        why = f"the measurement has no list of GPUs, or an entry that is not valid{error}"
        return [Finding("gemm", "gpus", Status.UNKNOWN, EXPECTED, "no figures", why, "measure again")]
    if doubled := duplicate_gpus("gemm", [gpu.measured for gpu in measured]):
        return doubled
    absent = evidence.not_measured([gpu.measured for gpu in measured])
    if not absent or values.published:
        return []
    why = f"{', '.join(absent)} was seen by NVML and not measured"
    return [Finding("gemm", "gpus", Status.UNKNOWN, EXPECTED, f"without {', '.join(absent)}", why, "measure again")]


def parts(measurement: Gemm) -> Iterator[str]:
    """The data types of each GPU: "fp16", and "fp16 sustained" where it has a speed that lasts."""
    for gpu in measurement.gpus:
        if isinstance(gpu, Missing):
            continue
        kinds: dict[str, None] = {}
        for product in gpu.gemms:
            if isinstance(product, Missing) or product.error or isinstance(product.tflops, Missing):
                continue
            kinds[str(product.dtype)] = None
            lasting = product.sustained
            if lasting is not None and not isinstance(lasting, Missing) and not isinstance(lasting.tflops, Missing):
                kinds[f"{product.dtype} sustained"] = None
        yield from kinds
