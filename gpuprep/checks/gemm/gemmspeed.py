"""Is a GPU as fast as it should be, and if not, why?

Two checks: the best product of each data type is compared with the board's floor, and every product is compared with
healthy boards at the same clock and with the same kind of kernel (gemmclock), so that a power limit is no fault.
"""

from __future__ import annotations

from gpuprep.agent.probes.gemmtypes import TYPES
from gpuprep.catalogue import parse
from gpuprep.catalogue.boards import MASKED
from gpuprep.checks.common import COMPARE_IT, DEFECT, MEASURE_AGAIN, skip, unknown
from gpuprep.checks.evidence import Evidence
from gpuprep.checks.floors import Floor, figure, floor, percents
from gpuprep.checks.gemm import gemmclock, gemmcredible
from gpuprep.checks.gemm.gemmrecord import Gpu, prop, shape_of, speed, turning, why_unusable
from gpuprep.checks.gemm.gemmtrust import LOWERED
from gpuprep.performance import attribution, roofline
from gpuprep.performance.attribution import Attribution
from gpuprep.performance.clock_events import (
    APPLICATION_CLOCKS,
    SW_POWER_CAP,
    SW_THERMAL,
    held_below,
    named,
    power_limit,
)
from gpuprep.performance.operations import LAYOUTS
from gpuprep.performance.roofline import Roof, speed_unit
from gpuprep.records import Finding, Missing, Status
from gpuprep.records.evidence.gemm import Product

NEAR_ROOF = 0.9  # below this share of the roof, memory decides
UNMEASURED = {
    "fp8": (
        "it was not measured; of the libraries that gpuprep calls, only cuBLASLt through nvmath-python multiplies FP8",
        "`gpuprep provision HOST --profile PROFILE --only agent` gives the agent nvmath-python (it needs CUDA 12 or "
        "newer); if it has that, measure again",
    )
}
NO_WORD = Product().dtype  # of a product that does not name its data type
LOWEST_TILING = 0.6  # of the SMs' time, spent on results: with less, a product is no measure of a GPU


def findings(evidence: Evidence, gpu: Gpu, disturbed: str) -> list[Finding]:
    """Findings for each data type: its burst, its sustained load, and its other products.

    `disturbed`: why no figure of this GPU counts, or "".
    """
    findings = []
    for kind in gpu.kinds():
        findings.append(_burst(evidence, gpu, kind, disturbed))
        findings += [] if disturbed else gemmclock.others(gpu, kind)
        for gemm in gpu.of_kind(kind):
            if gemm.sustained is not None:
                findings.append(_sustained(evidence, gpu, kind, gemm, disturbed))
    if not disturbed:
        findings += gemmclock.altogether(gpu)
    return findings + _not_measured(evidence, gpu)


def _burst(evidence: Evidence, gpu: Gpu, kind: tuple[str, str], disturbed: str) -> Finding:
    best = gpu.best(kind)
    if best is None:
        reasons = list(
            dict.fromkeys(filter(None, (why_unusable(g, published=gpu.published) for g in gpu.of_kind(kind))))
        )
        return _unknown(gpu, prop(kind), _expected(evidence, gpu, kind), "; ".join(reasons))
    if contradictions := list(
        filter(None, (gemmcredible.impossible(gpu, g) for g in gpu.of_kind(kind) if not g.error))
    ):
        shown = f"{figure(speed(best.tflops))} {speed_unit(kind[0])} ({shape_of(best)})"
        why = (
            f"these figures are impossible: {'; '.join(contradictions[:2])}; the measurement or the catalogue is wrong"
        )
        expected = _expected(evidence, gpu, kind)
        return Finding(gpu.subject, prop(kind), Status.UNKNOWN, expected, shown, why, MEASURE_AGAIN)
    return _judged(evidence, gpu, kind, prop(kind), best, disturbed)


def _sustained(evidence: Evidence, gpu: Gpu, kind: tuple[str, str], gemm: Product, disturbed: str) -> Finding:
    lasting = attribution.sustained(gemm)
    name = f"{prop(kind)}_sustained"
    if lasting is None or speed(lasting.tflops) <= 0:
        return _unknown(gpu, name, _expected(evidence, gpu, kind), "its speed is not recorded")
    return _judged(evidence, gpu, kind, name, lasting, disturbed)


