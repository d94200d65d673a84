"""Is a GPU as fast as it should be: per data type the best product against the profile's floor, and why it is not."""

from __future__ import annotations

from gpuprep.checks.common import COMPARE_IT, skip, unknown
from gpuprep.checks.evidence import Evidence
from gpuprep.checks.floors import Floor, figure, floor
from gpuprep.checks.gemmrecord import Gpu, prop, shape_of, speed, turning, unit, unsound
from gpuprep.performance import attribution, roofline
from gpuprep.performance.attribution import Attribution
from gpuprep.performance.clock_events import APPLICATION_CLOCKS, SW_POWER_CAP, SW_THERMAL, named
from gpuprep.performance.roofline import Roof
from gpuprep.records import Finding, Missing, Status
from gpuprep.records.evidence.gemm import Gemm, Product

INCREDIBLE_PERCENT = 103.0  # of the peak at boost: the clock may be a little above it, the figure not by more
NEAR_ROOF = 0.9  # below this share of the roof, memory decides
LOWEST_TILING = 0.6  # of the SMs' time, spent on results: with less, a product is no measure of a GPU
LOWEST_KERNEL = 0.4  # of the roof at the clock; no published figure of a healthy GPU is lower
MEASURE_AGAIN = "measure again while nothing else uses the machine"
DEFECT = (
    "measure again; if it stays, look for Xid errors in the kernel's log and for ECC errors, stop the machine and "
    "start it again (another GPU), or show the provider this report"
)


def findings(evidence: Evidence, gpu: Gpu, disturbed: str) -> list[Finding]:
    """One for each data type, and one for its sustained load. `disturbed`: why no figure of this GPU counts, or ""."""
    found = []
    for kind in gpu.kinds():
        found.append(_burst(evidence, gpu, kind, disturbed))
        for gemm in gpu.of_kind(kind):
            if gemm.sustained is not None:
                found.append(_sustained(evidence, gpu, kind, gemm, disturbed))
    return found + _not_measured(evidence, gpu)


def _burst(evidence: Evidence, gpu: Gpu, kind: tuple[str, str], disturbed: str) -> Finding:
    best = gpu.best(kind)
    if best is None:
        reasons = list(dict.fromkeys(filter(None, (unsound(g, published=gpu.published) for g in gpu.of_kind(kind)))))
        return _unknown(gpu, prop(kind), _expected(evidence, gpu, kind), "; ".join(reasons))
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
        if above.reason == "no_such_units":
            shown = f"{figure(speed(gemm.tflops))} {unit(kind[0])}"
            return skip(gpu.subject, name, expected=expected, actual=shown, reason=above.detail)
        return _unknown(gpu, name, expected, above.detail, COMPARE_IT)
    percent = 100.0 * speed(gemm.tflops) / above.tflops
    shown = f"{figure(speed(gemm.tflops))} {unit(kind[0])}, {percent:.0f} % ({shape_of(gemm)})"
    limit = _floor(evidence, gpu, kind, above)
    if disturbed:
        return Finding(gpu.subject, name, Status.UNKNOWN, expected, shown, disturbed, MEASURE_AGAIN)
    if percent > INCREDIBLE_PERCENT * _above_boost(gemm, above):
        why = f"that is more than the peak ({above.formula}): the measurement or the catalogue's figure is wrong"
        if isinstance(gemm.graphics_clock_mhz, Missing):
            why += ", or the clock was above the boost; it is not recorded"
        return Finding(gpu.subject, name, Status.UNKNOWN, expected, shown, why, MEASURE_AGAIN)
    if limit is None:
        why = f"profile {evidence.wanted.profile} has no floor for {kind[0]}"
        return skip(gpu.subject, name, expected=expected, actual=shown, reason=why)
    if why := turning(gemm, percent, limit.percent):
        return Finding(gpu.subject, name, Status.UNKNOWN, expected, shown, why, MEASURE_AGAIN)
    explained = attribution.explain(gemm, gpu.facts, gpu.measured) if gpu.facts else Missing("not_in_catalogue")
    if percent < limit.percent and isinstance(explained, Attribution):
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
    if percent < limit.percent:
        return Finding(gpu.subject, name, Status.FAIL, expected, shown, *_why(gemm, explained, limit))
    clocked = isinstance(explained, Attribution) and explained.clock_adjusted_percent is not None
    if isinstance(explained, Attribution) and clocked and explained.factor("kernel").value < LOWEST_KERNEL:
        why = f"{explained.words}: a healthy GPU loses less in the kernel"
        return Finding(gpu.subject, name, Status.WARN, expected, shown, why, DEFECT)
    return Finding(gpu.subject, name, Status.PASS, expected, shown)


