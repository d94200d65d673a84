"""Compares the frames per second of one series with the speed of its video engines.

Below the speed of healthy engines a series is WARN: 90 % of the speed of healthy boards with gpuprep's own clip, else
85 % of NVIDIA's rate (NVIDIA's clips are not published). FAIL begins at a share of that
(checks/floors.py), or where engines are missing. If the user's profile sets a limit, it is the only limit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gpuprep.checks.common import RESTART, known, skip, unknown
from gpuprep.checks.evidence import Evidence
from gpuprep.checks.floors import Floor, apart, floor, is_shipped, percents
from gpuprep.checks.judges.throughput.sense import contradiction
from gpuprep.checks.judges.throughput.series import WORDS, Engines, Judged, positive
from gpuprep.records import Finding, Missing, Status
from gpuprep.records.evidence.throughput import Step

# ---------------------------------------------------------------- beside other GPUs

# Several GPUs of one machine: are the video engines of each GPU as fast as those of the best?

# Two healthy GPUs differ by a few per cent, although every further GPU is measured for a shorter time. 10 % is more.
WARN_PERCENT, FAIL_PERCENT = 10.0, 25.0
EXPECTED = f"less than {WARN_PERCENT:g} % below the best of its kind"
REMEDY = (
    "compare clocks and use of the engines of the two; if a second measurement shows the same, show the provider "
    "this report"
)


def against_best(every: Sequence[Judged], disturbed: dict[int, str]) -> list[Finding]:
    """A finding for each series that several GPUs of one board have. `disturbed`: by position, why it was disturbed."""
    findings = []
    for place, judged in enumerate(every):
        twins = [other for other in every if _is_twin(judged, other) and _speed(other)]
        if twins and _speed(judged):
            findings.append(_against(judged, max(twins, key=_speed), disturbed.get(place, "")))
    return findings


def _is_twin(judged: Judged, other: Judged) -> bool:
    boards = [each.board.key if each.board else "" for each in (judged, other)]
    same = judged.key == other.key and judged.gpu.pci_device_id == other.gpu.pci_device_id and boards[0] == boards[1]
    named = judged.board is not None or judged.gpu.name == other.gpu.name
    return same and named and judged.gpu is not other.gpu


def _speed(judged: Judged) -> float:
    """The fps of a series; 0 if nothing was delivered or the figures are impossible."""
    best = judged.best
    return positive(best.fps) if best is not None and not contradiction(judged) else 0.0


def _against(judged: Judged, best: Judged, disturbed: str) -> Finding:
    mine, other = _speed(judged), _speed(best)
    percent = max(0.0, 100 * (1 - mine / other))
    prop, shown = "fps_against_best", f"{mine:.0f} fps, gpu {best.gpu.index} {other:.0f}"
    if percent < WARN_PERCENT:
        return Finding(judged.subject, prop, Status.PASS, EXPECTED, shown)
    why = f"these engines give {percent:.0f} % fewer frames than those of gpu {best.gpu.index}, which is the same board"
    if disturbed:
        return Finding(
            judged.subject, prop, Status.UNKNOWN, EXPECTED, shown, f"{why}, but {disturbed}", "measure again"
        )
    status = Status.FAIL if percent >= FAIL_PERCENT else Status.WARN
    return Finding(judged.subject, prop, status, EXPECTED, shown, why, REMEDY)


# ---------------------------------------------------------------- one series

FPS = "fps"
THRESHOLD = "engine_percent_of_rate"
DEFAULT_FLOOR = 85.0  # per cent; a real H200 reaches 90 with FFmpeg
OWN_CLIP_PERCENT = 90.0
MISSING_SHARE = 0.7  # of all engines' rate: below it an engine that is missing is FAIL
DISTURBED = "end the other work on this GPU and validate again"


def of_series(evidence: Evidence, judged: Judged, best: Step, disturbed: str) -> Finding:
    """The finding on the speed of a series. `disturbed`: why a low figure says nothing about these engines, or ""."""
    fps, clock = positive(best.fps) * judged.pixels, judged.clock(best)
    sessions = f"fps with {best.sessions} session{'' if best.sessions == 1 else 's'}"
    measured = f"{fps:.0f} {sessions}"
    if judged.model is None and not judged.gpu.pci_device_id:
        return unknown(judged.subject, FPS, Missing("not_recorded", "which GPU it was"), expected="a published rate")
    if not judged.has_rates:
        name = judged.model.title if judged.model else judged.gpu.name or "this GPU"
        reason = f"no rate of NVIDIA's for {judged.kind} {judged.codec} on a {name} is in gpuprep's catalogue"
        return skip(judged.subject, FPS, expected="a published rate", actual=measured, reason=reason)
    if not clock:
        reading = Missing("not_sampled", f"{measured}, but NVML gave no video clock, which is needed to judge it")
        return unknown(judged.subject, FPS, reading, expected="rate x engines x clock", what="the video clock")
    bound = min(judged.engines, key=lambda engine: _total(engine, clock))
    limits = _Limits(evidence, judged, bound, clock)
    measured = f"{apart(fps, limits.tell, 0)[0]} {sessions}"
    return _judged(judged, best, bound, limits, measured, disturbed)


def _total(engines: Engines, clock: float) -> float:
    """fps of all these engines by NVIDIA's rate; of one engine if their number is unknown."""
    assert engines.rate is not None
    return engines.rate.at(clock) * (1 if engines.count is None else engines.count)


