"""Is a GPU as fast as healthy boards at the same clock? Compares its products with theirs.

A power limit, heat and set clocks lower the clock, and the board's floor judges that. What remains is the chip: a
healthy chip is as fast at its clock as others of its kind, in every data type and shape.
"""

from __future__ import annotations

import dataclasses
import statistics
from typing import NamedTuple

from gpuprep.catalogue import Board
from gpuprep.catalogue.capabilities import Kernel, kernel
from gpuprep.checks import conditions
from gpuprep.checks.common import DEFECT, MEASURE_AGAIN
from gpuprep.checks.evidence import Evidence
from gpuprep.checks.floors import figure, percents
from gpuprep.checks.judges.gemm.decoded import Gpu, prop, shape_of, speed, why_unusable
from gpuprep.performance import attribution
from gpuprep.performance.attribution import Attribution
from gpuprep.performance.clock_events import (
    APPLICATION_CLOCKS,
    IDLE_WATTS,
    SW_POWER_CAP,
    SW_THERMAL,
    SYNC_BOOST,
    held_below,
    highest_watts,
    power_limit,
    unnamed_cap,
)
from gpuprep.performance.roofline import speed_unit
from gpuprep.records import Finding, Missing, Source, Status
from gpuprep.records.evidence.gemm import Product

FAIL_BELOW = 0.6  # of what healthy boards reach: no cuBLAS version alone is this slow
ALTOGETHER = 0.89  # the median of the data types; shapes and versions of cuBLAS differ in both directions
FEWEST_KINDS = 3  # for a median
OTHER_SHAPES = 0.85  # beside the best product of the data type, after what its shape explains
SMALLEST, SHORTEST_SECONDS = 1024, 5e-5  # products below are mostly waiting
EXPLAINED = 0.6  # of the roof, by memory, tiles and waves together: below, the model's own error is too large
ABOVE_BOOST = 1.1
NO_REASON = 0.9  # of the boost: a lower clock has a reason
NAMED_ELSEWHERE = conditions.GRAVE | SW_THERMAL | SYNC_BOOST


class Slow(NamedTuple):
    status: Status
    why: str
    remedy: str


def least(explained: Attribution) -> float:
    """The lowest soundness that passes."""
    known = _kernel(explained)
    return known.least / known.sound if known else 0.0


def slow(gpu: Gpu, gemm: Product, explained: Attribution, evidence: Evidence) -> Slow | None:
    """Why a product that reached its floor is still not PASS; None if nothing is wrong."""
    soundness = None if _nominal(gpu, gemm, explained) else explained.soundness
    if soundness is not None and _telling(explained) and soundness < least(explained):
        known = _kernel(explained)
        share = f"{100 * soundness:.0f} % of what healthy boards reach at this clock ({known.source if known else ''})"
        if gpu.published:
            why = f"{explained.words}; that is {share}: the GPU is slow, or the clock is not that of this product"
            return Slow(Status.UNKNOWN if soundness >= FAIL_BELOW else Status.WARN, why, DEFECT)
        status = Status.FAIL if soundness < FAIL_BELOW else Status.WARN
        return Slow(status, f"{explained.words}; that is {share}: the clock does not explain it", DEFECT)
    return _held(gpu, gemm, explained, evidence)


def unclocked(gpu: Gpu, gemm: Product, explained: Attribution) -> Slow | None:
    """Why a product without recorded clock is not PASS (only a low clock could explain its speed); else None."""
    if gpu.published or gpu.facts is None or explained.clock_adjusted_percent is not None or not gpu.facts.boost_mhz:
        return None
    boosted = _share(gpu, _at_boost(gpu, gemm))
    if boosted is None or boosted[0] >= least(boosted[1]):
        return None
    share = f"{100 * boosted[0]:.0f} % of what healthy boards reach at the boost clock"
    why = f"{explained.words}; that is {share}, and without the clock a low clock and a slow GPU look the same"
    return Slow(Status.UNKNOWN, why, MEASURE_AGAIN)


def _at_boost(gpu: Gpu, gemm: Product) -> Product:
    """The product; if its clock was not recorded, with the boost clock as its clock."""
    boost = gpu.facts.boost_mhz if gpu.facts else None
    unread = isinstance(gemm.graphics_clock_mhz, Missing)
    return dataclasses.replace(gemm, graphics_clock_mhz=float(boost)) if unread and boost else gemm


