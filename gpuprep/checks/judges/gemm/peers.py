"""Several GPUs of one machine: is each as fast as the best, and are all together as fast as each alone?"""

from __future__ import annotations

from collections.abc import Sequence

from gpuprep.checks.evidence import Evidence
from gpuprep.checks.floors import Floor, below, figure, floor
from gpuprep.checks.judges.gemm import trust
from gpuprep.checks.judges.gemm.decoded import Gpu, shape_of, speed, spread
from gpuprep.performance import attribution
from gpuprep.performance.roofline import speed_unit
from gpuprep.records import Finding, Missing, Status
from gpuprep.records.evidence.gemm import Gemm, Product, Together

Speeds = dict[int, dict[tuple[str, str], dict[str, float]]]  # of each GPU, by its id(), data type and shape
TOGETHER_FAIL_PERCENT = 50.0  # shared cooling and power explain less
REMEDY = (
    "compare clocks, power and temperature of the two; if a second measurement shows the same, show the provider "
    "this report"
)


def findings(evidence: Evidence, gpus: Sequence[Gpu], values: Gemm) -> list[Finding]:
    if len(gpus) < 2:
        return []
    speeds = {id(gpu): {kind: _by_shape(gpu, kind) for kind in gpu.kinds()} for gpu in gpus}
    return [*(_against_best(evidence, gpu, gpus, speeds) for gpu in gpus), *_together(evidence, gpus, values)]


def _against_best(evidence: Evidence, gpu: Gpu, gpus: Sequence[Gpu], speeds: Speeds) -> Finding:
    """The data type in which this GPU is furthest behind the best one of its kind."""
    warn, fail = floor(evidence, "peers_warn_percent"), floor(evidence, "peers_fail_percent")
    expected = f"less than {warn.percent:g} % below the best ({warn.source})" if warn else "as fast as the best"
    peers = [other for other in gpus if gpu.is_like(other) and other is not gpu]
    behind = [found for kind in gpu.kinds() for other in peers if (found := _behind(gpu, other, kind, speeds))]
    if not peers:
        return Finding(gpu.subject, "gemm_against_best", Status.SKIP, expected, "no other GPU of its kind",
                       "there is no other GPU of the same kind in this machine")  # fmt: skip
    if not behind:
        why = "no product was measured soundly on this GPU and on another one of its kind"
        return Finding(gpu.subject, "gemm_against_best", Status.UNKNOWN, expected, "no figure", why, "measure again")
    percent, varied, shown = max(behind, key=lambda found: found[0] - found[1])
    status = Status(below(max(0.0, percent - varied), warn, fail))
    if status is Status.PASS and below(percent, warn, fail) == "FAIL":
        why = f"it is {percent:.1f} % slower, but the figures varied by {varied:.1f} %: the cause is not known"
        return Finding(gpu.subject, "gemm_against_best", Status.UNKNOWN, expected, shown, why, "measure again")
    if status is Status.PASS:
        return Finding(gpu.subject, "gemm_against_best", status, expected, shown)
    why = f"this GPU is {percent:.1f} % slower than the best of its kind in this machine"
    return Finding(gpu.subject, "gemm_against_best", status, expected, shown, why, REMEDY)


def _behind(gpu: Gpu, other: Gpu, kind: tuple[str, str], speeds: Speeds) -> tuple[float, float, str] | None:
    """(per cent slower, variation in per cent, words) in the fastest shape of `other` that `gpu` also has.

    None without a common shape.

    GPUs may be measured in different shapes, so only equal shapes are compared. A difference within the variation does
    not count.
    """
    mine, best = (speeds[id(side)].get(kind, {}) for side in (gpu, other))
    both = sorted(set(mine) & set(best), key=lambda shape: -best[shape])
    if not both:
        return None
    slow, fast = mine[both[0]], best[both[0]]
    percent = max(0.0, 100.0 * (1.0 - slow / fast))
    varied = max(spread(side, kind, both[0]) for side in (gpu, other))
    return (
        percent,
        varied,
        f"{kind[0]} {figure(slow)} of {other.subject}'s {figure(fast)} {speed_unit(kind[0])} ({both[0]})",
    )