class _Limits:
    """The limits for FAIL (`fail`) and WARN (`tell`) in fps of all engines, and the finding's texts."""

    def __init__(self, evidence: Evidence, judged: Judged, bound: Engines, clock: float) -> None:
        rate = bound.rate
        assert rate is not None
        least = floor(evidence, THRESHOLD) or Floor(DEFAULT_FLOOR, "gpuprep's default")
        shipped = is_shipped(evidence, THRESHOLD)
        self.total, self.engine_fps = _total(bound, clock), rate.at(clock)
        passes = max(least.percent, DEFAULT_FLOOR) if shipped else least.percent
        self.tell = passes / 100 * self.total
        count = f"one {WORDS[bound.part]}" if bound.count is None else bound.in_words()
        source = least.source if passes == least.percent else "gpuprep"
        share = f"at least {passes:g} % ({source}) of {self.total:.0f} fps"
        self.expected = f"{share}: {count} x {self.engine_fps:.0f} at {clock:.0f} MHz"
        if rate.share < 1:
            self.expected += f" ({100 * rate.share:.0f} % of NVIDIA's rate come through FFmpeg)"
        self.limit_text = f"{passes:g} % of NVIDIA's rate"
        if shipped and rate.own_clip and judged.own_clip:
            healthy_fps = rate.own_clip * self.total / rate.share
            self.tell = OWN_CLIP_PERCENT / 100 * healthy_fps
            self.limit_text = (
                f"{OWN_CLIP_PERCENT:g} % of the {healthy_fps:.0f} fps that healthy boards reach with this clip"
            )
            self.expected += f", and {self.tell:.0f} fps, {self.limit_text}"
        self.fail = least.fail_share * self.tell


def _judged(judged: Judged, best: Step, bound: Engines, limits: _Limits, measured: str, disturbed: str) -> Finding:
    fps = positive(best.fps) * judged.pixels
    percent = percents(100 * fps / limits.total, 100 * limits.fail / limits.total)[0]
    actual = f"{measured}, {percent} %{judged.bit_rate}"
    subject, expected = judged.subject, limits.expected
    unread = isinstance(bound.used(best), Missing)
    if bound.count is None and fps >= limits.tell:
        if slow := _slow_alone(judged, limits):
            return Finding(subject, FPS, Status.WARN, expected, actual, slow, SLOW)
        reason = f"no source says how many {WORDS[bound.part]}s a {judged.model.title if judged.model else 'GPU'} has"
        return skip(subject, FPS, expected=expected, actual=actual, reason=f"{reason}; one gives this speed")
    if fps >= limits.tell:
        if unread and not judged.published:
            reading = Missing("not_sampled", f"{actual}, but NVML did not say how busy the {WORDS[bound.part]}s were")
            return unknown(subject, FPS, reading, expected=expected, what="whether the engines made these frames")
        return Finding(subject, FPS, Status.PASS, expected, actual)
    if disturbed:
        reading = Missing("command_failed", f"{actual}, but {disturbed}")
        what = "the speed of these engines alone"
        return unknown(subject, FPS, reading, expected=expected, what=what, remedy=DISTURBED)
    if few := _too_few(judged, best, bound, limits):
        return Finding(subject, FPS, Status.UNKNOWN, expected, actual, few, "measure again, with less load on the host")
    if unread and judged.published:
        why = (
            f"how busy the {WORDS[bound.part]}s were is not known, and a host that feeds them too slowly gives the "
            "same figure"
        )
        remedy = "measure it: `gpuprep validate HOST --profile PROFILE --only throughput`"
        return Finding(subject, FPS, Status.UNKNOWN, expected, actual, why, remedy)
    loss = why_slow(judged.steps, best, bound.part, bound.count or 1, limits.engine_fps)
    if fps >= limits.fail and not (loss.missing_engines and fps < MISSING_SHARE * limits.total):
        why = f"that is less than {limits.limit_text}: {loss.reason}"
        return Finding(subject, FPS, Status.WARN, expected, actual, why, loss.remedy)
    if bound.is_sure or fps < limits.fail / limits.total * limits.engine_fps:
        return Finding(subject, FPS, Status.FAIL, expected, actual, loss.reason, loss.remedy)
    why = f"{loss.reason}; or it has fewer {WORDS[bound.part]}s than gpuprep assumes: no source gives their number"
    return Finding(subject, FPS, Status.WARN, expected, actual, why, loss.remedy)


