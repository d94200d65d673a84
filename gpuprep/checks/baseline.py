"""Is the host as fast as its baseline: the figures of its first run that passed?

figures(snapshot, probed)    figures of a run that later runs can be compared with; {} on simulated GPUs
findings(evidence)           one for each GPU and probe with a baseline
uncompared(snapshot, ...)    one for each GPU and probe without a baseline, if a comparison was wanted
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from gpuprep.checks.evidence import Evidence
from gpuprep.checks.floors import below, figure, floor
from gpuprep.checks.judges.gemm import decoded, trust
from gpuprep.performance.attribution import sustained
from gpuprep.records import Finding, Missing, ProbeResult, Snapshot, Source, Status
from gpuprep.records.baseline import Baseline, BaselineFigure, BaselineKey, Measured
from gpuprep.records.evidence import NO_ANSWER, measured
from gpuprep.records.evidence.bandwidth import Bandwidth
from gpuprep.records.evidence.gemm import Gemm, Product
from gpuprep.records.evidence.shared import AnyProbe
from gpuprep.records.evidence.throughput import Throughput

NAMED = 3  # figures named in one finding
QUICK = "quick"  # among the versions of what `--quick` measured
NOBODY_KNOWS = "quick or not is not recorded"  # neither quick nor full figures: compared with their like alone
REMEDY = (
    "compare with the run of the baseline (`gpuprep report RUN`): clocks, power, temperature, other users of the "
    "machine; then measure again"
)


def figures(snapshot: Snapshot, probed: Sequence[ProbeResult]) -> Measured:
    """The figures of a run that can be compared with other runs. {} for simulated GPUs: they have no baseline."""
    if not _is_real(snapshot, probed):
        return {}
    return figures_of({result.probe: result.values for result in probed}, snapshot.agent_version)


def figures_of(results: Mapping[str, object], agent_version: str) -> Measured:
    by_key: dict[BaselineKey, dict[str, float]] = {}
    for probe, read in READERS.items():
        values = results.get(probe)
        around = measured(AnyProbe, values)
        if isinstance(around, Missing):
            continue
        versions = _versions(around, agent_version)
        for uuid, name, value in read(values):
            if uuid and value > 0:
                of_gpu = by_key.setdefault(BaselineKey(uuid, probe, versions), {})
                of_gpu[name] = max(value, of_gpu.get(name, 0.0))
    return by_key


def findings(evidence: Evidence) -> list[Finding]:
    now = figures_of(evidence.results, evidence.snapshot.agent_version)
    return [
        _compare(evidence, key, past, now.get(key, {}), _slack(evidence, key))
        for key, past in evidence.baseline.items()
        if past and key.probe in evidence.results
    ]


def uncompared(snapshot: Snapshot, probed: Sequence[ProbeResult], baseline: Baseline, profile: str) -> list[Finding]:
    """For a quick measurement: WARN for each GPU and probe without a baseline.

    The profile's floors have judged these figures. The comparison with the baseline is missing, because the host was
    certified without --quick, or with another gpuprep or library. One SKIP if a GPU is simulated.
    """
    if not probed:
        return []
    if not _is_real(snapshot, probed):
        reason = "the GPUs are simulated: their figures do not describe a real machine, so they have no baseline"
        return [Finding("speed", "history", Status.SKIP, "as in its baseline", "not compared", reason)]
    return [
        _uncompared(_subject(snapshot, key.gpu_uuid), key, now, profile)
        for key, now in figures(snapshot, probed).items()
        if not baseline.get(key)
    ]


def _uncompared(subject: str, key: BaselineKey, now: Mapping[str, float], profile: str) -> Finding:
    best = max(now, key=lambda name: now[name])
    reason = (
        f"there is no baseline of a quick measurement with these versions ({key.versions}): the profile's floors have"
        " judged the speed, but it is not known whether this host has become slower"
    )
    remedy = (
        f"`gpuprep validate HOST --profile {profile} --quick`: its figures become the baseline if it passes; then"
        " `gpuprep drift schedule HOST --profile PROFILE`, where the host checks itself"
    )
    actual = f"{best} {figure(now[best])}, no baseline"
    return Finding(subject, f"{key.probe}_history", Status.WARN, "as in its baseline", actual, reason, remedy)


def has_quick(baseline: Baseline, gpu_uuid: str, probe: str, agent_version: str) -> bool:
    """Whether the baseline has a quick measurement of this gpuprep version, with any library versions."""
    wanted = {f"gpuprep {agent_version}", QUICK}
    return any(
        (key.gpu_uuid, key.probe) == (gpu_uuid, probe) and wanted <= set(key.versions.split(", ")) for key in baseline
    )


def _is_real(snapshot: Snapshot, probed: Sequence[ProbeResult]) -> bool:
    return snapshot.source is Source.MEASURED and all(result.source is Source.MEASURED for result in probed)


def _slack(evidence: Evidence, key: BaselineKey) -> Mapping[str, float]:
    """Figure ► its variation in per cent, for figures that varied more than decoded.STEADY_PERCENT."""
    values = evidence.of(Gemm, key.probe) if key.probe == "gemm" else NO_ANSWER
    if isinstance(values, Missing):
        return {}
    spreads = {
        _name(gemm): gemm.rel_stdev_percent
        for gpu in decoded.gpus(values)
        if gpu.uuid == key.gpu_uuid
        for gemm in gpu.gemms
    }
    return {
        name: spread
        for name, spread in spreads.items()
        if not isinstance(spread, Missing) and spread > decoded.STEADY_PERCENT
    }


def _compare(
    evidence: Evidence,
    key: BaselineKey,
    past: Mapping[str, BaselineFigure],
    now: Mapping[str, float],
    slack: Mapping[str, float],
) -> Finding:
    """Compare figures with the baseline. `slack` is subtracted: a figure is slower only beyond its own variation."""
    warn, fail = floor(evidence, "history_warn_percent"), floor(evidence, "history_fail_percent")
    subject, prop = _subject(evidence.snapshot, key.gpu_uuid), f"{key.probe}_history"
    first = min(past.values(), key=lambda one: one.set_at)
    expected = f"less than {warn.percent:g} % below its baseline ({warn.source})" if warn else "as in its baseline"
    lost = {name: 100.0 * (1.0 - now[name] / past[name].value) for name in past if name in now}
    both = {name: min(percent, max(0.0, percent - slack.get(name, 0.0))) for name, percent in lost.items()}
    if not both:
        why = f"nothing that run {first.run_id} measured was measured this time"
        return Finding(subject, prop, Status.SKIP, expected, "nothing to compare", why)
    worst = sorted(both, key=lambda name: -both[name])
    status = Status(below(both[worst[0]], warn, fail))
    changes = [f"{name} {figure(now[name])}, was {figure(past[name].value)} ({-lost[name]:+.1f} %)" for name in worst]
    hidden = [
        name for name in worst if below(lost[name], warn, fail) == "FAIL" and below(both[name], warn, fail) == "PASS"
    ]
    if status is not Status.FAIL and hidden:
        why = f"{hidden[0]} is {lost[hidden[0]]:.1f} % below its baseline and varied by {slack[hidden[0]]:.1f} %"
        return Finding(subject, prop, Status.UNKNOWN, expected, changes[worst.index(hidden[0])], why, REMEDY)
    if status is Status.PASS:
        return Finding(subject, prop, status, expected, f"lowest of {len(both)}: {changes[0]}")
    lower = [text for name, text in zip(worst, changes, strict=True) if below(both[name], warn, fail) != "PASS"]
    more = f" and {len(lower) - NAMED} more" if len(lower) > NAMED else ""
    why = f"slower than this host was in run {first.run_id} ({first.set_at[:10]}): {'; '.join(lower[:NAMED])}{more}"
    return Finding(subject, prop, status, expected, changes[0], why, REMEDY)


def _subject(snapshot: Snapshot, uuid: str) -> str:
    gpus = snapshot.gpus
    known = {} if isinstance(gpus, Missing) else {gpu.uuid: gpu.index for gpu in gpus}
    return f"gpu {known[uuid]}" if uuid in known else uuid


def _versions(values: AnyProbe, agent_version: str) -> str:
    """The versions part of a baseline's key: gpuprep, libraries, and whether the run was quick."""
    versions = [f"gpuprep {agent_version}"]
    versions += [f"{library.name} {library.version}" for library in values.libraries]
    if values.ffmpeg is not None:
        versions.append(f"ffmpeg {values.ffmpeg.version}")
    versions = [
        version.replace(",", ";") for version in versions
    ]  # a host must not pass a quick run off as a full one by the text of a version
    if values.quick is not False:
        versions.append(QUICK if values.quick else NOBODY_KNOWS)
    return ", ".join([versions[0], *sorted(versions[1:])])