def _above_boost(gemm: Product, above: Roof) -> float:
    """GeForce and workstation boards clock above the rated boost."""
    clock = gemm.graphics_clock_mhz
    return 1.0 if isinstance(clock, Missing) else max(1.0, clock / above.clock_mhz)


def _why(gemm: Product, explained: Attribution | Missing, limit: Floor) -> tuple[str, str]:
    """(reason, remedy) of a figure below its floor: a low clock, or a GPU that is slow at its clock."""
    if isinstance(explained, Missing):
        return f"below the floor; why cannot be told: {explained.detail or explained.reason}", DEFECT
    advice = "".join(f"; {line}" for line in explained.advice)
    adjusted = explained.clock_adjusted_percent
    if adjusted is None:
        return f"{explained.words}; the clock was not read, so throttling and a defect cannot be told apart", DEFECT
    if adjusted >= limit.percent:
        told = f"throttled, not defective: at the clock it ran at it reaches {adjusted:.0f} %"
        return f"{explained.words}; {told}", _unthrottle(gemm)
    told = f"a defect, not throttling: {adjusted:.0f} % even of the peak at the clock it ran at"
    return f"{explained.words}; {told}{advice}", DEFECT


def _excused(explained: Attribution, limit: Floor) -> Status | None:
    """The finding for a figure below its floor if its shape alone explains that; else None.

    A floor is for large products. If the last wave of a smaller product leaves SMs idle, the GPU does its best; a
    product that is bound by memory, or too small, says nothing about the units.
    """
    clock, bound = explained.factor("clock").value, explained.factor("bound").value
    percent, tiling = explained.percent_of_peak, _tiling(explained)
    if bound < NEAR_ROOF:
        return Status.UNKNOWN if percent / (clock * bound) >= limit.percent else None
    if percent / tiling < limit.percent:
        return None
    return Status.PASS if tiling >= LOWEST_TILING else Status.UNKNOWN


def _tiling(explained: Attribution) -> float:
    return explained.factor("tile").value * explained.factor("wave").value


def _unthrottle(gemm: Product) -> str:
    mask = gemm.event_reasons
    first = named(0 if isinstance(mask, Missing) or mask < 0 else int(mask))[:1]
    bit = first[0].bit if first else 0
    if bit == SW_POWER_CAP:
        return "see that the power limit is the card's own (tuning.power_limit_watts: default, then gpuprep tune)"
    if bit in (0, APPLICATION_CLOCKS):
        return "set the clocks (tuning.clocks: max, then gpuprep tune)"
    if bit == SW_THERMAL:
        return "look at the machine's cooling"
    return "look at the machine's cooling and power supply; in a cloud, show the provider this report"


def _not_measured(evidence: Evidence, gpu: Gpu) -> list[Finding]:
    """Data types that the GPU has own units for and the profile has a floor for: no figure is no evidence."""
    if gpu.facts is None or gpu.published or evidence_is_short(evidence):
        return []
    have = {dtype for dtype, _ in gpu.kinds()}
    found = []
    for dtype in roofline.UNITS:
        above = roofline.roof(gpu.facts, dtype)
        own = isinstance(above, Roof) and (above.unit.startswith("tensor_") or dtype in ("fp32", "fp64"))
        if own and dtype not in have and _floor(evidence, gpu, (dtype, ""), above):
            expected = _expected(evidence, gpu, (dtype, ""))
            found.append(_unknown(gpu, prop((dtype, "")), expected, "it was not measured"))
    return found


def evidence_is_short(evidence: Evidence) -> bool:
    """--quick measures some of the data types."""
    values = evidence.of(Gemm, "gemm")
    return not isinstance(values, Missing) and values.quick is True


def _roof(gpu: Gpu, kind: tuple[str, str]) -> Roof | Missing:
    if gpu.facts is None:
        return Missing("not_in_catalogue", f"the catalogue does not have {gpu.name}, so its peak is not known")
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
    at = f"{unit(kind[0])} at {above.clock_mhz:.0f} MHz"
    return limit.of(above.tflops, at) if limit else f"of {figure(above.tflops)} {at}"


def _unknown(gpu: Gpu, name: str, expected: str, why: str, remedy: str = MEASURE_AGAIN) -> Finding:
    missing = Missing("not_recorded", why)
    found = unknown(gpu.subject, name, missing, expected=expected, remedy=remedy)
    return Finding(found.subject, found.property, found.status, expected, "no figure", f"{name}: {why}", remedy)
