"""Are the total frames per second as high as NVIDIA's rate x engines x clock?

Every series is judged: whether its figures are possible (sense.py), its speed (speed.py), and its speed
compared with the same series of another GPU. A figure below the floor is explained by readings during
the run (speed.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpuprep.agent.video import throughputplan
from gpuprep.agent.video.ffmpegerrors import Cause, cause
from gpuprep.catalogue.video import capabilities, is_verified
from gpuprep.checks.common import skip, unknown
from gpuprep.checks.evidence import Evidence, absent_gpus
from gpuprep.checks.judges.throughput import sense, speed, undisturbed
from gpuprep.checks.judges.throughput.sense import contradiction
from gpuprep.checks.judges.throughput.series import Judged, counted, positive
from gpuprep.checks.judges.throughput.speed import FPS, of_series
from gpuprep.records import Finding, Missing, Status
from gpuprep.records.evidence.throughput import Clip, Series, Throughput, ThroughputGpu

# The command itself is text from the host: a report does not show it, so that nobody pastes it.
RETRY = "run the series' command by hand on the host; it is in the record"
AGAIN = "measure again"
# Codec of a series ► its name among the capabilities of an engine, if the names differ.
CAPABILITY = {"hevc10": "hevc.10bit", "h264-noisy": "h264"}
UNLISTED = ThroughputGpu()  # of a series that names no GPU of the list


def findings(evidence: Evidence) -> list[Finding]:
    values = evidence.of(Throughput, "throughput")
    if evidence.wanted.codec.ffmpeg == "none":
        return []
    if isinstance(values, Missing):
        return [unknown("throughput", FPS, values, expected="measured", role="gpu_codec")]
    listed = values.gpus or ((values.gpu,) if values.gpu else ())
    gpus = [gpu for gpu in listed if not isinstance(gpu, Missing)]
    if not gpus or not (values.series or any(gpu.error for gpu in gpus)):
        return [unknown("throughput", FPS, Missing("not_recorded", "no series is listed"), expected="measured")]
    raw = evidence.results.get("throughput")
    findings = _unreadable(raw, values)
    findings += [_lost(gpu) for gpu in gpus if gpu.error]
    if not values.published:
        findings += absent_gpus(evidence, "throughput", gpus, len(listed) - len(gpus))
    every = _every(evidence, values, gpus)
    disturbed = [undisturbed.alone(series.gpu, series.published)[0] for series in every]
    for series, why in zip(every, disturbed, strict=True):
        findings += _series(evidence, series, why)
    findings += speed.against_best(every, dict(enumerate(disturbed)))
    findings += sense.findings(values)
    for place, gpu in enumerate(gpus):
        its = [series for series in every if series.gpu is gpu]
        findings += _nothing_ran(gpu, its) + _absent(evidence, values, gpu, its, place)
        findings += [] if gpu.error else undisturbed.findings(evidence, gpu, its, bool(values.published))
    return findings


def _every(evidence: Evidence, values: Throughput, gpus: Sequence[ThroughputGpu]) -> list[Judged]:
    """Every series with its GPU. A series that is recorded twice is judged duplicate_gpus, under different names."""
    owners = [(series, _gpu_of(series, gpus)) for series in values.series]
    boards = {id(gpu): evidence.board(gpu) for gpu in (*gpus, UNLISTED)}
    shown = {}
    for gpu in (*gpus, UNLISTED):
        board = boards[id(gpu)]
        shown[id(gpu)] = counted(board.model if board else None, [series for series, its in owners if its is gpu])
    judgements: list[Judged] = []
    for series, gpu in owners:
        judged = Judged(series, gpu, len(gpus) > 1, boards[id(gpu)], shown[id(gpu)], bool(values.published))
        again = sum(other.gpu is gpu and other.key == judged.key for other in judgements)
        judged.subject += f" ({again + 1})" if again else ""
        judgements.append(judged)
    return judgements


def _gpu_of(series: Series, gpus: Sequence[ThroughputGpu]) -> ThroughputGpu:
    """The entry of `gpus` for this series, by index and UUID; if it names no GPU, the only entry; else UNLISTED."""
    named = series.gpu
    if named is None:
        return gpus[0] if len(gpus) == 1 else UNLISTED
    if isinstance(named, Missing):
        return UNLISTED
    same = [
        gpu for gpu in gpus if gpu.index == named.index and (gpu.uuid == named.uuid or not (gpu.uuid and named.uuid))
    ]
    return same[0] if same else UNLISTED


def _unreadable(raw: object, values: Throughput) -> list[Finding]:
    """UNKNOWN if entries of series or steps are invalid, so that they could not be judged.

    `raw`: the record's own values, because decoding leaves such entries out.
    """
    kept = len(values.series) + sum(len(entry.steps) for entry in values.series)
    listed = raw.get("series") if isinstance(raw, dict) else None
    series = listed if isinstance(listed, list) else []
    steps = [entry.get("steps") for entry in series if isinstance(entry, dict)]
    there = len(series) + sum(len(step) for step in steps if isinstance(step, list))
    if there <= kept:
        return []
    nothing = Missing("unparsable", f"{there - kept} entries are not valid series")
    return [unknown("throughput", "series", nothing, expected="every series readable", remedy=AGAIN)]


def _absent(
    evidence: Evidence, values: Throughput, gpu: ThroughputGpu, its: Sequence[Judged], place: int
) -> list[Finding]:
    """UNKNOWN for series that the probe runs on such a GPU and that the record does not have.

    Records whose series do not name their clip are older than the series with the harder clip.
    """
    if gpu.error or values.published:
        return []
    board = evidence.board(gpu)
    model = board.model if board else None
    engines = throughputplan.Engines(model.nvenc_engines if model else None, model.nvdec_engines if model else None)
    have = {series.key for series in its}
    older = not any(isinstance(series.clip, Clip) for series in values.series)
    short = throughputplan.plan(True, engines)
    # If a run is recorded as quick but has other series, it was a full run.
    quick = values.quick is True and have <= {(series.kind, series.codec, series.preset or "") for series in short}
    wanted = short if quick or place > 0 else throughputplan.plan(False, engines)
    absent = [
        " ".join(filter(None, (series.kind, series.codec, series.preset)))
        for series in wanted
        if (series.kind, series.codec, series.preset or "") not in have
        and not (older and series.codec in throughputplan.HARDER)
    ]
    if not absent:
        return []
    reading = Missing("not_recorded", ", ".join(absent))
    expected, what = f"{len(wanted)} series", f"{len(absent)} series"
    return [unknown(f"throughput gpu {gpu.index}", "series", reading, expected=expected, what=what, remedy=AGAIN)]


def _nothing_ran(gpu: ThroughputGpu, its: Sequence[Judged]) -> list[Finding]:
    if gpu.error or any(judged.series.outcome != "no_time" for judged in its):
        return []
    nothing = Missing("not_recorded", "no series was measured: the machine was too slow for the time limit")
    subject = f"throughput gpu {gpu.index}"
    return [unknown(subject, FPS, nothing, expected="measured", remedy="measure again, with less load")]


def _series(evidence: Evidence, judged: Judged, disturbed: str) -> list[Finding]:
    outcome = judged.series.outcome
    if judged.gpu is UNLISTED:
        nothing = Missing("not_recorded", "the record does not list the GPU that it ran on")
        return [unknown(judged.subject, FPS, nothing, expected="measured", remedy=AGAIN)]
    if why := contradiction(judged):
        return [_contradicts(judged, why), *([] if judged.lacks_engine or not judged.kind else _died(judged))]
    if outcome == "no_time":
        return [skip(judged.subject, FPS, expected="measured", actual="not run", reason=judged.decisive)]
    if outcome == "not_built":
        return [_not_built(evidence, judged)]
    if judged.lacks_engine:
        return [_without_engine(judged)]
    if not outcome:
        reading = Missing("not_recorded", "no outcome")
        return [unknown(judged.subject, FPS, reading, expected="measured", what="how the series ended", remedy=AGAIN)]
    if outcome not in ("completed", "failed"):
        reading = Missing("command_failed", judged.decisive or "the probe did not run it")
        return [unknown(judged.subject, FPS, reading, expected="measured")]
    best = judged.best
    if best is None:
        return [_failed(judged)]
    return [of_series(evidence, judged, best, disturbed), *_died(judged)]


def _contradicts(judged: Judged, why: str) -> Finding:
    best = judged.best
    shown = f"{positive(best.fps):.0f} fps" if best else "no frame"
    return Finding(judged.subject, FPS, Status.UNKNOWN, "possible figures", shown, why, AGAIN)


def _lost(gpu: ThroughputGpu) -> Finding:
    reading = Missing("gpu_is_lost", gpu.error)
    return unknown(f"throughput gpu {gpu.index}", FPS, reading, expected="measured")


def _not_built(evidence: Evidence, judged: Judged) -> Finding:
    name = throughputplan.Series(judged.kind, judged.codec, judged.preset, False).needs
    if name in evidence.wanted.codec.parts.get("encoders", ()):
        reading = Missing("not_installed", judged.decisive)
        return unknown(judged.subject, FPS, reading, expected="measured", role="gpu_codec")
    reason = f"the profile builds FFmpeg without {name}"
    return skip(judged.subject, FPS, expected="measured", actual=judged.decisive, reason=reason)


def _without_engine(judged: Judged) -> Finding:
    """The finding for an engine that the GPU lacks by the catalogue: the driver must confirm it."""
    known = cause(judged.decisive)
    title = judged.model.title if judged.model else "GPU"
    expected = f"no {'decoder' if judged.kind == 'decode' else 'encoder'} on this {title}"
    if judged.best is not None:
        sure = all(engine.is_sure for engine in judged.engines if engine.count == 0)
        status, shown = Status.UNKNOWN if sure else Status.WARN, f"{positive(judged.best.fps):.0f} fps"
        return Finding(
            judged.subject, FPS, status, expected, shown,
            f"it works, though by gpuprep's catalogue a {title} has none: the catalogue or the GPU's name is wrong",
            "compare the GPU's name with the one you ordered, and tell gpuprep's authors",
        )  # fmt: skip
    if known is not None and known.denies.startswith(("nvenc", "nvdec")):
        return skip(judged.subject, FPS, expected=expected, actual=judged.decisive, reason=known.meaning)
    reading = Missing("command_failed", judged.decisive or "the driver did not say why")
    return unknown(judged.subject, FPS, reading, expected=expected)


def _failed(judged: Judged) -> Finding:
    known = cause(judged.decisive)
    actual = judged.decisive or "no frame"
    if known is not None and known.denies:
        return _denied(judged, known, actual)
    why, remedy = (known.meaning, known.remedy) if known else ("no session delivered a frame", RETRY)
    return Finding(judged.subject, FPS, Status.FAIL, "frames", actual, f"{why}: {actual}", remedy)


def _denied(judged: Judged, known: Cause, line: str) -> Finding:
    """The finding if the driver reports that this GPU lacks the capability."""
    model, chip = judged.model, known.denies.partition(".")[0]
    own = None if model is None else capabilities(model.key)
    if model is None or own is None:
        what = "this GPU" if model is None else f"the video engines of a {model.title}"
        reason = f"{known.meaning}; gpuprep's catalogue does not know {what}"
        return skip(judged.subject, FPS, expected="frames, where the GPU can", actual=line, reason=reason)
    if chip in ("nvenc", "nvdec") and f"{chip}.{CAPABILITY.get(judged.codec, judged.base)}" not in own:
        reason = f"{known.meaning}; gpuprep's catalogue says the same of a {model.title}"
        return skip(judged.subject, FPS, expected="frames, where the GPU can", actual=line, reason=reason)
    counts = " and ".join(engine.in_words() for engine in judged.engines if engine.count)
    why = f"{known.meaning}, though by gpuprep's catalogue a {model.title} has {counts or 'such engines'}: {line}"
    sure = is_verified(model.key, f"{chip}.h264")
    status = Status.FAIL if sure else Status.WARN
    return Finding(judged.subject, FPS, status, "frames", line, why, known.remedy)


def _died(judged: Judged) -> list[Finding]:
    for step in judged.steps:
        died = step.died
        if isinstance(died, Missing) or (died is None and not judged.published):
            what = "whether its sessions ran to the end"
            reading = died if isinstance(died, Missing) else Missing("not_recorded")
            return [unknown(judged.subject, "sessions", reading, expected="all run to the end", what=what)]
        if died and died <= (step.sessions or died):
            line = step.died_because or judged.decisive
            known = cause(line)
            actual = f"{died} of {step.sessions} ended early"
            why = f"{known.meaning if known else 'they died'}: {line}"
            remedy = known.remedy if known else RETRY
            return [Finding(judged.subject, "sessions", Status.FAIL, "all run to the end", actual, why, remedy)]
    return []


def parts(measurement: Throughput) -> Iterator[str]:
    """ "encode h264 p4" of each GPU and each series that has a speed."""
    kinds = {
        (gpu.uuid if (gpu := series.gpu or measurement.gpu) and not isinstance(gpu, Missing) else "",
         " ".join(filter(None, (series.kind, series.codec, series.preset))))
        for series in measurement.series
        if series.outcome == "completed" and any(not isinstance(step.fps, Missing) for step in series.steps)
    }  # fmt: skip
    yield from (what for _, what in sorted(kinds))
