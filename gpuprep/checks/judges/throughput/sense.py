"""Are the figures of a series possible? They must agree with each other, the clock and the engines' speed.

So must latency and picture quality of `gpuprep capacity`. Streams are not recorded: they are calculated from frames per
second (capacity.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpuprep.agent.probes import latency, quality
from gpuprep.agent.video import clips
from gpuprep.agent.video.throughputplan import KINDS, LARGER, PRESETS, SOFTWARE
from gpuprep.catalogue.topologies import chip_to_chip_carries, is_chip_to_chip
from gpuprep.checks import conditions
from gpuprep.checks.common import known, unknown
from gpuprep.checks.conditions import no_temperature
from gpuprep.checks.floors import apart
from gpuprep.checks.judges.throughput.series import PARTS, WORDS, Judged, positive
from gpuprep.checks.links import MOST_GB_PER_S, Way
from gpuprep.checks.plausible import impossible_quality
from gpuprep.records import Finding, Missing, Status
from gpuprep.records.evidence import Figure
from gpuprep.records.evidence.throughput import Clip, Latency, Pcie, Quality, Step, Throughput

ROUNDED_PERCENT = 2.0  # by which figures of one step may differ: they are rounded
UTILISATION_SLACK = 10.0  # points: NVML's utilisation is of the time before its reading, up to a second of it
CLOCK_SLACK = 1.02
POWER_SLACK = 1.3
SHORTEST_SECONDS = 0.1  # FFmpeg reports its progress twice a second
LONGEST_SECONDS = 900.0  # what the longest run has for one GPU (CAPACITY_BUDGET_SECONDS of the probe)
# NVML counts packets with their headers, for 20 ms a reading: what it says may be a little above what a link carries.
PCIE_SLACK = 1.3
PRESET_KINDS = ("encode", "transcode", "ladder")
SIZES = {False: (1920, 1080), True: (3840, 2160)}  # by whether the series is of 4K
# A clip's bits a second, sound included, may be so far from what its encoder was asked for.
KBPS = {"h264-1080p": 5000, "hevc-1080p": 5000, "hevc10-1080p": 5000, "vp9-1080p": 5000, "h264-1080p-noisy": 8000,
        "av1-1080p": 5000, "h264-2160p": 20000, "hevc-2160p": 20000, "av1-2160p": 20000}  # fmt: skip
KBPS_FACTOR = 3.0


def contradiction(judged: Judged) -> str:
    """Why this series cannot be judged; "" if its figures agree."""
    return next(_all(judged), "")


def _all(judged: Judged) -> Iterator[str]:
    yield from _named(judged)
    yield from _outcome(judged)
    yield from _clip(judged)
    for step in judged.steps:
        named = f"with {step.sessions} session{'' if step.sessions == 1 else 's'}: " if step.sessions else ""
        for why in _step(judged, step):
            yield f"{named}{why}"


def _named(judged: Judged) -> Iterator[str]:
    """Sentences on kinds and presets that do not exist. An unknown codec is allowed, it only has no rate."""
    if not judged.kind or not judged.codec:
        yield f"its {'codec' if judged.kind else 'kind'} is not recorded: what ran is not known"
    elif judged.kind not in KINDS:
        yield f"there is no series of the kind {judged.kind:.20}"
    elif judged.preset and judged.kind in PRESET_KINDS and judged.preset not in PRESETS:
        yield f"NVENC has no preset {judged.preset:.20}"


def _outcome(judged: Judged) -> Iterator[str]:
    outcome, delivered = judged.series.outcome, bool(judged.delivered)
    line = f" ({judged.decisive})" if judged.decisive else ""
    died = any(isinstance(step.died, Missing) or step.died for step in judged.steps)
    if outcome == "failed" and delivered:
        yield f"it ended as failed{line}, but delivered frames"
    unread = all(isinstance(step.fps, Missing) and step.fps.reason == "not_recorded" for step in judged.steps)
    lacking = "steps" if not judged.steps else "frames a second" if unread else ""
    if outcome == "completed" and not delivered and lacking:
        yield f"its {lacking} are not recorded"
    elif outcome == "completed" and not delivered:
        yield f"it ended as completed{line}, but no session delivered a frame"
    if outcome in ("not_built", "not_run", "no_time") and judged.steps:
        yield f"the probe reports that it did not run ({outcome}), but there are figures of it"
    if outcome == "completed" and delivered and judged.decisive and not died:
        yield f"no session died, and yet there is a line why{line}"


def _clip(judged: Judged) -> Iterator[str]:
    series, clip = judged.series, judged.series.clip
    size = (series.width, series.height)
    wanted = SIZES[judged.codec.endswith(LARGER)]
    if None in size and size != (None, None) and not judged.published:
        yield f"the {'height' if series.width else 'width'} of its pictures is not recorded"
    elif size not in (wanted, (None, None)) and not judged.published:
        yield f"the clips of the probe are {wanted[0]}x{wanted[1]}, and {series.width}x{series.height} is recorded"
    if not isinstance(clip, Clip) or judged.published:
        return
    rate, asked, spec = clip.bit_rate_kbps, KBPS.get(clip.name), clips.SPECS.get(clip.name)
    if judged.kind in PARTS and not judged.own_clip:
        yield f"the clip {clip.name or '?'} is not the one of this series"
    if (clip.width, clip.height) not in (wanted, (None, None)):
        yield f"the clip is {clip.width}x{clip.height}, and the probe's are {wanted[0]}x{wanted[1]}"
    if spec and clip.codec and clip.codec != spec.codec:
        yield f"the clip is {clip.codec:.20}, and {clip.name} is {spec.codec}"
    if not isinstance(clip.fps, Missing) and clip.fps != clips.FPS:
        yield f"the clip has {clip.fps:g} pictures a second, and the probe's have {clips.FPS}"
    if asked and not isinstance(rate, Missing) and not asked / KBPS_FACTOR <= rate <= asked * KBPS_FACTOR:
        yield f"the clip has {rate:.0f} kbit/s, and {clip.name} is made with {asked}"


def _step(judged: Judged, step: Step) -> Iterator[str]:
    fps = positive(step.fps)
    if isinstance(step.fps, Missing) or step.fps < 0:
        yield "its frames a second are not recorded, or are no figure"
    if not step.sessions or step.sessions < 1:
        if not judged.published:
            yield "how many sessions ran is not recorded"
    elif not isinstance(step.died, Missing) and step.died is not None and not 0 <= step.died <= step.sessions:
        yield f"{step.died} sessions are reported as ended early"
    if step.died == 0 and step.died_because:
        yield f"no session died, and yet there is a line why ({step.died_because})"
    if fps:
        yield from _durations(judged, step, fps)
        yield from _engines(judged, step, fps)
    elif step.died == 0 and judged.delivered:
        yield "no session died, and none delivered a frame"
    yield from _surroundings(judged, step)


def _durations(judged: Judged, step: Step, fps: float) -> Iterator[str]:
    seconds = positive(step.seconds)
    if step.frames is None or not seconds:
        if not (judged.published and step.frames is None and isinstance(step.seconds, Missing)):
            yield "frames and seconds, by which the frames a second can be checked, are not recorded"
    elif seconds < SHORTEST_SECONDS:
        yield f"a steady state of {seconds:g} s is impossible"
    elif seconds > LONGEST_SECONDS or positive(step.start_seconds) > LONGEST_SECONDS:
        longest = max(seconds, positive(step.start_seconds))
        yield f"a step of {longest:g} s is recorded, and the probe ends after {LONGEST_SECONDS:g}"
    elif abs(step.frames / seconds - fps) > ROUNDED_PERCENT / 100 * fps + 1 / seconds:
        implied, recorded = apart(step.frames / seconds, fps, 0)
        yield f"{step.frames} frames in {seconds:g} s are {implied} fps, and {recorded} are recorded"
    each = [fps for fps in step.fps_each if fps is not None]
    if not step.fps_each:
        return
    died = step.died if isinstance(step.died, int) else 0
    if len(each) < len(step.fps_each) or (step.sessions and len(each) != step.sessions - died):
        yield f"there are frames a second of {len(each)} sessions"
    elif abs(sum(each) - fps) > ROUNDED_PERCENT / 100 * fps:
        together, recorded = apart(sum(each), fps, 0)
        yield f"the sessions' frames a second are {together} together, and {recorded} are recorded"


def _engines(judged: Judged, step: Step, fps: float) -> Iterator[str]:
    clock = judged.clock(step)
    highest = max(positive(judged.gpu.max_video_clock_mhz), float(judged.board.video_mhz or 0) if judged.board else 0.0)
    if not clock and judged.has_rates:
        yield f"{fps:.0f} fps, but the video clock, which is needed to judge them, is not recorded"
    if highest and clock > CLOCK_SLACK * highest:
        yield f"the video clock was {clock:.0f} MHz, and its highest is {highest:.0f}"
    fastest = max((session_fps for session_fps in step.fps_each if session_fps is not None), default=0.0)
    for engines in judged.bounds:
        name, used = f"{WORDS[engines.part]}s", engines.used(step)
        most = engines.most(clock, step.sessions) if clock else None
        if not isinstance(used, Missing) and not 0 <= used <= 100:
            yield f"the {name} are reported as {used:g} % busy"
        if most is None or engines.count == 0:
            continue
        reached = fps * judged.pixels
        if reached > most:
            several = (
                f"{engines.in_words()} and {step.sessions} sessions" if engines.count else f"{step.sessions} sessions"
            )
            shown, possible = apart(reached, most, 0)
            why = f"{shown} fps is more than {several} can do at {clock:.0f} MHz ({possible})"
            yield f"{why}: the measurement, or what the catalogue says of this GPU, is wrong"
        alone = engines.most(clock, 1)
        if alone is not None and fastest * judged.pixels > alone:
            shown, possible = apart(fastest * judged.pixels, alone, 0)
            yield f"one session alone has {shown} fps, and one {WORDS[engines.part]} gives {possible} at most"
        every = engines.most(clock, None)
        if not isinstance(used, Missing) and every and reached > (used + UTILISATION_SLACK) / 100 * every:
            yield f"{reached:.0f} fps, and yet the {name} were {used:.0f} % busy: something else made these frames"


def _surroundings(judged: Judged, step: Step) -> Iterator[str]:
    watts = judged.board.power_maximum_watts or judged.board.power_watts if judged.board else None
    limits: list[tuple[str, Figure, float]] = [
        ("CPU", step.cpu_percent, 100.0),
        ("wait for storage", step.io_wait_percent, 100.0),
        ("use of the GPU", step.gpu_utilization_percent, 100.0),
        ("use of the encoders", step.encoder_utilization_percent, 100.0),
        ("use of the decoders", step.decoder_utilization_percent, 100.0),
        ("power", step.power_watts, POWER_SLACK * watts if watts else 1e5),
    ]
    for name, value, most in (*limits, *_traffic(judged, step)):
        if not isinstance(value, Missing) and not 0 <= value <= most:
            yield f"{name} of {value:g} is recorded, and no machine has that"
    if positive(step.fps) and step.power_watts == 0:
        yield "power of 0 is recorded, and no GPU works without power"
    if not isinstance(step.temperature_c, Missing) and no_temperature(step.temperature_c, judged.board):
        yield f"temperature of {step.temperature_c:g} is recorded, and no machine has that"


def _traffic(judged: Judged, step: Step) -> Iterator[tuple[str, Figure, float]]:
    """(name, reading, maximum) of memory in use and of PCIe traffic, whose maximum is the read or the board's link."""
    gpu, board = judged.gpu, judged.board
    total = positive(gpu.memory_total_mib) or (board.memory_mib if board else None) or conditions.ANY_MEMORY_MIB
    yield "MiB of memory in use", step.memory_used_mib, total
    link = gpu.pcie if isinstance(gpu.pcie, Pcie) else Pcie()
    carries = Way(link.max_generation or link.generation, link.max_width or link.width).gb_per_s
    carries = carries or (Way(board.pcie_generation, board.pcie_width).gb_per_s if board else None)
    if is_chip_to_chip(board):
        carries = chip_to_chip_carries()
    most = PCIE_SLACK * 1000 * (carries or MOST_GB_PER_S)
    yield "MB/s to the GPU", step.pcie_to_gpu_mb_per_s, most
    yield "MB/s from the GPU", step.pcie_from_gpu_mb_per_s, most