def _by_shape(gpu: Gpu, kind: tuple[str, str]) -> dict[str, float]:
    """Shape ► speed, without impossible figures, which would make a healthy GPU look slow."""
    return {
        shape_of(product): speed(product.tflops) for product in gpu.usable(kind) if not trust.impossible(gpu, product)
    }


def _together(evidence: Evidence, gpus: Sequence[Gpu], values: Gemm) -> list[Finding]:
    """Findings on all GPUs at once, which share cooling and power: are they slower than alone by more than allowed?"""
    limit = floor(evidence, "peers_fail_percent")
    quick = values.quick is True
    if not values.together and (quick or values.published):
        return []
    return [
        _one_together(gpu, [e for e in values.together if e.index == gpu.index], gpus, limit, quick) for gpu in gpus
    ]


def _alone(gpu: Gpu, dtype: str, gpus: Sequence[Gpu]) -> float | None:
    """The speed to compare a common load with: under sustained load of this GPU, else of a GPU of its kind; or None.

    A burst ends before the power cap acts: on two healthy H200 the common load was 10 and 15 % below it.
    """
    kin = [gpu, *(other for other in gpus if gpu.is_like(other))]
    products = [gemm for member in kin for gemm in member.usable((dtype, ""))]
    lasting = [long for gemm in products if (long := attribution.sustained(gemm)) is not None]
    return next((lasts for long in lasting if (lasts := speed(long.tflops))), None)


def _one_together(
    gpu: Gpu, entries: Sequence[Together], gpus: Sequence[Gpu], limit: Floor | None, quick: bool
) -> Finding:
    expected = f"less than {limit.percent:g} % slower than alone ({limit.source})" if limit else "as fast as alone"
    speeds = [f"{entry.dtype} {figure(speed(entry.tflops))}" for entry in entries if speed(entry.tflops) > 0]
    products = [Product(e.dtype, tflops=e.tflops, graphics_clock_mhz=e.graphics_clock_mhz) for e in entries]
    if impossible := next(filter(None, (trust.impossible(gpu, product) for product in products)), ""):
        why = f"figures of all GPUs at once are impossible: {impossible.partition(': ')[2]}"  # without shape
        return Finding(gpu.subject, "gemm_together", Status.UNKNOWN, expected, ", ".join(speeds), why, "measure again")
    if speeds and quick and not any(_alone(gpu, entry.dtype, gpus) for entry in entries):
        why = "a common load is compared with a lasting one of a GPU alone, and none was measured (--quick has none)"
        return Finding(gpu.subject, "gemm_together", Status.SKIP, expected, ", ".join(speeds), why)
    drops = []
    for entry in entries:
        dtype, mine = entry.dtype, entry.tflops
        alone = _alone(gpu, dtype, gpus)
        if alone and not isinstance(mine, Missing) and mine > 0:
            shown = f"{dtype} {figure(mine)} together, {figure(alone)} {speed_unit(dtype)} alone"
            drops.append((100.0 * (1.0 - mine / alone), shown))
    if not drops:
        why = "all GPUs at once were not measured, or the GPU not alone"
        return Finding(gpu.subject, "gemm_together", Status.UNKNOWN, expected, "no figure", why, "measure again")
    percent, shown = max(drops)
    if limit is None or percent < limit.percent:
        return Finding(gpu.subject, "gemm_together", Status.PASS, expected, shown)
    why = f"with all GPUs at work it is {percent:.1f} % slower than alone: they share cooling or power"
    status = Status.FAIL if percent >= TOGETHER_FAIL_PERCENT else Status.WARN
    return Finding(gpu.subject, "gemm_together", status, expected, shown, why, REMEDY)
