"""Is a GPU as fast as it should be, and if not, why?

Two checks: the best product of each data type is compared with the board's floor, and every product is compared with
healthy boards at the same clock and with the same kind of kernel (clock.py), so that a power limit is no fault.
"""

from __future__ import annotations

import math
import statistics

from gpuprep.agent.probes.gemmtypes import TYPES
from gpuprep.catalogue import parse
from gpuprep.catalogue.boards import MASKED
from gpuprep.checks import conditions
from gpuprep.checks.common import COMPARE_IT, DEFECT, MEASURE_AGAIN, skip, unknown
from gpuprep.checks.evidence import Evidence
from gpuprep.checks.floors import FAIL_SHARE, Floor, fault_below, figure, floor, percents
from gpuprep.checks.judges.gemm import clock, trust
from gpuprep.checks.judges.gemm.clock import Slow
from gpuprep.checks.judges.gemm.decoded import Gpu, prop, shape_of, speed, turning, why_unusable
from gpuprep.checks.judges.gemm.trust import LOWERED
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
from gpuprep.performance.operations import LARGEST, LAYOUTS, product
from gpuprep.performance.predict import Prediction, predict
from gpuprep.performance.roofline import Roof, speed_unit
from gpuprep.records import Finding, Missing, Status
from gpuprep.records.evidence.gemm import Product

SLOW = (Status.FAIL, Status.WARN)
TOGETHER = 0.85  # of what healthy boards usually reach, in the median of the data types, of two in both
LOOK_AT_CLOCKS = (
    "look at clock, power and temperature under load (nvidia-smi -q -d PERFORMANCE,POWER,TEMPERATURE); if they are as"
    " they should be, show the provider this report"
)
SLOW_SHAPE = 0.9  # of the speed that `explain` has for a large square; below it the shape decides, too
SQUARE = "8192"
SMALL_SIDE = 2048
LARGE_SQUARE = "measure a large square, such as 8192x8192x8192 (probes.gemm.shapes)"
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
        findings += [] if disturbed else clock.others(gpu, kind)
        for gemm in gpu.of_kind(kind):
            if gemm.sustained is not None:
                findings.append(_sustained(evidence, gpu, kind, gemm, disturbed))
    if not disturbed:
        findings += clock.altogether(gpu)
        findings += [] if any(one.status in SLOW for one in findings) else _together(evidence, gpu)
    return findings + _not_measured(evidence, gpu)