def _slow_alone(judged: Judged, limits: _Limits) -> str:
    """Why one session alone was too slow for one engine; "" if it was not, or if no session ran alone."""
    alone = [positive(step.fps) * judged.pixels for step in judged.steps if step.sessions == 1]
    if not alone or max(alone) >= DEFAULT_FLOOR / 100 * limits.engine_fps:
        return ""
    reached, given = apart(max(alone), limits.engine_fps, 0)
    return f"one session alone reaches {reached} of the {given} fps that one engine gives"


def _too_few(judged: Judged, best: Step, bound: Engines, limits: _Limits) -> str:
    """Why there were too few sessions to fill the engines, if each session filled its engine; else ""."""
    count, sessions = bound.count or 1, best.sessions or 1
    most = max((step.sessions or 0 for step in judged.steps), default=0)
    died = any(isinstance(step.died, Missing) or step.died for step in judged.steps)
    each = positive(best.fps) * judged.pixels / sessions
    if most >= count or died or each < limits.fail / limits.total * limits.engine_fps:
        return ""
    sessions_in_words = "1 session" if sessions == 1 else f"{sessions} sessions"
    return f"{sessions_in_words} cannot fill {count} {WORDS[bound.part]}s, and more were not run"


# ---------------------------------------------------------------- why video engines were slow

BUSY_PERCENT = 90  # an engine that is used less waits for another part
CPU_FULL_PERCENT = 85
STORAGE_PERCENT = 10  # of all CPUs' time
MISSING_ENGINES = 0.75  # in engines: if so much is lacking, one engine is missing
SLOW = f"{RESTART}; if that does not help, ask the provider for another GPU"
ENGINE = {"decode": "decoders", "encode": "encoders"}


@dataclass(frozen=True)
class Loss:
    reason: str
    remedy: str
    missing_engines: bool = False


def why_slow(steps: Sequence[Step], best: Step, bound: str, engines: int, rate: float) -> Loss:
    """Why the step with the most frames per second was slow. `bound`: the limiting engines, `rate`: fps of one."""
    if best.died and not isinstance(best.died, Missing):
        line = best.died_because or "they died"
        return Loss(
            f"{best.died} of {best.sessions} sessions ended early ({line}), so the engines were not filled",
            "repair this cause first, then measure again",
        )
    used = known(best.decoder_utilization_percent if bound == "decode" else best.encoder_utilization_percent)
    if used is None:
        reason = f"NVML did not say how busy the {ENGINE[bound]} were, so the cause is not known"
        return Loss(reason, "look at `nvidia-smi dmon -s u` while FFmpeg runs")
    if used < BUSY_PERCENT:
        return _waited_for(best, bound, used)
    alone = next((fps for step in steps if step.sessions == 1 and (fps := known(step.fps))), None)
    works = (known(best.fps) or 0.0) / alone if alone else float(engines)
    if alone is not None and alone >= 0.85 * rate and works < engines - MISSING_ENGINES:
        return Loss(
            f"one session alone reaches {alone:.0f} of {rate:.0f} fps, all together no more than {works:.1f} of them: "
            f"it looks like fewer than {engines} {ENGINE[bound]} at work",
            "ask the provider whether this is a slice of a GPU (MIG, vGPU) or a GPU with engines switched off",
            missing_engines=True,
        )
    return Loss(
        f"the {ENGINE[bound]} were {used:.0f} % busy and yet slow: each gives less than its rate at this clock",
        SLOW,
    )


def _waited_for(best: Step, bound: str, used: float) -> Loss:
    sentence = f"the {ENGINE[bound]} were only {percents(used, BUSY_PERCENT)[0]} % busy: "
    storage, cpu = known(best.io_wait_percent), known(best.cpu_percent)
    if storage is not None and storage >= STORAGE_PERCENT:
        return Loss(
            f"{sentence}they waited for the storage (the CPUs spent {storage:.0f} % of their time waiting for it)",
            "keep inputs on a faster disk or in memory",
        )
    if cpu is not None and cpu >= CPU_FULL_PERCENT:
        return Loss(
            f"{sentence}they waited for the CPU, which was {cpu:.0f} % busy",
            "use a machine with more CPU cores for this GPU, or end other work on it",
        )
    seen = "how busy its CPU and storage were could not be read"
    if storage is not None and cpu is not None:
        seen = f"though neither CPU nor storage was full (CPU {cpu:.0f} % busy)"
    return Loss(
        f"{sentence}they waited for the host, {seen}; more sessions did not help",
        "look for a slow PCIe link, a CPU in power-saving mode, or limits of the virtual machine",
    )
