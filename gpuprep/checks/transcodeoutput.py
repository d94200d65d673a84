"""What came out of a transcode against what must: the file, its pictures, and that the GPU made it. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gpuprep.checks.common import unknown
from gpuprep.records import Finding, Missing, Status

DURATION_SECONDS = 0.1  # an AAC frame is 21 ms, and a container rounds
BIT_RATE_PERCENT = 20.0
BLACK_SECONDS = FROZEN_SECONDS = 0.0
# Who did the work, of a command that ended well. "NVDEC capabilities:" alone comes before a refusal, too.
NVENC_USED = re.compile(r"-> .*\(\w+_nvenc\)|Nvenc initialized successfully")
NVDEC_USED = re.compile(r"format supported: yes|CUVID capabilities for|pix_?fmt: ?cuda")
NVDEC_LEFT = re.compile(r"Failed setup for format cuda")
PLAIN = ("codec", "profile", "pixel_format", "width", "height", "frames", "audio", "bytes")
REMEDY = "run the case's command by hand on the host, look at what FFmpeg says, and report it with the record"


def findings(subject: str, case: Mapping[str, Any]) -> list[Finding]:
    """Of a case that FFmpeg ended with 0: that alone proves nothing."""
    outputs = [output for output in case.get("outputs") or [] if isinstance(output, dict)]
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
    return [*wrong, *quality, *_gpu(subject, case), *_warnings(subject, case)]


def _output(subject: str, output: Mapping[str, Any]) -> list[Finding]:
    """One finding for each property that is not as expected; none where all are."""
    name = str(output.get("name"))
    if output.get("error"):
        return [_wrong(subject, "output", name, "a file", str(output["error"]), f"{name}: {output['error']}")]
    expected = output.get("expected") or {}
    found = []
    for key in PLAIN:
        if key in expected and (expected[key] is not None or key == "audio"):
            found += _compare(subject, key, name, expected[key], output.get(key, _NOT_RECORDED), _same)
    for key, near in (("duration_seconds", _near), ("bit_rate_kbps", _rate), ("b_frames", _b_frames)):
        if expected.get(key) is not None:
            found += _compare(subject, key, name, expected[key], output.get(key, _NOT_RECORDED), near)
    return found


_NOT_RECORDED = {"missing": "not_recorded", "detail": ""}


def _compare(
    subject: str, key: str, name: str, expected: Any, actual: Any, agrees: Callable[[Any, Any], bool]
) -> list[Finding]:
    words = key.replace("_", " ")
    if isinstance(actual, dict) and "missing" in actual:
        reading = Missing(str(actual["missing"]), str(actual.get("detail", "")))
        return [unknown(subject, key, reading, expected=str(expected), what=f"the {words} of {name}", remedy=REMEDY)]
    if agrees(expected, actual):
        return []
    shown, want = ("none" if value is None else str(value) for value in (actual, expected))
    return [_wrong(subject, key, name, want, shown, f"{words} of {name} is {shown}, and {want} was asked for")]


def _wrong(subject: str, key: str, name: str, expected: str, actual: str, why: str) -> Finding:
    return Finding(subject, key, Status.FAIL, f"{name}: {expected}", actual, why, REMEDY)


def _same(expected: Any, actual: Any) -> bool:
    return bool(expected == actual)


def _near(expected: Any, actual: Any) -> bool:
    return isinstance(actual, (int, float)) and abs(actual - expected) <= DURATION_SECONDS


def _rate(expected: Any, actual: Any) -> bool:
    return isinstance(actual, (int, float)) and abs(actual - expected) <= expected * BIT_RATE_PERCENT / 100


def _b_frames(expected: Any, actual: Any) -> bool:
    return isinstance(actual, int) and (actual > 0) == (expected == "present")


def _ranks(subject: str, outputs: Sequence[Mapping[str, Any]]) -> list[Finding]:
    """Several rates were asked for in one command, of clips too short to judge each: they must rise as asked."""
    pairs = [((output.get("expected") or {}).get("asked_kbps"), output.get("bit_rate_kbps")) for output in outputs]
    rows = [(asked, rate) for asked, rate in pairs if isinstance(asked, int) and isinstance(rate, (int, float))]
    rates = [rate for _, rate in sorted(rows, key=lambda row: row[0])]
    if rates == sorted(rates):
        return []
    shown = ", ".join(f"{asked} ► {rate}" for asked, rate in rows)
    why = f"more bits were asked for and fewer came out (kbit/s): {shown}"
    return [_wrong(subject, "bit_rate_kbps", "outputs", "rates rise as asked", shown, why)]


def _quality(subject: str, output: Mapping[str, Any]) -> list[Finding]:
    """Pictures near those of the source, none black, none frozen."""
    name = str(output.get("name"))
    if output.get("error"):
        return []
    expected = output.get("expected") or {}
    found = []
    if output.get("quality_judged", True):
        for key, floor in (("psnr_db", expected.get("psnr_db") or 30.0), ("ssim", expected.get("ssim") or 0.9)):
            found += _compare(subject, key, name, f"≥{floor:g}", output.get(key, _NOT_RECORDED), _at_least(floor))
    for key, limit in (("black_seconds", BLACK_SECONDS), ("frozen_seconds", FROZEN_SECONDS)):
        found += _compare(subject, key, name, f"≤{limit:g}", output.get(key, _NOT_RECORDED), _at_most(limit))
    return found


def _at_least(floor: float) -> Callable[[Any, Any], bool]:
    return lambda _, actual: isinstance(actual, (int, float)) and actual >= floor


def _at_most(limit: float) -> Callable[[Any, Any], bool]:
    return lambda _, actual: isinstance(actual, (int, float)) and actual <= limit


def _gpu(subject: str, case: Mapping[str, Any]) -> list[Finding]:
    """The GPU did it: FFmpeg's own lines say so. A fall back to software ends with 0 as well."""
    needs, proof = case.get("needs") or {}, case.get("gpu_proof")
    engines = {str(name).partition(".")[0] for name in needs.get("capabilities") or []}
    expected = " and ".join(sorted(name.upper() for name in engines)) or "the GPU"
    if not isinstance(proof, dict):
        absent = Missing("not_recorded", "FFmpeg's lines were not kept")
        return [unknown(subject, "gpu", absent, expected=expected, what="whether the GPU did it")]
    nvenc = [str(line) for line in proof.get("nvenc_lines") or []]
    nvdec = [str(line) for line in proof.get("nvdec_lines") or []]
    why = []
    if "nvenc" in engines and not _any(NVENC_USED, nvenc):
        why.append("no line of FFmpeg shows that NVENC encoded")
    if "nvdec" in engines and (not _any(NVDEC_USED, nvdec) or _any(NVDEC_LEFT, nvdec)):
        why.append("no line of FFmpeg shows that NVDEC decoded: it fell back to software")
    for words in needs.get("lines") or []:
        if not any(str(words) in line for line in nvenc):
            why.append(f'FFmpeg did not say "{words}": the feature was not used')
    shown = _use(proof)
    if not why:
        return [Finding(subject, "gpu", Status.PASS, expected, shown)]
    remedy = "see that FFmpeg is the one of the profile (ffmpeg -buildconf) and that nothing wraps it"
    return [Finding(subject, "gpu", Status.FAIL, expected, shown, "; ".join(why), remedy)]