def _nominal(gpu: Gpu, gemm: Product, explained: Attribution) -> bool:
    """Whether a published clock is the highest clock, not the clock under load: far above boost, without reasons."""
    unread = isinstance(gemm.event_reasons, Missing)
    return gpu.published and unread and explained.factor("clock").value > ABOVE_BOOST


def _held(gpu: Gpu, gemm: Product, explained: Attribution, evidence: Evidence) -> Slow | None:
    """A finding for a lowered clock that NVML's reasons and watts do not explain; else None.

    Heat, hardware slowdowns and sync boost have their own finding (gemm slowdowns).
    """
    clock, mask = explained.factor("clock").value, conditions.mask(gemm.event_reasons)
    if gpu.facts is None or clock >= NO_REASON or mask is None or mask & NAMED_ELSEWHERE:
        return None
    if mask & SW_POWER_CAP:
        return _capped(gpu, gemm, explained, gpu.facts, simulated=evidence.snapshot.source is Source.SIMULATED)
    if mask & APPLICATION_CLOCKS:
        if evidence.wanted.tuning.clocks != "max":
            return None
        why = f"{explained.words}: the clocks of the GPU are set low"
        return Slow(Status.WARN, why, "`gpuprep tune HOST --profile PROFILE` sets the highest (tuning.clocks: max)")
    if unnamed_cap(gemm, gpu.facts, gpu.measured) is not None:
        return None
    why = f"{explained.words}: something lowers the clock, and NVML does not say what"
    return Slow(Status.WARN, why, "look for locked clocks (nvidia-smi -q -d CLOCK) and for power limits of the server")


def _capped(gpu: Gpu, gemm: Product, explained: Attribution, board: Board, *, simulated: bool) -> Slow | None:
    """A finding if NVML names the power cap, but the GPU was not near its limit. Simulated GPUs draw idle watts."""
    if held := held_below(gemm, board, gpu.measured):
        why = f"NVML names the power cap, but the GPU drew {held[0]:.0f} of {held[1]:.0f} W: {explained.words}"
        return Slow(Status.WARN, why, "look at the server's power or rack limits, its power supply and its cooling")
    limit, highest = power_limit(board, gpu.measured), highest_watts(gemm)
    if simulated or limit is None or highest is None or highest > IDLE_WATTS * limit:
        return None
    why = f"NVML names the power cap, and the watts are those of an idle GPU: {explained.words}"
    return Slow(Status.UNKNOWN, why, MEASURE_AGAIN)


def others(gpu: Gpu, kind: tuple[str, str]) -> list[Finding]:
    """Findings for other products of a data type than the best: missing figures, and slow ones without a reason."""
    findings, best = [], gpu.best(kind)
    lost = [gemm for gemm in gpu.of_kind(kind) if not gemm.error and why_unusable(gemm, published=gpu.published)]
    if best is not None and lost:
        why = f"{shape_of(lost[0])}: {why_unusable(lost[0], published=gpu.published)}"
        findings.append(Finding(gpu.subject, f"{prop(kind)}_products", Status.UNKNOWN, "a figure of every product",
                             f"{len(lost)} of {len(gpu.of_kind(kind))} without", why, MEASURE_AGAIN))  # fmt: skip
    if contradiction := _contradiction(gpu, kind):
        return [*findings, *contradiction]
    usable = gpu.usable(kind)
    unclocked = gpu.published and all(isinstance(gemm.graphics_clock_mhz, Missing) for gemm in usable)
    # A larger product may have run at a lower clock: without clocks only what no clock explains is told.
    most = FAIL_BELOW if unclocked else OTHER_SHAPES
    shares = [row for gemm in usable if (row := _share(gpu, _at_boost(gpu, gemm) if unclocked else gemm))]
    if len(shares) < 2:
        return findings
    top = max(share for share, _ in shares)
    share, slowest = min(shares, key=lambda row: row[0])
    if share < most * top:
        shown = f"{figure(speed(slowest.achieved_tflops))} {speed_unit(kind[0])} ({slowest.m}x{slowest.n}x{slowest.k})"
        why = (
            f"{slowest.words}: {percents(100 * share / top, 100 * most)[0]} % of what another shape reaches, and "
            f"{'clock, memory and tiles' if slowest.tiles_known else 'clock and memory'} do not explain it"
        )
        expected = f"≥ {100 * most:.0f} % of the best shape, at {'any' if unclocked else 'the same'} clock"
        told = slowest.tiles_known or gpu.published
        status, remedy = (Status.WARN, DEFECT) if told else (Status.UNKNOWN, MEASURE_AGAIN)
        findings.append(Finding(gpu.subject, f"{prop(kind)}_shapes", status, expected, shown, why, remedy))
    return findings