# ---------------------------------------------------------------- latency and quality

AGAIN = "measure again: `gpuprep capacity HOST`"
# Pictures go in at the pace of a camera, and FFmpeg is ended so long after the last.
LONGEST_MS = 1000 * (latency.PICTURES / latency.FPS + latency.PATIENCE)
MOST_COUNTED = latency.PICTURES - latency.SETTLED
ROUNDED_MS = 0.01  # two digits are written
RATE_FACTOR = 3.0  # of the bits asked for; twice of it is what the encoder may give at most (-maxrate)
FAR_DB = 15.0  # of two different pictures: no encoder changes its input so much


def findings(values: Throughput) -> list[Finding]:
    """UNKNOWN for impossible or lost figures; FAIL if an encoder's pictures are not those of its input."""
    figure_findings = [
        _latency(measurement, why) for measurement in values.latency for why in [next(_time(measurement), "")] if why
    ]
    for measurement in values.quality:
        if why := next(_pictures(measurement), ""):
            figure_findings.append(_quality(measurement, Status.UNKNOWN, why, AGAIN))
        elif (psnr := known(measurement.psnr_db)) is not None and psnr < FAR_DB:
            why = f"a PSNR of {psnr:g} dB: the encoder's pictures are not those of its input"
            figure_findings.append(
                _quality(measurement, Status.FAIL, why, "encode a file by hand and look at it; show it to the provider")
            )
    return [*figure_findings, *_lost(values)]