def _burst(evidence: Evidence, gpu: Gpu, kind: tuple[str, str], disturbed: str) -> Finding:
    best = gpu.best(kind)
    if best is None:
        reasons = list(
            dict.fromkeys(filter(None, (why_unusable(g, published=gpu.published) for g in gpu.of_kind(kind))))
        )
        return _unknown(gpu, prop(kind), _expected(evidence, gpu, kind), "; ".join(reasons))
    if contradictions := list(filter(None, (trust.impossible(gpu, g) for g in gpu.of_kind(kind) if not g.error))):
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
    shapes = _shapes(gpu, gemm, kind) if limit and percent < limit.percent else {}
    if limit and shapes and (low := _low(shapes[_rows(gemm)])) < limit.percent:
        usual = shapes[_rows(gemm)]
        words = f"explain of this shape: {figure(usual.tflops)} {speed_unit(kind[0])} ± {usual.error_percent:g} %"
        limit = Floor(low, words, FAIL_SHARE)
        expected = limit.of(above.tflops, _at(kind, above))
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
    slow = clock.slow(gpu, gemm, explained, evidence) if isinstance(explained, Attribution) else None
    if percent < limit.percent and isinstance(explained, Attribution) and slow is None:
        tiling = explained.factor("tile").value * explained.factor("wave").value
        if percent / tiling >= limit.percent:
            reached = (
                f"{100 * explained.achieved_tflops / (explained.peak_tflops * tiling):.0f} % of what its tiles allow"
            )
            if tiling >= LOWEST_TILING:
                return Finding(gpu.subject, name, Status.PASS, expected, f"{shown[:-1]}: {reached})")
            why = f"{explained.words}; the shape decides, not the GPU: {reached}"
            return Finding(gpu.subject, name, Status.UNKNOWN, expected, shown, why, LARGE_SQUARE)
    if percent < limit.percent and _says_little(gpu, gemm):
        why = (
            "such a small product ends before the GPU reaches its full clock, and its clock was not recorded: it "
            "proves little"
        )
        return Finding(gpu.subject, name, Status.UNKNOWN, expected, shown, why, LARGE_SQUARE)
    if percent < limit.percent:
        if why := _other_layout(shapes, gemm, percent):
            remedy = f"record its `layout`: {', '.join(LAYOUTS)} (docs/explain.md)"
            return Finding(gpu.subject, name, Status.UNKNOWN, expected, shown, why, remedy)
        status = _below(gpu, gemm, explained, slow, fault=percent < limit.fails)
        why, remedy = _why(gpu, gemm, explained, limit)
        if status is Status.WARN:
            why += fault_below(limit.fails)
        return Finding(gpu.subject, name, status, expected, shown, why, remedy)
    if shapes and not shapes[_rows(gemm)].measured:
        advice = "; ".join(explained.advice) if isinstance(explained, Attribution) else ""
        why = f"the shape may decide, not the GPU: {limit.source}, {shapes[_rows(gemm)].error_words}; {advice}"
        return Finding(gpu.subject, name, Status.UNKNOWN, expected, shown, why, LARGE_SQUARE)
    if slow is None and isinstance(explained, Attribution):
        slow = clock.unclocked(gpu, gemm, explained)
    if slow is not None:
        return Finding(gpu.subject, name, slow.status, expected, shown, slow.why, slow.remedy)
    return Finding(gpu.subject, name, Status.PASS, expected, shown)


def _together(evidence: Evidence, gpu: Gpu) -> list[Finding]:
    """A finding on all data types together, at any clock: each alone may be as slow as the slowest healthy board."""
    shares = []
    for kind in gpu.kinds():
        best, above = gpu.best(kind), _roof(gpu, kind)
        limit = _floor(evidence, gpu, kind, above)
        if best and limit and limit.usual and not kind[1] and isinstance(above, Roof) and not _shapes(gpu, best, kind):
            shares.append(100 * speed(best.tflops) / above.tflops / limit.usual)
    free = gpu.facts is not None and gpu.facts.model.free_clocks and not gpu.published  # judged at its clock
    if len(shares) < 2 or free:
        return []
    percent, least = 100 * statistics.median_high(shares), 100 * TOGETHER  # of two the better one: both are slow
    expected = f"≥ {least:.0f} % of what healthy boards of this kind usually reach"
    which = "median" if len(shares) > 2 else "better"
    shown = f"{percents(percent, least)[0]} % (the {which} of {len(shares)} data types)"
    if percent >= least:
        return [Finding(gpu.subject, "gemm_together", Status.PASS, expected, shown)]
    why = "all its data types are slow, though none is below its floor: "
    why += "power, heat, set clocks or a defect may be the cause"
    return [Finding(gpu.subject, "gemm_together", Status.WARN, expected, shown, why, LOOK_AT_CLOCKS)]


def _rows(gemm: Product) -> str:
    return gemm.layout.lower() if gemm.layout.lower() in LAYOUTS else "row"


def _shapes(gpu: Gpu, gemm: Product, kind: tuple[str, str]) -> dict[str, Prediction]:
    """What `explain` says of a shape that it expects to be slower than large squares, by the layouts it may have.

    {} for all other shapes: floors are for them.
    """
    sides = [side for side in (gemm.m, gemm.n, gemm.k) if side and 0 < side <= LARGEST]
    if gpu.facts is None or len(sides) < 3 or kind[1]:
        return {}
    large = predict(gpu.facts, product("x".join(3 * [SQUARE])), kind[0])
    if isinstance(large, Missing):
        return {}
    names = [_rows(gemm), *(() if gemm.layout.lower() in LAYOUTS else LAYOUTS)]
    found = {
        name: expected
        for name in names
        if isinstance(
            expected := predict(gpu.facts, product("x".join(map(str, sides)), layout=name), kind[0]), Prediction
        )
    }
    slow = any(expected.tflops < SLOW_SHAPE * large.tflops for expected in found.values())
    return found if slow and names[0] in found else {}


