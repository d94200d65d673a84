"""Is the output of a transcode as expected (the file and its pictures), and did the GPU make it?"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Sequence
from typing import Union

from gpuprep.agent.probes.transcodecases import Case as Planned
from gpuprep.checks.common import unknown
from gpuprep.checks.judges.transcode import trust
from gpuprep.records import Finding, Missing, Status
from gpuprep.records.evidence.transcode import NOT_ASKED, Case, Expected, GpuProof, Output

DURATION_SECONDS = 0.1  # an AAC frame is 21 ms, and a container rounds
BIT_RATE_PERCENT = 20.0
BLACK_SECONDS = FROZEN_SECONDS = 0.0
# Who did the work, of a command that ended well. "NVDEC capabilities:" alone comes before a refusal, too.
NVENC_USED = re.compile(r"-> .*\(\w+_nvenc\)|Nvenc initialized successfully")
NVDEC_USED = re.compile(r"format supported: yes|CUVID capabilities for|pix_?fmt: ?cuda")
NVDEC_LEFT = re.compile(r"Failed setup for format cuda")
Reading = Union[str, int, float, Missing, None]
Agrees = Callable[[Reading, Reading], bool]
REMEDY = "run the case's command by hand on the host, look at what FFmpeg says, and report it with the record"


def findings(subject: str, case: Case, own: Planned) -> list[Finding]:
    """Findings on a case that FFmpeg ended with 0, which alone proves nothing. `own`: gpuprep's own case."""
    asked = trust.wanted(own)
    outputs = [dataclasses.replace(output, expected=asked[output.name]) for output in case.outputs]
    if not outputs:
        absent = Missing("not_recorded", "no output is described")
        return [unknown(subject, "output", absent, expected="as asked for")]
    wrong = [finding for output in outputs for finding in _output(subject, output)]
    wrong += _ranks(subject, outputs)
    if not wrong:
        wrong = [Finding(subject, "output", Status.PASS, "as asked for", _summary(outputs))]
    quality = [finding for output in outputs for finding in _quality(subject, output)]
    if not quality:
        quality = [Finding(subject, "pictures", Status.PASS, _floors(outputs), _lowest(outputs))]
    return [*wrong, *quality, *_gpu(subject, case, own), *_warnings(subject, case)]


def _output(subject: str, output: Output) -> list[Finding]:
    """A finding for each property that is not as expected; [] if all are."""
    name = output.name
    if output.error:
        return [_wrong(subject, "output", name, "a file", output.error, f"{name}: {output.error}")]
    if isinstance(output.expected, Missing):
        what = f"what was asked for in {name}"
        return [unknown(subject, "output", output.expected, expected="as asked for", what=what, remedy=REMEDY)]
    return [
        finding
        for key, want, actual, agrees in _rows(output.expected, output)
        if want is not None or key == "audio"
        for finding in _compare(subject, key, name, want, actual, agrees)
    ]


def _rows(want: Expected, have: Output) -> list[tuple[str, Reading, Reading, Agrees]]:
    """(property, expected value, actual value, function that compares them) for each property."""
    rows: list[tuple[str, Reading, Reading, Agrees]] = [
        ("codec", want.codec, have.codec, _same),
        ("profile", want.profile, have.profile, _same),
        ("pixel_format", want.pixel_format, have.pixel_format, _same),
        ("width", want.width, have.width, _same),
        ("height", want.height, have.height, _same),
        ("frames", want.frames, have.frames, _same),
        ("audio", want.audio, have.audio, _same),
        ("bytes", want.bytes, have.bytes, _same),
        ("duration_seconds", want.duration_seconds, have.duration_seconds, _near),
        ("bit_rate_kbps", want.bit_rate_kbps, have.bit_rate_kbps, _rate),
        ("b_frames", want.b_frames, have.b_frames, _b_frames),
    ]
    return [row for row in rows if row[0] != "audio" or want.audio != NOT_ASKED]


