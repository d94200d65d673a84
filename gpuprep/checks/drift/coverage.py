"""How much of the machine did a run measure? Decides whether one run may replace another.

measured(results)            parts that gave a figure or worked, and on how many GPUs
lacking(certified, now)      what the certified run measured and the present run did not, as sentences
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpuprep.checks.probes import judge
from gpuprep.records import Missing, ProbeResult, Snapshot
from gpuprep.records.evidence import NO_ANSWER
from gpuprep.records.evidence import measured as evidence_of
from gpuprep.records.evidence.kinds import OF_PROBE, PROBES
from gpuprep.records.evidence.shared import AnyProbe

NAMED = 3  # parts of a probe that a sentence names
WITH_DEPTH = frozenset(probe.name for probe in PROBES if probe.measures)  # those that measure less with --quick


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
        values: Any = evidence_of(OF_PROBE[result.probe], result.values) if result.probe in WITH_DEPTH else NO_ANSWER
        if not isinstance(values, Missing):
            parts.update(Part(result.probe, what, full) for what in judge(result.probe).parts(values))
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
