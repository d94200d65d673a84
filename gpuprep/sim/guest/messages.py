"""Prints what ffmpeg's CUDA parts print on stderr, at their log levels."""

from __future__ import annotations

import re
import sys

from gpuprep.sim.guest import mapping
from gpuprep.sim.guest.commandline import Command
from gpuprep.sim.guest.mapping import Encode, Plan

LEVELS = {
    "quiet": -8,
    "panic": 0,
    "fatal": 8,
    "error": 16,
    "warning": 24,
    "info": 32,
    "verbose": 40,
    "debug": 48,
    "trace": 56,
}
INFO = 32
ADDRESS = 0x55D0C8A1B2C0
LARGEST = 4096  # of NVDEC's H.264 on Volta and newer; 8192 for the other codecs
# Lines of the software encoders themselves, which a real run has not.
FOREIGN = re.compile(r"^(\[(libx26[45]|libsvtav1|SVT) ?[^\]]*\]|x265 \[|Svt\[)")
BUFFER = re.compile(r"(graph -?\d+ input from stream .*?)\b(?:pix)?fmt:\w+")


def level(command: Command) -> int:
    """The log level; names and numbers, "repeat+verbose" and the like."""
    named = (command.value("v", "loglevel") or "info").split("+")[-1]
    return LEVELS.get(named, int(named) if named.lstrip("-").isdigit() else INFO)


def say(place: str, text: str) -> None:
    """A line of `place` ("" of none)."""
    address = ADDRESS + sum(map(ord, place)) * 64
    sys.stderr.write(f"[{place} @ {address:#x}] {text}\n" if place else f"{text}\n")
    sys.stderr.flush()


def announce(plan: Plan) -> None:
    """What is said at -v verbose before the first frame."""
    for decode in plan.decodes:
        if decode.decoder:
            say(decode.decoder, f"CUVID capabilities for {decode.decoder}:")
            say(
                decode.decoder,
                f"8 bit: supported: 1, min_width: 48, max_width: {LARGEST}, min_height: 16, max_height: {LARGEST}",
            )
        else:
            codec = decode.media.codec
            say(codec, "NVDEC capabilities:")
            say(codec, "format supported: yes, max_mb_count: 65536")
            say(codec, f"min_width: 48, max_width: {LARGEST}")
            say(codec, f"min_height: 16, max_height: {LARGEST}")
    for encode in plan.encodes:
        for line in _features(encode):
            say(encode.encoder, line)


def _features(encode: Encode) -> list[str]:
    options = {name.replace("_", "-"): value for name, value in encode.options.items()}
    lines = []
    if options.get("spatial-aq", "0") not in ("0", "false"):
        lines.append("AQ enabled.")
    if options.get("temporal-aq", "0") not in ("0", "false"):
        lines.append("Temporal AQ enabled.")
    depth = options.get("rc-lookahead", "0")
    if depth not in ("0", "-1"):
        lines.append(f"Lookahead enabled: depth {depth}, scenecut enabled, B-adapt enabled.")
    return lines


def rewritten(line: str, plan: Plan) -> str | None:
    """A line of the software ffmpeg as the real one would say it; None for one that it would not say."""
    if FOREIGN.match(line):
        return None
    for encode in plan.encodes:
        line = line.replace(mapping.ENCODERS[encode.encoder][1], encode.encoder)
    line = line.replace("(libdav1d)", "(native)")
    for decode in plan.decodes:
        if decode.decoder:
            line = line.replace(f"({decode.media.codec} (native)", f"({decode.media.codec} ({decode.decoder})")
    if any(decode.on_gpu for decode in plan.decodes):
        line = BUFFER.sub(r"\1pixfmt:cuda", line)
    return line