def _compare(subject: str, key: str, name: str, expected: Reading, actual: Reading, agrees: Agrees) -> list[Finding]:
    words = key.replace("_", " ")
    if isinstance(expected, Missing):
        what = f"the {words} that {name} should have"
        return [unknown(subject, key, expected, expected="as asked for", what=what, remedy=REMEDY)]
    if isinstance(actual, Missing):
        return [unknown(subject, key, actual, expected=str(expected), what=f"the {words} of {name}", remedy=REMEDY)]
    if agrees(expected, actual):
        return []
    shown, want = ("none" if value is None else str(value) for value in (actual, expected))
    return [_wrong(subject, key, name, want, shown, f"{words} of {name} is {shown}, and {want} was asked for")]


def _wrong(subject: str, key: str, name: str, expected: str, actual: str, why: str) -> Finding:
    return Finding(subject, key, Status.FAIL, f"{name}: {expected}", actual, why, REMEDY)


def _same(expected: Reading, actual: Reading) -> bool:
    return expected == actual


def _near(expected: Reading, actual: Reading) -> bool:
    return _off(expected, actual) <= DURATION_SECONDS


def _rate(expected: Reading, actual: Reading) -> bool:
    return isinstance(expected, (int, float)) and _off(expected, actual) <= expected * BIT_RATE_PERCENT / 100


def _off(expected: Reading, actual: Reading) -> float:
    """The difference; infinite if one of the two is not a number."""
    both = isinstance(expected, (int, float)) and isinstance(actual, (int, float))
    return abs(float(actual) - float(expected)) if both else math.inf  # type: ignore[arg-type]


def _b_frames(expected: Reading, actual: Reading) -> bool:
    return isinstance(actual, int) and (actual > 0) == (expected == "present")


def _number(reading: Reading) -> float | None:
    return reading if isinstance(reading, (int, float)) else None


def _asked(output: Output) -> Expected:
    return Expected() if isinstance(output.expected, Missing) else output.expected


def _ranks(subject: str, outputs: Sequence[Output]) -> list[Finding]:
    """A finding if several bit rates of one command do not rise as requested: single ones need longer clips."""
    pairs = [(_number(_asked(output).asked_kbps), _number(output.bit_rate_kbps)) for output in outputs]
    rows = [(asked, rate) for asked, rate in pairs if asked is not None and rate is not None]
    rates = [rate for _, rate in sorted(rows, key=lambda row: row[0])]
    if rates == sorted(rates):
        return []
    shown = ", ".join(f"{asked} ► {rate}" for asked, rate in rows)
    why = f"a higher bit rate was requested and a lower bit rate came out (kbit/s): {shown}"
    return [_wrong(subject, "bit_rate_kbps", "outputs", "rates rise as asked", shown, why)]


def _quality(subject: str, output: Output) -> list[Finding]:
    """Findings if pictures differ from the source, are black or frozen."""
    name, expected = output.name, _asked(output)
    if output.error:
        return []
    floors = (("psnr_db", output.psnr_db, expected.psnr_db), ("ssim", output.ssim, expected.ssim))
    limits = (("black_seconds", output.black_seconds, BLACK_SECONDS),
              ("frozen_seconds", output.frozen_seconds, FROZEN_SECONDS))  # fmt: skip
    findings = []
    for key, actual, floor in floors:
        least = _number(floor)  # None: a feature lowers it by design
        if least is not None:
            findings += _compare(subject, key, name, f"≥{least:g}", actual, _at_least(least))
    for key, actual, limit in limits:
        findings += _compare(subject, key, name, f"≤{limit:g}", actual, _at_most(limit))
    return findings


def _at_least(floor: float) -> Agrees:
    return lambda _, actual: isinstance(actual, (int, float)) and actual >= floor


def _at_most(limit: float) -> Agrees:
    return lambda _, actual: isinstance(actual, (int, float)) and actual <= limit


