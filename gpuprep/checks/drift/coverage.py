"""How much of the machine did a run measure? Decides whether one run may replace another. Pure.

measured(results)            parts that gave a figure or worked, and on how many GPUs
lacking(certified, now)      what the certified run measured and the present run did not, as sentences
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from gpuprep.agent.compute import ncclplan
from gpuprep.records import Missing, ProbeResult, Snapshot
from gpuprep.records.evidence import measured as evidence_of
from gpuprep.records.evidence.bandwidth import Bandwidth
from gpuprep.records.evidence.cudnn import Cudnn
from gpuprep.records.evidence.gemm import Gemm
from gpuprep.records.evidence.nccl import Nccl
from gpuprep.records.evidence.shared import AnyProbe
from gpuprep.records.evidence.throughput import Throughput
from gpuprep.records.evidence.transcode import Transcode

NAMED = 3  # parts of a probe that a sentence names
COMPLETED = "completed"


@dataclass(frozen=True)
class Part:
    """Something that a probe measures on a GPU: "fp16 sustained", "device copy", a transcode."""

    probe: str
    what: str  # "" for the probe as a whole
    full: bool  # False: briefly, with --quick


Parts = Mapping[Part, int]  # part ► on how many GPUs


def measured(results: Sequence[ProbeResult]) -> Parts:
    """Part ► number of GPUs. Parts that failed or gave no figure do not count; of two runs of a probe the last does."""
    parts: Counter[Part] = Counter()
    for result in {result.probe: result for result in results}.values():
        if isinstance(result.values, Missing):
            continue
        around = evidence_of(AnyProbe, result.values)
        # Where the depth was not recorded, nobody may take it for a full measurement.
        full = not isinstance(around, Missing) and around.quick is not True and (
            around.quick is False or result.probe not in WITH_DEPTH
        )  # fmt: skip
        parts[Part(result.probe, "", full)] = 1
        parts.update(Part(result.probe, what, full) for what in PARTS.get(result.probe, _none)(result.values))
    return parts


def lacking(
    certified: Sequence[ProbeResult], now: Sequence[ProbeResult], facts: tuple[Snapshot, Snapshot]
) -> list[str]:  # fmt: skip
    """Sentences without a subject: "did not measure gemm". `facts`: those of the certified run and the present ones."""
    was, is_now = measured(certified), measured(now)
    probes = list(dict.fromkeys(part.probe for part in was))
    have = {part.probe for part in is_now}
    unmeasured = [probe for probe in probes if probe not in have]
    briefly = [
        probe
        for probe in probes
        if probe in have and was.get(Part(probe, "", True)) and not is_now.get(Part(probe, "", True))
    ]
    sentences = [f"did not measure {', '.join(unmeasured)}"] if unmeasured else []
    sentences += [f"measured {', '.join(briefly)} only briefly (--quick)"] if briefly else []
    for probe in probes:
        if probe not in unmeasured and probe not in briefly:
            sentences += _parts_lacking(probe, was, is_now)
    before, today = (0 if isinstance(snapshot.gpus, Missing) else len(snapshot.gpus) for snapshot in facts)
    return [*sentences, *([f"saw {today} of {before} GPUs"] if today < before else [])]


def _parts_lacking(probe: str, was: Parts, now: Parts) -> Iterator[str]:
    less = []
    for part, count in was.items():
        have = now.get(Part(probe, part.what, True), 0)
        have += 0 if part.full else now.get(Part(probe, part.what, False), 0)
        if part.probe == probe and have < count:
            less.append(part.what if have == 0 else f"{part.what} on {have} of {count} GPUs")
    if less:
        more = f" and {len(less) - NAMED} more" if len(less) > NAMED else ""
        yield f"did not measure {', '.join(less[:NAMED])}{more} ({probe})"


def _none(_: object) -> Iterator[str]:
    return iter(())


def _gemm(values: object) -> Iterator[str]:
    measurement = evidence_of(Gemm, values)
    for gpu in () if isinstance(measurement, Missing) else measurement.gpus:
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


def _bandwidth(values: object) -> Iterator[str]:
    measurement = evidence_of(Bandwidth, values)
    if isinstance(measurement, Missing):
        return
    for gpu in measurement.gpus:
        if not isinstance(gpu, Missing):
            yield from (name for name, gb in {**gpu.memory, **gpu.host}.items() if not isinstance(gb, Missing))
    yield from (
        "peer copies" for peer in measurement.peers if not peer.error and not isinstance(peer.gb_per_s, Missing)
    )


def _cudnn(values: object) -> Iterator[str]:
    measurement = evidence_of(Cudnn, values)
    done = () if isinstance(measurement, Missing) else measurement.convolutions
    yield from dict.fromkeys(
        f"{convolution.dtype} {convolution.layout}" for convolution in done if not convolution.error
    )


def _transcode(values: object) -> Iterator[str]:
    measurement = evidence_of(Transcode, values)
    cases = () if isinstance(measurement, Missing) else measurement.cases
    yield from dict.fromkeys(case.id for case in cases if case.outcome == COMPLETED)


def _throughput(values: object) -> Iterator[str]:
    measurement = evidence_of(Throughput, values)
    if isinstance(measurement, Missing):
        return
    kinds = {
        (gpu.uuid if (gpu := series.gpu or measurement.gpu) and not isinstance(gpu, Missing) else "",
         " ".join(filter(None, (series.kind, series.codec, series.preset))))
        for series in measurement.series
        if series.outcome == COMPLETED and any(not isinstance(step.fps, Missing) for step in series.steps)
    }  # fmt: skip
    yield from (what for _, what in sorted(kinds))


def _nccl(values: object) -> Iterator[str]:
    """Each collective and size, once for each GPU that took part, because fewer GPUs are less coverage."""
    measurement = evidence_of(Nccl, values)
    if isinstance(measurement, Missing):
        return
    points = {
        f"{point.operation} of {ncclplan.words(point.bytes)}"
        for point in measurement.points
        if not isinstance(point, Missing) and point.bytes and not isinstance(point.busbw_gb_per_s, Missing)
    }
    for _ in measurement.gpus:
        yield from sorted(points)


PARTS: dict[str, Callable[[object], Iterator[str]]] = {
    "gemm": _gemm, "bandwidth": _bandwidth, "cudnn": _cudnn, "transcode": _transcode, "throughput": _throughput,
    "nccl": _nccl,
}  # fmt: skip
WITH_DEPTH = ("gemm", "bandwidth", "cudnn", "transcode", "throughput", "nccl")  # those that measure less with --quick