def _judged(evidence: Evidence, gpu: Gpu, kind: tuple[str, str], name: str, gemm: Product, disturbed: str) -> Finding:
    expected, above = _expected(evidence, gpu, kind), _roof(gpu, kind)
    if isinstance(above, Missing):
        if kind[0] == NO_WORD:
            return _unknown(gpu, name, expected, "its data type is not recorded")
        if above.reason == "no_such_units":
            shown = f"{figure(speed(gemm.tflops))} {speed_unit(kind[0])}"
            return skip(gpu.subject, name, expected=expected, actual=shown, reason=above.detail)
        return _unknown(gpu, name, expected, above.detail, COMPARE_IT)
    percent, limit = 100.0 * speed(gemm.tflops) / above.tflops, _floor(evidence, gpu, kind, above)
    share = percents(percent, limit.percent)[0] if limit else f"{percent:.0f}"
    shown = f"{figure(speed(gemm.tflops))} {speed_unit(kind[0])}, {share} % ({shape_of(gemm)})"
    if disturbed:
        return Finding(gpu.subject, name, Status.UNKNOWN, expected, shown, disturbed, MEASURE_AGAIN)
    if limit is None:
        why = f"profile {evidence.wanted.profile} has no floor for {kind[0]}"
        return skip(gpu.subject, name, expected=expected, actual=shown, reason=why)
    if why := turning(gemm, percent, limit.percent):
        return Finding(gpu.subject, name, Status.UNKNOWN, expected, shown, why, MEASURE_AGAIN)
    explained = attribution.explain(gemm, gpu.facts, gpu.measured) if gpu.facts else Missing("not_in_catalogue")
    slow = gemmclock.slow(gpu, gemm, explained, evidence) if isinstance(explained, Attribution) else None
    if percent < limit.percent and isinstance(explained, Attribution) and slow is None:
        excused = _excused(explained, limit)
        if excused is Status.PASS:
            reached = 100.0 * explained.achieved_tflops / (explained.peak_tflops * _tiling(explained))
            return Finding(
                gpu.subject, name, excused, expected, f"{shown[:-1]}: {reached:.0f} % of what its tiles allow)"
            )
        if excused is Status.UNKNOWN:
            why = (
                f"{explained.words}; the shape decides, not the GPU: {'; '.join(explained.advice) or 'it is too small'}"
            )
            return Finding(
                gpu.subject, name, excused, expected, shown, why, "measure other shapes (probes.gemm.shapes)"
            )
        if gemm.layout.lower() not in LAYOUTS and gpu.facts:
            others = [attribution.explain(gemm, gpu.facts, gpu.measured, rows) for rows in LAYOUTS.values()]
            excuses = [other.words for other in others if isinstance(other, Attribution) and _excused(other, limit)]
            if excuses:
                why = f"how its matrices lie in memory is not recorded; it may be {excuses[0]}"
                remedy = f"record its `layout`: {', '.join(LAYOUTS)} (docs/explain.md)"
                return Finding(gpu.subject, name, Status.UNKNOWN, expected, shown, why, remedy)
    if percent < limit.percent:
        return Finding(gpu.subject, name, Status.FAIL, expected, shown, *_why(gpu, gemm, explained, limit))
    if slow is None and isinstance(explained, Attribution):
        slow = gemmclock.unclocked(gpu, gemm, explained)
    if slow is not None:
        return Finding(gpu.subject, name, slow.status, expected, shown, slow.why, slow.remedy)
    return Finding(gpu.subject, name, Status.PASS, expected, shown)


def _why(gpu: Gpu, gemm: Product, explained: Attribution | Missing, limit: Floor) -> tuple[str, str]:
    """(reason, remedy) of a figure below its floor: a low clock, or a GPU that is slow at its clock."""
    if isinstance(explained, Missing):
        return f"below the floor; the cause is not known: {explained.detail or explained.reason}", DEFECT
    advice = "".join(f"; {line}" for line in explained.advice)
    adjusted, soundness = explained.clock_adjusted_percent, explained.soundness
    if adjusted is None:
        return f"{explained.words}; the clock was not read, so throttling and a defect look the same", DEFECT
    if adjusted >= limit.percent and (soundness is None or soundness >= gemmclock.least(explained)):
        at_clock = percents(adjusted, limit.percent)[0]
        cause = f"throttled, not defective: at the clock it ran at it reaches {at_clock} %"
        return f"{explained.words}; {cause}", _unthrottle(gemm, gpu)
    at_clock = percents(adjusted, limit.percent)[0]
    cause = f"a defect, not throttling: {at_clock} % even of the peak at the clock it ran at"
    return f"{explained.words}; {cause}{advice}", DEFECT


def _excused(explained: Attribution, limit: Floor) -> Status | None:
    """The status of a figure below its floor if its shape alone explains that; else None.

    A floor is for large products. If the last wave of a smaller product leaves SMs idle, the GPU is not slow; a product
    that is limited by memory, or too small, says nothing about the units.
    """
    clock, bound = explained.factor("clock").value, explained.factor("bound").value
    percent, tiling = explained.percent_of_peak, _tiling(explained)
    if bound < NEAR_ROOF:
        return Status.UNKNOWN if percent / (clock * bound) >= limit.percent else None
    if percent / tiling < limit.percent:
        return None
    return Status.PASS if tiling >= LOWEST_TILING else Status.UNKNOWN