def _contradiction(gpu: Gpu, kind: tuple[str, str]) -> list[Finding]:
    """UNKNOWN if one shape has two different figures and no clock explains the difference."""
    alike: dict[tuple[object, ...], list[float]] = {}
    for gemm in gpu.usable(kind):
        if isinstance(gemm.graphics_clock_mhz, Missing):
            alike.setdefault((gemm.m, gemm.n, gemm.k, gemm.layout), []).append(speed(gemm.tflops))
    for shape, speeds in alike.items():
        if min(speeds) < OTHER_SHAPES * max(speeds):
            shown = f"{figure(min(speeds))} and {figure(max(speeds))} {speed_unit(kind[0])}"
            why = (
                f"{'x'.join(map(str, shape[:3]))} is recorded duplicate_gpus, with {shown}: the figures contradict "
                "each other"
            )
            return [Finding(gpu.subject, f"{prop(kind)}_twice", Status.UNKNOWN, "one speed of a shape", shown, why,
                            MEASURE_AGAIN)]  # fmt: skip
    return []


def _share(gpu: Gpu, gemm: Product) -> tuple[float, Attribution] | None:
    """(soundness, explanation) of a product; None if it says nothing about the chip."""
    explained = attribution.explain(gemm, gpu.facts, gpu.measured) if gpu.facts else Missing("not_in_catalogue")
    if isinstance(explained, Missing) or explained.soundness is None or not _telling(explained):
        return None
    return explained.soundness, explained


def altogether(gpu: Gpu) -> list[Finding]:
    """A finding on all data types together: many slightly low figures mean a slow GPU. [] if too few are known."""
    shares, unclocked = [], False
    for kind in gpu.kinds():
        best = gpu.best(kind)
        unclocked = unclocked or (best is not None and isinstance(best.graphics_clock_mhz, Missing))
        explained = _share(gpu, best if gpu.published else _at_boost(gpu, best)) if best else None
        if explained:
            shares.append(explained[0])
    if len(shares) < FEWEST_KINDS:
        return []
    middle, expected = statistics.median(shares), f"≥ {100 * ALTOGETHER:.0f} % of healthy boards at the same clock"
    shown = f"{percents(100 * middle, 100 * ALTOGETHER)[0]} % (the median of {len(shares)} data types)"
    if middle >= ALTOGETHER:
        return [Finding(gpu.subject, "gemm_at_its_clock", Status.PASS, expected, shown)]
    why = "the GPU is slow in all its data types, and its clock does not explain it"
    if unclocked and not gpu.published:
        why = (
            "compared with healthy boards at the boost clock; clocks were not recorded, so a low clock may be the "
            "reason"
        )
    status = Status.UNKNOWN if gpu.published or unclocked else Status.WARN
    return [Finding(gpu.subject, "gemm_at_its_clock", status, expected, shown, why, DEFECT)]


def _telling(explained: Attribution) -> bool:
    """Whether the product is large enough to say something about the chip, and the model is sure of its shape."""
    factors = (explained.factor(name).value for name in ("bound", "tile", "wave"))
    model = 1.0
    for value in factors:
        model *= value
    seconds = 2e-12 * explained.m * explained.n * explained.k / explained.achieved_tflops
    large = min(explained.m, explained.n, explained.k) >= SMALLEST and seconds >= SHORTEST_SECONDS
    # Without its tiles only a product of many waves is judged: the last one hardly counts.
    many = explained.tiles_known or min(explained.m, explained.n) >= 4 * SMALLEST
    return large and many and explained.aligned and model >= EXPLAINED


def _kernel(explained: Attribution) -> Kernel | None:
    return kernel(explained.compute_capability, explained.unit)
