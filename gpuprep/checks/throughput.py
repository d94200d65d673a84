"""Are the total frames per second as high as NVIDIA's rate x engines x clock? Pure.

A figure below the floor is explained by readings during the run: sessions that died, engines that waited (and for
what), a low video clock, or engines that were busy and slow.
"""

from __future__ import annotations

from collections.abc import Sequence

from gpuprep import catalogue
from gpuprep.agent.ffmpegerrors import cause
from gpuprep.catalogue.codecs import EngineRate, engine_rate
from gpuprep.checks import gpuprocesses, throughputloss
from gpuprep.checks.common import skip, unknown
from gpuprep.checks.evidence import Evidence, absent_gpus
from gpuprep.checks.floors import Floor, floor
from gpuprep.records import Finding, Missing, Status
from gpuprep.records.evidence.decode import Figure
from gpuprep.records.evidence.throughput import Series, Step, Throughput, ThroughputGpu

DEFAULT_FLOOR = 85.0  # per cent; a real H200 reaches 90 with FFmpeg
CLOCK_FLOOR, CLOCK_FAIL = 90.0, 50.0  # per cent of the engines' highest clock
IDLE_PERCENT = 5  # use of an engine before we began that is no other's work
FPS = "fps"
# The command itself is what the host said: nobody shall paste it from a report.
RETRY = "run the series' command by hand on the host; it is in the record"


def findings(evidence: Evidence) -> list[Finding]:
    values = evidence.of(Throughput, "throughput")
    if evidence.wanted.codec.ffmpeg == "none":
        return []
    if isinstance(values, Missing):
        return [unknown("throughput", FPS, values, expected="measured", role="gpu_codec")]
    listed = values.gpus or ((values.gpu,) if values.gpu else ())
    gpus = [gpu for gpu in listed if not isinstance(gpu, Missing)]
    several = len(gpus) > 1
    series = [(one, _gpu_of(one, gpus)) for one in values.series]
    if not gpus or not (series or any(gpu.error for gpu in gpus)):
        return [unknown("throughput", FPS, Missing("unparsable", "the probe lists no series"), expected="measured")]
    found = [_lost(gpu) for gpu in gpus if gpu.error]
    found += absent_gpus(evidence, "throughput", gpus, len(listed) - len(gpus))
    for gpu in gpus:
        ran = [one for one, its in series if its is gpu and one.outcome != "no_time"]
        if not ran and not gpu.error:
            nothing = Missing("not_recorded", "no series had its turn: the machine was too slow for the time there is")
            subject = f"throughput gpu {gpu.index}"
            found.append(unknown(subject, FPS, nothing, expected="measured", remedy="measure again, with less load"))
    for one, gpu in series:
        found += _series(evidence, Judged(one, gpu, several, evidence.board(gpu)))
    for gpu in gpus:
        found += _clock(gpu, [one for one, its in series if its is gpu])
    return found


class Judged:
    """One series and the GPU it ran on, with what the catalogue says of them."""

    def __init__(self, series: Series, gpu: ThroughputGpu, several: bool, board: catalogue.Board | None = None) -> None:
        self.series = series
        self.gpu = gpu
        self.kind, self.codec, self.preset = series.kind, series.codec, series.preset
        words = ["throughput", self.kind, self.codec, self.preset, f"gpu {gpu.index}" if several else ""]
        self.subject = " ".join(word for word in words if word)
        self.model = board.model if board else None
        self.decisive = series.decisive_line
        self.steps = series.steps

    @property
    def engines(self) -> list[tuple[str, int, EngineRate | None]]:
        """(kind, how many, rate of one) of each kind of engine at work; [] where the catalogue lacks GPU or count."""
        if self.model is None:
            return []
        parts = ("decode", "encode") if self.kind == "transcode" else (self.kind,)
        counts = {"decode": self.model.nvdec_engines, "encode": self.model.nvenc_engines}
        known = [(part, counts.get(part)) for part in parts]
        return [
            (part, count, engine_rate(self.model.compute_capability, part, self.codec, self.preset or None))
            for part, count in known
            if count is not None and all(other is not None for _, other in known)
        ]

    @property
    def best(self) -> Step | None:
        """The step with the most frames a second; None: nothing was delivered."""
        delivered = [step for step in self.steps if positive(step.fps)]
        return max(delivered, key=lambda step: positive(step.fps), default=None)

    def count_in_words(self, part: str, count: int) -> str:
        word = {"decode": "decoder", "encode": "encoder"}[part] + ("" if count == 1 else "s")
        field = {"decode": "nvdec_engines", "encode": "nvenc_engines"}[part]
        doubt = self.model is not None and field in self.model.unverified
        return f"{count} {word}" + (" (a count remembered from data sheets, not verified)" if doubt else "")