def _says_little(gpu: Gpu, gemm: Product) -> bool:
    """Whether a published product is small and has no clock: sound GPUs gave half of their speed in the first ones."""
    sides = [side or 0 for side in (gemm.m, gemm.n, gemm.k)]
    return gpu.published and isinstance(gemm.graphics_clock_mhz, Missing) and max(sides) <= SMALL_SIDE


def _low(expected: Prediction) -> float:
    """The low end of what `explain` says, in per cent of the peak, rounded down to three digits."""
    percent = 100 * expected.low_tflops / expected.peak.tflops
    step = 10.0 ** (2 - math.floor(math.log10(percent)))
    return math.floor(percent * step) / step


def _other_layout(shapes: dict[str, Prediction], gemm: Product, percent: float) -> str:
    """Why a slow product may be sound after all: its layout was not recorded, and another explains it; else ""."""
    slower = [name for name, expected in shapes.items() if name != _rows(gemm) and percent >= _low(expected)]
    if not slower:
        return ""
    return f"the layout of its matrices is not recorded; as {slower[0]}, explain expects it to be that slow"


def _below(gpu: Gpu, gemm: Product, explained: Attribution | Missing, slow: Slow | None, *, fault: bool) -> Status:
    """FAIL if no sound GPU is so slow or the clock shows a fault; WARN if only a floor speaks against it."""
    if fault or isinstance(explained, Missing) or explained.clock_adjusted_percent is None:
        return Status.FAIL if fault else Status.WARN
    if slow is not None:
        return Status.WARN if gpu.published else Status.FAIL
    mask = conditions.mask(gemm.event_reasons)
    return Status.WARN if mask is not None and mask & SW_POWER_CAP else Status.FAIL


def _why(gpu: Gpu, gemm: Product, explained: Attribution | Missing, limit: Floor) -> tuple[str, str]:
    """(reason, remedy) of a figure below its floor: a low clock, or a GPU that is slow at its clock."""
    if isinstance(explained, Missing):
        return f"below the floor; the cause is not known: {explained.detail or explained.reason}", DEFECT
    advice = "".join(f"; {line}" for line in explained.advice)
    adjusted, soundness = explained.clock_adjusted_percent, explained.soundness
    if adjusted is None:
        return f"{explained.words}; the clock was not read, so throttling and a defect look the same", DEFECT
    if adjusted >= limit.percent and (soundness is None or soundness >= clock.least(explained)):
        at_clock = percents(adjusted, limit.percent)[0]
        cause = f"throttled, not defective: at the clock it ran at it reaches {at_clock} %"
        return f"{explained.words}; {cause}", _unthrottle(gemm, gpu)
    at_clock = percents(adjusted, limit.percent)[0]
    cause = f"a defect, not throttling: {at_clock} % even of the peak at the clock it ran at"
    return f"{explained.words}; {cause}{advice}", DEFECT


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
        "the power limit is the card's own: look at temperature and cooling; if that does not help, show the "
        "provider this report"
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
    at = _at(kind, above)
    return limit.of(above.tflops, at) if limit else f"of {figure(above.tflops)} {at}"


def _at(kind: tuple[str, str], above: Roof) -> str:
    return f"{speed_unit(kind[0])} at {above.clock_mhz:.0f} MHz"


def _unknown(gpu: Gpu, name: str, expected: str, why: str, remedy: str = MEASURE_AGAIN) -> Finding:
    missing = Missing("not_recorded", why)
    finding = unknown(gpu.subject, name, missing, expected=expected, remedy=remedy)
    return Finding(finding.subject, finding.property, finding.status, expected, "no figure", f"{name}: {why}", remedy)