def _gemm(values: object) -> Iterator[tuple[str, str, float]]:
    products = measured(Gemm, values)
    for gpu in () if isinstance(products, Missing) else decoded.gpus(products):
        disturbed, _ = trust.alone(gpu)
        for gemm in () if disturbed else gpu.gemms:
            if decoded.why_unusable(gemm):
                continue
            yield gpu.uuid, _name(gemm), decoded.speed(gemm.tflops)
            lasting = sustained(gemm)
            if lasting is not None and not isinstance(lasting.tflops, Missing):
                yield gpu.uuid, f"{_name(gemm)} sustained", lasting.tflops


def _name(gemm: Product) -> str:
    dtype, accumulate = decoded.kind_of(gemm)
    kind = f"{dtype}/{accumulate}" if accumulate else dtype
    return f"{kind} {decoded.shape_of(gemm)} {gemm.layout}".strip()


def _bandwidth(values: object) -> Iterator[tuple[str, str, float]]:
    moved = measured(Bandwidth, values)
    for gpu in () if isinstance(moved, Missing) else moved.gpus:
        if not isinstance(gpu, Missing):
            for name, value in {**gpu.memory, **gpu.host}.items():
                if not isinstance(value, Missing):
                    yield gpu.uuid, name, value


def _throughput(values: object) -> Iterator[tuple[str, str, float]]:
    delivered = measured(Throughput, values)
    if isinstance(delivered, Missing):
        return
    for series in delivered.series:
        gpu = series.gpu or delivered.gpu
        best = max((step.fps for step in series.steps if not isinstance(step.fps, Missing)), default=math.nan)
        words = [series.kind, series.codec, series.preset, f"{series.width}x{series.height}"]
        if gpu is not None and not isinstance(gpu, Missing) and best > 0:
            yield gpu.uuid, " ".join(word for word in words if word), best


READERS = {"gemm": _gemm, "bandwidth": _bandwidth, "throughput": _throughput}