def _series(evidence: Evidence, judged: Judged) -> list[Finding]:
    outcome = judged.series.outcome
    if outcome == "no_time":
        return [skip(judged.subject, FPS, expected="measured", actual="not run", reason=judged.decisive)]
    if outcome == "not_built":
        return [_not_built(evidence, judged)]
    if any(count == 0 for _, count, _ in judged.engines):
        return [_without_engine(judged)]
    if outcome not in ("completed", "failed"):
        reading = Missing("command_failed", judged.decisive or "the probe did not run it")
        return [unknown(judged.subject, FPS, reading, expected="measured")]
    best = judged.best
    if best is None:
        return [_failed(judged)]
    return [_speed(evidence, judged, best), *_died(judged)]


def _lost(gpu: ThroughputGpu) -> Finding:
    reading = Missing("gpu_is_lost", gpu.error)
    return unknown(f"throughput gpu {gpu.index}", FPS, reading, expected="measured")


def _not_built(evidence: Evidence, judged: Judged) -> Finding:
    name = f"{judged.codec}_nvenc"
    if name in evidence.wanted.codec.parts.get("encoders", ()):
        reading = Missing("not_installed", judged.decisive)
        return unknown(judged.subject, FPS, reading, expected="measured", role="gpu_codec")
    reason = f"the profile builds FFmpeg without {name}"
    return skip(judged.subject, FPS, expected="measured", actual=judged.decisive, reason=reason)


def _without_engine(judged: Judged) -> Finding:
    """The catalogue says that there is no such engine; the driver must confirm it."""
    known = cause(judged.decisive)
    title = judged.model.title if judged.model else "GPU"
    expected = f"no {'decoder' if judged.kind == 'decode' else 'encoder'} on this {title}"
    if judged.best is not None:
        return Finding(
            judged.subject, FPS, Status.WARN, expected, f"{positive(judged.best.fps):.0f} fps",
            f"it works, though by gpuprep's catalogue a {title} has none: one of the two is wrong",
            "compare the GPU's name with the one you ordered, and tell gpuprep's authors",
        )  # fmt: skip
    if known is not None and known.denies.startswith(("nvenc", "nvdec")):
        return skip(judged.subject, FPS, expected=expected, actual=judged.decisive, reason=known.meaning)
    reading = Missing("command_failed", judged.decisive or "the driver did not say why")
    return unknown(judged.subject, FPS, reading, expected=expected)


def _failed(judged: Judged) -> Finding:
    known = cause(judged.decisive)
    if known is not None and known.denies and judged.model is None:
        reason = f"{known.meaning}; gpuprep's catalogue does not know this GPU"
        return skip(judged.subject, FPS, expected="frames, where the GPU can", actual=judged.decisive, reason=reason)
    why = known.meaning if known else "no session delivered a frame"
    if known is not None and known.denies and judged.model is not None:
        engines = " and ".join(judged.count_in_words(part, count) for part, count, _ in judged.engines)
        why += f", though by gpuprep's catalogue a {judged.model.title} has {engines}"
    remedy = known.remedy if known else RETRY
    actual = judged.decisive or "no frame"
    return Finding(judged.subject, FPS, Status.FAIL, "frames", actual, f"{why}: {actual}", remedy)


def _died(judged: Judged) -> list[Finding]:
    for step in judged.steps:
        died = step.died
        if isinstance(died, Missing):
            what = "whether its sessions ran to the end"
            return [unknown(judged.subject, "sessions", died, expected="all run to the end", what=what)]
        if died:
            line = step.died_because or judged.decisive
            known = cause(line)
            actual = f"{died} of {step.sessions} ended early"
            why = f"{known.meaning if known else 'they died'}: {line}"
            remedy = known.remedy if known else RETRY
            return [Finding(judged.subject, "sessions", Status.FAIL, "all run to the end", actual, why, remedy)]
    return []


