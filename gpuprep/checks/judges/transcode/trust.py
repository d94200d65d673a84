"""gpuprep's own requirements for a transcode, and whether the record of a transcode is possible.

A record contains the needs of its case and the expectations for its outputs. But it is judged by gpuprep's own table of
cases, because a record could contain wrong tolerances.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

from gpuprep.agent.probes.transcodecases import BY_ID
from gpuprep.agent.probes.transcodecases import Case as Planned
from gpuprep.agent.probes.transcodeproof import IDENTICAL_DB, expected
from gpuprep.agent.video import clips
from gpuprep.agent.video.ffmpegerrors import cause
from gpuprep.checks.plausible import impossible_quality
from gpuprep.records import Missing
from gpuprep.records.evidence import Figure
from gpuprep.records.evidence.transcode import Case, Expected, Number, Output, Transcode

RAN = ("completed", "failed", "timed_out")
EXACT_DB = 60.0  # what a case asks for that must agree to the last bit
SHORTEST_SECONDS = 0.03
PATIENCE_SECONDS = 10.0  # until a case that was stopped has ended
MOST_FPS = 100_000.0  # of 1080p: ten times what the engines of any board give together
BITS_SLACK, SOUND_KBPS, CONTAINER_KBIT = 1.3, 150, 400  # what a file may have beside its pictures
NEAR_SSIM, FAR_DB = 0.95, 50.0


def planned(case: Case) -> Planned | None:
    """gpuprep's own case of this name."""
    return BY_ID.get(case.id)


@cache
def wanted(case: Planned) -> Mapping[str, Expected]:
    """Output's name ► expected properties, with the clips that gpuprep makes."""
    inputs = {item.file: _clip(item.clip, item.seconds) for item in case.inputs}
    return {output.file: Expected(**expected(output, case, inputs)) for output in case.outputs}


def _clip(name: str, seconds: float | None) -> clips.Clip:
    spec = clips.SPECS[name]
    times = 1 if seconds is None else max(1, math.ceil(seconds * clips.FPS / spec.frames))
    frames = spec.frames * times
    return clips.Clip(
        name, Path(name), spec.codec, spec.width, spec.height, spec.pixel_format, frames, frames / clips.FPS
    )  # fmt: skip


def inputs(values: Transcode) -> str:
    """Why the inputs are not gpuprep's own clips; "" if they are, or if they are not recorded."""
    for row in values.inputs:
        spec = clips.SPECS.get(row.name)
        if not row.name:
            return "the name of an input is not recorded"
        if spec is None:
            return f"gpuprep makes no input {row.name}"
        if row.codec and (row.frames is None or isinstance(row.fps, Missing)):
            lacking = "how many frames" if row.frames is None else "how many frames a second"
            return f"{lacking} input {row.name} has is not recorded"
        seen = {"codec": row.codec, "width": row.width, "height": row.height, "fps": row.fps}
        own = {"codec": spec.codec, "width": spec.width, "height": spec.height, "fps": clips.FPS}
        wrong = [key for key, value in own.items() if seen[key] != value and seen[key] not in (None, "")]
        if row.codec and (wrong or not row.frames or row.frames % spec.frames):
            return f"the {(wrong or ['frames'])[0]} of input {row.name} is not that of gpuprep's"
    return ""


def contradiction(case: Case, every: Mapping[str, Case]) -> str:
    """Why this case cannot be judged; "" if its record is consistent."""
    own = planned(case)
    if own is None:
        return (
            "gpuprep has no such case, so its correct result is not known"
            if case.id != Case().id
            else "its id is not recorded"
        )
    return next(_all(case, own, every), "")


def other_needs(case: Case, own: Planned) -> str:
    """Why the recorded case is not gpuprep's, which needs other parts of FFmpeg and the GPU; "" if it is."""
    if isinstance(case.needs, Missing):
        return "what it needs of FFmpeg and of the GPU is not recorded (needs): it may be another command"
    have = [case.needs.capabilities, case.needs.lines, case.needs.encoders, case.needs.decoders, case.needs.filters]
    for names, needed in zip(
        have, (own.capabilities, own.announcements, own.encoders, own.decoders, own.filters), strict=True
    ):
        recorded = () if isinstance(names, Missing) else names
        if sorted(recorded) != sorted(needed):
            says, knows = ((", ".join(each) or "nothing") for each in (recorded, needed))
            return f"the record says that it needs {says}, and gpuprep's case needs {knows}: another command was run"
    return ""


def _all(case: Case, own: Planned, every: Mapping[str, Case]) -> Iterator[str]:
    yield from _ending(case, own)
    if case.outcome == "refused":
        yield from _refused(case, own, every)
    if case.outcome == "completed":
        yield from _outputs(case, own)
    yield from _proof(case)


