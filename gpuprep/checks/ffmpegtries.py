"""What of a command can FFmpeg itself try, on a made picture and without a GPU, and what do its answers mean? Pure.

    of(asked, known)              a Try for each filter in the computer's memory, and for each encoder with its options
    settle(asked, tries, ends)    adds to `asked.answers` what FFmpeg refused; takes away what it cleared

No file, folder or network is in the words of a Try: filters and options that have one are left out.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from gpuprep.agent.video.ffmpegerrors import PREFIX
from gpuprep.catalogue import ffmpeg
from gpuprep.checks.ffmpegcommand import NAME, Asked, File, Link, graphs, links, pieces
from gpuprep.checks.ffmpegoptions import encoders_of, of_another
from gpuprep.records import Status

PICTURE, SOUND = "color=s=3840x2160:r=25:d=0.04", "anullsrc=r=48000:cl=stereo:d=0.1"
# A backslash or a bracket could be read otherwise by FFmpeg than by us, and bring in another filter.
ONE_FILTER = re.compile(r"(?:[^'\\\[\],;\n]|'[^'\\]*')*")
OF_FILES = re.compile(
    r"file|path|url|log|stats|dump|plot|model|plugin|script|params|opts|(?<![a-z])(?:key|iv)(?![a-z])"
)
MOST_LETTERS = 4000  # of a filter or an option that is tried
# FFmpeg's words for a name or a value that it does not take, whatever the pictures are.
REFUSED = re.compile(
    r"Option '?[^']{1,99}'? not found|Undefined constant or missing|Unable to parse|Error setting option|Error parsing"
    r"|Error setting preset|Error when evaluating|out of range \[|Unrecognized option|Invalid chars"
    r"|Missing '\)'|Unknown function|Invalid size|Unable to find color|Cannot find color"
)
# NVENC reads its options before it looks for a GPU, and none is to be seen.
WITHOUT_GPU = re.compile(
    r"libcuda\.so|libnvidia-encode|libnvcuvid|cuInit|CUDA_ERROR|no CUDA-capable device|No capable devices"
)


@dataclass(frozen=True)
class Try:
    """Words for FFmpeg, and what of the command they are: ("filter", "eq"), with the options in them."""

    kind: str
    name: str
    where: str
    words: tuple[str, ...]
    options: frozenset[str]


def of(asked: Asked, known: Collection[str]) -> list[Try]:
    """`known`: FFmpeg's filters; others may open what they like."""
    tries = [one for text, where in graphs(asked) for chain in links(text) for link in chain
             if (one := _filter(link, where, known)) is not None]  # fmt: skip
    tries += [one for file in asked.outputs for one in _encoders(file)]
    return list({one.words: one for one in tries}.values())


def settle(asked: Asked, tries: Sequence[Try], ends: Sequence[tuple[int, str]]) -> None:
    """`ends`: exit code and words of FFmpeg for the first of the tries."""
    clear = 0
    for one, (code, text) in zip(tries, ends, strict=False):
        lines = [PREFIX.sub("", line.strip()) for line in text.splitlines()]
        line = next((line for line in lines if REFUSED.search(line)), "")
        about = [answer for answer in asked.answers if answer.need.kind in ("option", "filter") and (
            answer.need.name == one.name or answer.need.name.lstrip("-").split(":")[0] in one.options)]  # fmt: skip
        if line and all(answer.status is not Status.FAIL for answer in about):
            topic = "filter" if one.kind == "filter" else "encoder"
            asked.say(Status.FAIL, one.kind, one.name, one.where, f"FFmpeg on the host says: {line[:200]}",
                      f"look it up there: ffmpeg -h {topic}={one.name}")  # fmt: skip
        answered = code == 0 or WITHOUT_GPU.search(text)
        clear += bool(line or answered)
        if not line and answered:
            asked.answers[:] = [
                answer for answer in asked.answers if answer not in about or answer.status is not Status.UNKNOWN
            ]
    if tries:
        asked.note(
            f"the host's FFmpeg tried {len(tries)} filters and encoders on a made picture, and {clear} gave an answer"
        )


def _filter(link: Link, where: str, known: Collection[str]) -> Try | None:
    """The filter alone, between made pictures (or sound) and nothing."""
    data = ffmpeg.commands()["filters"]
    name = link.name
    if name not in known or name in data["files"] or name in data["gpu"] or name in data["unclear"]:
        return None
    if re.search(r"^hw|src$|sink$|_(?:cuda|npp)$", name) or of_another(name):
        return None
    parts = [
        part for part in pieces(link.arguments, ":") if not OF_FILES.search(part.partition("=")[0]) or "=" not in part
    ]
    given = ":".join(parts)
    if (
        not ONE_FILTER.fullmatch(given)
        or len(given) > MOST_LETTERS
        or any(part.lstrip().startswith("/") for part in parts)
    ):
        return None
    source = SOUND if name in data["audio"] else PICTURE
    takes = range(max(len(link.takes), 2 if name in data["two_inputs"] else 1))
    gives = "".join(f"[o{at}]" for at in range(max(len(link.gives), 1)))
    graph = "".join(f"{source}[i{at}];" for at in takes) + "".join(f"[i{at}]" for at in takes)
    graph += f"{name}{'=' if given else ''}{given}{gives}"
    maps = [word for label in re.findall(r"\[o\d+\]", gives) for word in ("-map", label)]
    return Try("filter", name, f"{where} {name}={link.arguments}", ("-filter_complex", graph, *maps), frozenset())


def _encoders(file: File) -> Iterator[Try]:
    """Each named encoder of an output with the options that may be its own."""
    program = ffmpeg.commands()["program"]
    ours = {*(one for key in ("switches", "plain", "input", "output", "both", "general") for one in program[key])}
    ours -= {"b", "profile", "level"}
    for kind, stream, encoder in encoders_of(file):
        if encoder == "copy" or kind not in ("video", "audio") or not NAME.fullmatch(encoder) or of_another(encoder):
            continue
        options: dict[str, str] = {}
        for name, value in file.options:
            base, _, own = name.partition(":")
            if base in ours or base.removeprefix("no") in ours or OF_FILES.search(base) or len(value) > MOST_LETTERS:
                continue
            if NAME.fullmatch(base) and (own in ("", kind[0], stream) or not stream):
                options[base] = value
        words = [word for base, value in options.items() for word in (f"-{base}", value)]
        source = SOUND if kind == "audio" else PICTURE
        yield Try("encoder", encoder, f"-c:{kind[0]} {encoder}",
                  ("-filter_complex", f"{source}[o]", "-map", "[o]", f"-c:{kind[0]}", encoder, *words),
                  frozenset(options))  # fmt: skip