def _tiling(explained: Attribution) -> float:
    return explained.factor("tile").value * explained.factor("wave").value * explained.factor("alignment").value


def _unthrottle(gemm: Product, gpu: Gpu) -> str:
    mask = gemm.event_reasons
    first = named(0 if isinstance(mask, Missing) or mask < 0 else int(mask))[:1]
    bit = first[0].bit if first else 0
    if bit == SW_POWER_CAP:
        return _uncap(gemm, gpu)
    if bit in (0, APPLICATION_CLOCKS):
        return "set the clocks (tuning.clocks: max, then `gpuprep tune HOST --profile PROFILE`)"
    if bit == SW_THERMAL:
        return "look at the machine's cooling"
    return "look at the machine's cooling and power supply; in a cloud, show the provider this report"


def _uncap(gemm: Product, gpu: Gpu) -> str:
    """The remedy for a power cap. It never advises raising the board's own limit, which is no fault."""
    board, limit = gpu.facts, power_limit(gpu.facts, gpu.measured) if gpu.facts else None
    if board and held_below(gemm, board, gpu.measured):
        return "find what holds the GPU below its power limit: the server's power limits, its power supply, its cooling"
    if board and board.power_watts and limit and limit < LOWERED * board.power_watts:
        return (
            "see that the power limit is the card's own (tuning.power_limit_watts: default, then "
            "`gpuprep tune HOST --profile PROFILE`)"
        )
    return (
        "the power limit is the card's own: look at temperature and cooling; if it stays, show the provider this report"
    )


def _not_measured(evidence: Evidence, gpu: Gpu) -> list[Finding]:
    """UNKNOWN for data types without a figure that have units on the GPU and a floor in the profile."""
    if gpu.facts is None or gpu.published:
        return []
    if any(dtype == NO_WORD for dtype, _ in gpu.kinds()):
        return []  # that one may be it, and has its own finding
    have = {dtype for dtype, accumulate in gpu.kinds() if not accumulate}  # FP16 added in FP16 is other work
    capability = parse(gpu.facts.model.compute_capability)
    findings = []
    for dtype in dict.fromkeys(kind.dtype for kind in TYPES if capability >= kind.since):
        above = roofline.roof(gpu.facts, dtype)
        own = isinstance(above, Roof) and (above.unit.startswith("tensor_") or dtype in ("fp32", "fp64"))
        if own and dtype not in have and _floor(evidence, gpu, (dtype, ""), above):
            expected = _expected(evidence, gpu, (dtype, ""))
            why, remedy = UNMEASURED.get(dtype, ("it was not measured", MEASURE_AGAIN))
            findings.append(_unknown(gpu, prop((dtype, "")), expected, why, remedy))
    return findings


def _roof(gpu: Gpu, kind: tuple[str, str]) -> Roof | Missing:
    if gpu.facts is None:
        nameless = gpu.pci_device_id in MASKED and not gpu.measured.name
        lacks = "which GPU it was is not recorded" if nameless else f"the catalogue does not have {gpu.name}"
        return Missing("not_in_catalogue", f"{lacks}, so its peak is not known")
    return roofline.roof(gpu.facts, *kind)


def _floor(evidence: Evidence, gpu: Gpu, kind: tuple[str, str], above: Roof | Missing) -> Floor | None:
    board = gpu.facts
    if isinstance(above, Roof) and above.unit == "tensor_fp64":
        tensor = floor(evidence, "fp64_tensor_percent_of_peak", board)
        return tensor or floor(evidence, "fp64_percent_of_peak", board)
    return floor(evidence, f"{kind[0]}_percent_of_peak", board)


def _expected(evidence: Evidence, gpu: Gpu, kind: tuple[str, str]) -> str:
    above = _roof(gpu, kind)
    limit = _floor(evidence, gpu, kind, above)
    if isinstance(above, Missing):
        return f"a peak of {kind[0]} to judge by"
    at = f"{speed_unit(kind[0])} at {above.clock_mhz:.0f} MHz"
    return limit.of(above.tflops, at) if limit else f"of {figure(above.tflops)} {at}"


def _unknown(gpu: Gpu, name: str, expected: str, why: str, remedy: str = MEASURE_AGAIN) -> Finding:
    missing = Missing("not_recorded", why)
    finding = unknown(gpu.subject, name, missing, expected=expected, remedy=remedy)
    return Finding(finding.subject, finding.property, finding.status, expected, "no figure", f"{name}: {why}", remedy)