def _ending(case: Case, own: Planned) -> Iterator[str]:
    code, outcome, line = case.exit_code, case.outcome, case.decisive_line
    if outcome == "completed" and code != 0:
        ended = "no exit code is recorded" if code is None else f"FFmpeg ended with {code}"
        yield f"the probe reports that it completed, but {ended}"
    if outcome == "completed" and (line or case.missing_parts):
        yield f"the probe reports that it completed, but there is a reason why not ({line or case.missing_parts[0]})"
    if outcome == "failed" and code == 0:
        yield "the probe reports that it failed, but FFmpeg ended with 0"
    if outcome == "failed" and code is None and (explained := cause(line)) is not None and explained.denies:
        yield f"FFmpeg's message is recorded ({line}), but not its exit code"
    if outcome in ("not_built", "not_run", "refused") and code is not None:
        yield f"the probe reports that it did not run ({outcome}), but FFmpeg ended with {code}"
    if outcome == "not_built" and not case.missing_parts:
        yield "a part of FFmpeg is reported as missing, but not which"
    if outcome in RAN and isinstance(case.seconds, Missing):
        yield "how long it took is not recorded"
    elif outcome == "completed" and not isinstance(case.seconds, Missing) and case.seconds < SHORTEST_SECONDS:
        yield f"it is reported to have taken {case.seconds:g} s; FFmpeg needs longer to open the GPU"
    if not isinstance(case.seconds, Missing) and case.seconds > own.timeout_seconds + PATIENCE_SECONDS:
        taken, most = f"{case.seconds:g} s", f"{own.timeout_seconds:g} s"
        yield f"it is reported to have taken {taken}, but the probe stops a case after {most}"


def _refused(case: Case, own: Planned, every: Mapping[str, Case]) -> Iterator[str]:
    """Contradictions of a case that was not run because its encoder was refused: such a refused case must exist."""
    other = every.get(case.refused_in)
    theirs = None if other is None else planned(other)
    if other is None or theirs is None or other.outcome != "failed" or not other.exit_code:
        yield f"it was not run because case {case.refused_in or '?'} was refused, but the record has no such refusal"
        return
    explained = cause(other.decisive_line)
    if theirs.encoders != own.encoders or explained is None or explained.denies != "nvenc":
        yield f"it was not run because case {other.id} was refused, but this case does not need what was refused"
    elif other.decisive_line != case.decisive_line:
        yield f"it was not run because case {other.id} was refused, but with another line"


def _outputs(case: Case, own: Planned) -> Iterator[str]:
    names = [output.name for output in case.outputs]
    files = [output.file for output in own.outputs]
    if names and sorted(names) != sorted(files):
        yield f"outputs {', '.join(names)} are recorded, and the case makes {', '.join(files)}"
        return
    asks = wanted(own)
    for output in case.outputs:
        for why in _output(output, asks[output.name]):
            yield f"{output.name}: {why}"
    pixels = sum((_number(asks[name].frames) or 0) * _area(asks[name]) for name in names)
    if not isinstance(case.seconds, Missing) and case.seconds > 0:
        fps = pixels / case.seconds / (1920 * 1080)
        if fps > MOST_FPS:
            yield f"its pictures in {case.seconds:g} s are {fps:.0f} fps of 1080p: no engines are so fast"


def _area(asked: Expected) -> float:
    return (_number(asked.width) or 0) * (_number(asked.height) or 0)


def _output(output: Output, asked: Expected) -> Iterator[str]:
    psnr, ssim, xpsnr = (_number(value) for value in (output.psnr_db, output.ssim, output.xpsnr_db))
    floor = _number(asked.psnr_db)
    yield from impossible_quality(psnr, xpsnr, lossy=floor is None or floor < EXACT_DB)
    if ssim is not None and not -1 <= ssim <= 1:
        yield f"an SSIM of {ssim:g} is recorded, and more than 1 is impossible"
    if psnr is not None and psnr >= IDENTICAL_DB and ssim is not None and ssim < 1:
        yield f"identical pictures (PSNR) are reported with an SSIM of {ssim:g}"
    if psnr is not None and ssim is not None and psnr > FAR_DB and ssim < NEAR_SSIM:
        yield f"PSNR {psnr:g} dB and SSIM {ssim:g} are of different pictures"
    yield from _lengths(output)


def _lengths(output: Output) -> Iterator[str]:
    seconds, rate, size = (_number(value) for value in (output.duration_seconds, output.bit_rate_kbps, output.bytes))
    if size == 0 or rate == 0:
        yield "an output of 0 bits is recorded"
    if seconds and rate and size:
        written = size * 8 / 1000
        if written < 0.9 * rate * seconds:
            yield f"{size:.0f} bytes are less than {rate:g} kbit/s for {seconds:g} s"
        if written > BITS_SLACK * (rate + SOUND_KBPS) * seconds + CONTAINER_KBIT:
            yield f"{size:.0f} bytes are more than {rate:g} kbit/s and audio for {seconds:g} s"
    for name, value in (("black", _number(output.black_seconds)), ("frozen", _number(output.frozen_seconds))):
        if value is not None and (value < 0 or (seconds and value > seconds + 1)):
            yield f"{value:g} s are reported as {name}"


def _proof(case: Case) -> Iterator[str]:
    if isinstance(case.gpu_proof, Missing):
        return
    for name, percent in (
        ("encoders", case.gpu_proof.encoder_utilization_percent),
        ("decoders", case.gpu_proof.decoder_utilization_percent),
    ):
        if percent is not None and not 0 <= percent <= 100:
            yield f"the {name} are reported as {percent:g} % busy"


def _number(value: Number | Figure) -> float | None:
    return float(value) if isinstance(value, (int, float)) else None