def _speed(evidence: Evidence, judged: Judged, best: Step) -> Finding:
    fps, sessions, clock = positive(best.fps), best.sessions, positive(best.video_clock_mhz)
    measured = f"{fps:.0f} fps with {sessions} session{'' if sessions == 1 else 's'}"
    if not judged.engines or any(rate is None for _, _, rate in judged.engines):
        name = judged.model.title if judged.model else judged.gpu.name or "this GPU"
        reason = f"no rate of NVIDIA's for {judged.kind} {judged.codec} on a {name} is in gpuprep's catalogue"
        return skip(judged.subject, FPS, expected="a published rate", actual=measured, reason=reason)
    if not clock:
        reading = Missing("not_sampled", f"{measured}, but NVML gave no video clock to judge it by")
        return unknown(judged.subject, FPS, reading, expected="rate x engines x clock", what="the video clock")
    if judged.model is None and not judged.gpu.pci_device_id:
        return unknown(judged.subject, FPS, Missing("not_recorded", "which GPU it was"), expected="a published rate")
    total = {part: rate.at(clock) * count for part, count, rate in judged.engines if rate is not None}
    bound = min(total, key=lambda part: total[part])
    count, rate = next((count, rate) for part, count, rate in judged.engines if part == bound)
    assert rate is not None
    percent, least = 100 * fps / total[bound], floor(evidence, "engine_percent_of_rate")
    engines = judged.count_in_words(bound, count)
    least = least or Floor(DEFAULT_FLOOR, "gpuprep's default")
    share = f"at least {least.percent:g} % ({least.source}) of {total[bound]:.0f} fps"
    expected = f"{share}: {engines} x {rate.at(clock):.0f} at {clock:.0f} MHz"
    if rate.share < 1:
        expected += f" ({100 * rate.share:.0f} % of NVIDIA's rate come through FFmpeg)"
    actual = f"{measured}, {percent:.0f} %"
    if percent >= least.percent:
        return Finding(judged.subject, FPS, Status.PASS, expected, actual)
    if other := _others(judged.gpu):
        reading = Missing("command_failed", f"{actual}, but {other}")
        return unknown(judged.subject, FPS, reading, expected=expected, what="the speed of these engines alone",
                       remedy="end the other work on this GPU and validate again")  # fmt: skip
    loss = throughputloss.explain(judged.steps, best, bound, count, rate.at(clock))
    return Finding(judged.subject, FPS, Status.FAIL, expected, actual, loss.reason, loss.remedy)


def _others(gpu: ThroughputGpu) -> str:
    """Who else used this GPU, in words; "" for nobody."""
    if gpu.other_processes:
        names = gpuprocesses.listed(gpu.other_processes[:3])
        return f"another process uses the GPU: {names}"
    used = max(gpu.before.encoder_utilization_percent or 0.0, gpu.before.decoder_utilization_percent or 0.0)
    return f"its engines were {used:.0f} % busy before we began" if used > IDLE_PERCENT else ""


def _clock(gpu: ThroughputGpu, series: Sequence[Series]) -> list[Finding]:
    """The engines' clock under load against their highest; the rates above are already at the clock that was seen."""
    best = [Judged(one, gpu, False).best for one in series]  # engines that are hardly used may clock lower
    steps = [step for step in best if step is not None and positive(step.video_clock_mhz)]
    if not steps:
        return []
    subject = f"gpu {gpu.index}"
    lowest = min(steps, key=lambda step: positive(step.video_clock_mhz))
    clock, highest = positive(lowest.video_clock_mhz), positive(gpu.max_video_clock_mhz)
    if not highest:
        reason = "NVML names no highest clock of the video engines on this driver"
        return [skip(subject, "video_clock", expected="near its highest", actual=f"{clock:.0f} MHz", reason=reason)]
    expected = f"at least {CLOCK_FLOOR:g} % of {highest:.0f} MHz"
    if clock >= highest * CLOCK_FLOOR / 100:
        return [Finding(subject, "video_clock", Status.PASS, expected, f"{clock:.0f} MHz")]
    why, remedy = throughputloss.low_clock(lowest.event_reasons)
    reason = f"the video engines ran at {100 * clock / highest:.0f} % of their clock: {why}"
    status = Status.FAIL if clock < highest * CLOCK_FAIL / 100 else Status.WARN
    return [Finding(subject, "video_clock", status, expected, f"{clock:.0f} MHz", reason, remedy)]


def _gpu_of(series: Series, gpus: Sequence[ThroughputGpu]) -> ThroughputGpu:
    """The entry of `gpus` for this series; the only one where it names none."""
    named = series.gpu
    if named is None:
        return gpus[0] if len(gpus) == 1 else ThroughputGpu()
    if isinstance(named, Missing):
        return ThroughputGpu()
    return next((gpu for gpu in gpus if gpu.index == named.index), named)


def positive(value: Figure) -> float:
    """0 where it is not recorded, or is no figure that something running could have."""
    return 0.0 if isinstance(value, Missing) else max(0.0, value)