def _latency(row: Latency, why: str) -> Finding:
    subject = " ".join(filter(None, ("latency", row.kind, row.codec, row.preset)))
    return Finding(subject, "ms", Status.UNKNOWN, "a possible time", _shown(row.median_ms, "ms"), why, AGAIN)


def _quality(row: Quality, status: Status, why: str, remedy: str) -> Finding:
    subject = " ".join(filter(None, ("quality", row.encoder or row.codec, row.preset)))
    return Finding(subject, "pictures", status, "possible figures", _shown(row.psnr_db, "dB"), why, remedy)


def _time(row: Latency) -> Iterator[str]:
    median, late = known(row.median_ms), known(row.p95_ms)
    for name, value in (("median", median), ("95th percentile", late)):
        if value is not None and not 0 < value <= LONGEST_MS:
            yield f"a {name} of {value:g} ms is recorded, and the probe waits {LONGEST_MS:g} ms at most"
    if median is not None and late is not None and late + ROUNDED_MS < median:
        yield f"a 95th percentile of {late:g} ms is below the median, {median:g} ms"
    if median is not None and late is None:
        yield "there is a median, and no 95th percentile of the same pictures"
    if median is not None and not latency.LEAST <= (row.frames or 0) <= MOST_COUNTED:
        yield f"{row.frames} pictures are counted, and the probe counts {latency.LEAST} to {MOST_COUNTED}"