def _any(pattern: re.Pattern[str], lines: Sequence[str]) -> bool:
    return any(pattern.search(line) for line in lines)


def _use(proof: Mapping[str, Any]) -> str:
    """NVML's word on it. A short case can end between two of its readings: it is shown, not judged."""
    rows = (("encoder", "encoder_utilization_percent"), ("decoder", "decoder_utilization_percent"))
    seen = [f"{word} {proof[key]:g} %" for word, key in rows if isinstance(proof.get(key), (int, float))]
    return ", ".join(seen) or "by FFmpeg's lines; NVML gave no use of the engines"


def _warnings(subject: str, case: Mapping[str, Any]) -> list[Finding]:
    """An option that FFmpeg accepted and did not use."""
    said = [str(line) for line in case.get("warnings") or []]
    if not said:
        return []
    why = f'FFmpeg ended with 0 and ignored an option: "{said[0]}"'
    return [Finding(subject, "options", Status.FAIL, "all used", f"{len(said)} not used", why, REMEDY)]


def _summary(outputs: Sequence[Mapping[str, Any]]) -> str:
    first = outputs[0]
    more = f" and {len(outputs) - 1} more" if len(outputs) > 1 else ""
    return f"{first.get('codec')} {first.get('width')}x{first.get('height')}, {first.get('frames')} frames{more}"


def _floors(outputs: Sequence[Mapping[str, Any]]) -> str:
    floors = [(output.get("expected") or {}).get("psnr_db") for output in outputs]
    known = [floor for floor in floors if isinstance(floor, (int, float))]
    return f"PSNR ≥{min(known):g} dB, none black or frozen" if known else "none black or frozen"


def _lowest(outputs: Sequence[Mapping[str, Any]]) -> str:
    figures = [output.get("psnr_db") for output in outputs]
    known = [figure for figure in figures if isinstance(figure, (int, float))]
    return f"PSNR {min(known):.1f} dB" if known else "not compared"