def _gpu(subject: str, case: Case, own: Planned) -> list[Finding]:
    """Whether FFmpeg's lines prove that the GPU was used: a fall back to software also ends with 0."""
    capabilities, lines, proof = own.capabilities, own.announcements, case.gpu_proof
    engines = {name.partition(".")[0] for name in capabilities}
    expected = " and ".join(sorted(name.upper() for name in engines)) or "the GPU"
    kept = () if isinstance(proof, Missing) else (proof.nvenc_lines, proof.nvdec_lines)
    needed = ("nvenc" in engines or bool(lines), "nvdec" in engines)
    if isinstance(proof, Missing) or any(isinstance(k, Missing) for k, used in zip(kept, needed, strict=True) if used):
        absent = Missing("not_recorded", "FFmpeg's lines were not kept")
        return [unknown(subject, "gpu", absent, expected=expected, what="whether the GPU did it")]
    nvenc, nvdec = (() if isinstance(each, Missing) else each for each in kept)
    why = []
    if "nvenc" in engines and not _any(NVENC_USED, nvenc):
        why.append("no line of FFmpeg shows that NVENC encoded")
    if "nvdec" in engines and (not _any(NVDEC_USED, nvdec) or _any(NVDEC_LEFT, nvdec)):
        why.append("no line of FFmpeg shows that NVDEC decoded: it fell back to software")
    for words in lines:
        if not any(words in line for line in nvenc):
            why.append(f'FFmpeg did not say "{words}": the feature was not used')
    shown = _use(proof)
    if not why:
        return [Finding(subject, "gpu", Status.PASS, expected, shown)]
    remedy = "see that FFmpeg is the one of the profile (ffmpeg -buildconf) and that no wrapper script replaces it"
    return [Finding(subject, "gpu", Status.FAIL, expected, shown, "; ".join(why), remedy)]


def _any(pattern: re.Pattern[str], lines: Sequence[str]) -> bool:
    return any(pattern.search(line) for line in lines)


def _use(proof: GpuProof) -> str:
    """NVML's utilisation in words. It is not judged, because a short case can end between two readings."""
    rows = (("encoder", proof.encoder_utilization_percent), ("decoder", proof.decoder_utilization_percent))
    seen = [f"{word} {percent:g} %" for word, percent in rows if percent is not None]
    return ", ".join(seen) or "by FFmpeg's lines; NVML gave no use of the engines"


def _warnings(subject: str, case: Case) -> list[Finding]:
    """FAIL for an option that FFmpeg accepted but did not use."""
    warnings = case.warnings
    if isinstance(warnings, Missing):
        what = "whether FFmpeg used all options"
        return [unknown(subject, "options", warnings, expected="all used", what=what, remedy=REMEDY)]
    if not warnings:
        return []
    why = f'FFmpeg ended with 0 and ignored an option: "{warnings[0]}"'
    return [Finding(subject, "options", Status.FAIL, "all used", f"{len(warnings)} not used", why, REMEDY)]


def _summary(outputs: Sequence[Output]) -> str:
    first = outputs[0]
    codec, width, height, frames = (
        "?" if isinstance(value, Missing) else value for value in (first.codec, first.width, first.height, first.frames)
    )
    more = f" and {len(outputs) - 1} more" if len(outputs) > 1 else ""
    return f"{codec} {width}x{height}, {frames} frames{more}"


def _floors(outputs: Sequence[Output]) -> str:
    known = [floor for output in outputs if (floor := _number(_asked(output).psnr_db)) is not None]
    return f"PSNR ≥{min(known):g} dB, none black or frozen" if known else "none black or frozen"


def _lowest(outputs: Sequence[Output]) -> str:
    known = [figure for output in outputs if (figure := _number(output.psnr_db)) is not None]
    return f"PSNR {min(known):.1f} dB" if known else "not compared"