def _pictures(row: Quality) -> Iterator[str]:
    yield from impossible_quality(known(row.psnr_db), known(row.xpsnr_db), lossy=True)
    rate, asked = known(row.bit_rate_kbps), known(row.asked_kbps)
    if asked is not None and asked != quality.KBPS:
        yield f"{asked:g} kbit/s were asked for, and the probe asks for {quality.KBPS}"
    if rate is not None and not 0 < rate <= RATE_FACTOR * quality.KBPS:
        yield f"{rate:g} kbit/s came out, and {quality.KBPS} were asked for"
    if rate is not None and not row.frames:
        yield "how many pictures were encoded is not recorded"
    if row.encoder not in (f"{row.codec}_nvenc", SOFTWARE.get(row.codec)):
        yield f"the encoder {row.encoder or '?':.20} is not one of {row.codec or '?':.20}"
    elif row.encoder.endswith("_nvenc") and row.preset not in PRESETS:
        yield f"NVENC has no preset {row.preset or '?':.20}"


def _lost(values: Throughput) -> list[Finding]:
    """UNKNOWN if latency or quality is missing: a run of `gpuprep capacity` lists both, even if they failed."""
    if not values.capacity or values.published:
        return []
    done = {(series.kind, series.codec, series.preset) for series in values.series if series.outcome == "completed"}
    encoded = any(kind in ("encode", "software") and "-" not in codec for kind, codec, _ in done)
    wanted: list[tuple[str, Sequence[object], bool]] = [
        ("latency", values.latency, bool(latency.chosen(done))),
        ("quality", values.quality, encoded),
    ]
    nothing = Missing("not_recorded", "the record says that the run measured it")
    return [
        unknown("throughput", what, nothing, expected="recorded", what=f"the {what}", remedy=AGAIN)
        for what, listed, due in wanted
        if due and not listed
    ]


def _shown(value: Figure, unit: str) -> str:
    return "not recorded" if isinstance(value, Missing) else f"{value:g} {unit}"
