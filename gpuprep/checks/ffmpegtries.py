"""What of a command can FFmpeg itself try, on test pictures and without a GPU, and what do its answers mean?

    of(asked, known)        a Try for each filter in the computer's memory, for each encoder with its options, and for
                            each graph of such filters as a whole
    settle(asked, tried)    adds to `asked.answers` what FFmpeg refused; takes away what it cleared

No file, folder or network is in the words of a Try: filters and options that have one are left out.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from gpuprep.agent.video.ffmpegerrors import PREFIX
from gpuprep.catalogue import ffmpeg
from gpuprep.checks.ffmpegcommand import FILTERS, NAME, Asked, File, Link, graphs, links, pieces
from gpuprep.checks.ffmpegoptions import encoders_of, of_another
from gpuprep.records import Status

PICTURE, SOUND = "color=s=3840x2160:r=25:d=0.04", "anullsrc=r=48000:cl=stereo:d=0.1"
# The inputs of a whole graph. Size, rate, pixel shape and planes of the real inputs are not known. If FFmpeg refuses a
# tiny picture (YUV) and a very large one (RGB), both with alpha, in the same words, the cause is not one of these. The
# large one has no frame: FFmpeg still links the graph, without the memory and the time.
INPUTS = (
    "color=s=64x64:r=25:d=0.04,format=yuva420p[out0];anullsrc=r=48000:cl=stereo:d=0.1[out1]",
    "nullsrc=s=16000x16000:r=30:d=0,format=gbrap,setsar=4/3[out0];anullsrc=r=44100:cl=mono:d=0.1[out1]",
)
MOST_INPUTS = 8  # of a graph that is tried
OF_INPUT = re.compile(r"\d(?::[va](?::0)?)?")  # a stream that each of these inputs has
LABEL = re.compile(r"[A-Za-z0-9_:]{1,64}")
# FFmpeg might read a backslash or a bracket differently from us, and so run another filter.
ONE_FILTER = re.compile(r"(?:[^'\\\[\],;\n]|'[^'\\]*')*")
OF_FILES = re.compile(
    r"(?<!pro)file|path|url|log|stats|dump|plot|model|plugin|script|params|opts|(?<![a-z])(?:key|iv)(?![a-z])"
)
SHAPES = {"video": {"pix_fmt": NAME}, "audio": {"ar": re.compile(r"\d{1,6}")}}  # that an encoder is asked to take
MOST_LETTERS = 4000  # of a filter or an option that is tried
# FFmpeg's messages for a name or a value that it refuses with any picture.
REFUSED = re.compile(
    r"Option '?[^']{1,99}'? not found|Error applying option|Could not set non-existent|Unable to parse"
    r"|Undefined constant or missing"
    r"|Error setting (?:option|preset)|Error parsing (?:option\b|a filter)|Error when evaluating|out of range \["
    r"|Unrecognized option|Invalid chars|Missing '\)'|Unknown function|Invalid size|(?:Unable to|Cannot) find color"
)
# Also its messages for an impossible link. The line before "Failed to configure" is the filter's own reason.
UNLINKED = re.compile(
    REFUSED.pattern + r"|Cannot find a matching stream|Cannot find an unused|matches no streams|has an unconnected"
    r"|was expected to have exactly 1 input|has output \d+ \([^)]*\) unconnected|not connected to any"
    r"|No \w+ pad can be associated|(?:Too many|Not enough) inputs|More \w+ link labels|Cannot connect (?:video|audio)"
    r"|Tried to connect|Media type mismatch|Impossible to convert between"
    r"|Unable to parse graph|cannot connect it to"
)
UNCONFIGURED = re.compile(r"Failed to configure \w+ pad on (Parsed_\w+)")
FILTER = re.compile(r"Parsed_([a-z0-9_]+)_\d+|(?:the|filter) [\"']([a-z0-9_]+)[\"']")
# An encoder's messages for a form of pictures or sound that it refuses.
UNENCODED = re.compile(REFUSED.pattern + r"|Error setting profile|Specified [\w ]+ is not supported|doesn't support")
# NVENC reads its options before it looks for a GPU; a try runs without one.
WITHOUT_GPU = re.compile(
    r"libcuda\.so|libnvidia-encode|libnvcuvid|cuInit|CUDA_ERROR|no CUDA-capable device|No capable devices"
)


@dataclass(frozen=True)
class Try:
    """Words for FFmpeg, and what of the command they are: ("filter", "eq"), with the options in them. Of a whole graph
    there are two `ways`, one for each of INPUTS, and `names` are its filters and labels.
    """

    kind: str
    name: str
    where: str
    ways: tuple[tuple[str, ...], ...]
    options: frozenset[str] = frozenset()
    names: frozenset[str] = frozenset()


def of(asked: Asked, known: Collection[str]) -> list[Try]:
    """`known`: FFmpeg's own filters; an unknown filter might open files."""
    tries = [one for text, where in graphs(asked) for chain in links(text) for link in chain
             if (one := _filter(link, where, known)) is not None]  # fmt: skip
    tries += [one for file in asked.outputs for one in _encoders(file)]
    tries += [
        one for text, where in graphs(asked) if (one := _graph(text, where, known, len(asked.inputs))) is not None
    ]
    return list({one.ways: one for one in tries}.values())


def settle(asked: Asked, tried: Sequence[tuple[Try, Sequence[tuple[int, str]]]]) -> None:
    """`tried`: each Try with the exit code and the words of FFmpeg for each of its ways."""
    clear = 0
    for one, ends in tried:
        refusals = {_refusal(text, one) for _, text in ends}
        line, prefix = refusals.pop() if len(refusals) == 1 else ("", "")
        kinds = ("option", "filter", *(("frames", "label") if one.names else ()))
        about = [answer for answer in asked.answers if answer.need.kind in kinds and (
            answer.need.name == one.name or answer.need.name.lstrip("-").split(":")[0] in one.options
            or answer.need.name in one.names)]  # fmt: skip
        if line and all(answer.status is not Status.FAIL for answer in about):
            name = one.name or next((a or b for a, b in FILTER.findall(f"{prefix} {line}")), "")
            remedy = f"look it up there: ffmpeg -h {one.kind}={name}"
            if one.names and not REFUSED.search(line):
                remedy = f"give {name} the inputs and outputs that it takes: ffmpeg -h filter={name}" if name else ""
            asked.say(one.kind, name, one.where, f"FFmpeg on the host says: {line[:200]}", remedy)
        answered = any(code == 0 or WITHOUT_GPU.search(text) for code, text in ends)
        clear += bool(line or answered)
        if not line and answered and not one.names:
            asked.answers[:] = [
                answer for answer in asked.answers if answer not in about or answer.status is not Status.UNKNOWN
            ]
    if tried:
        asked.note(
            f"the host's FFmpeg tried {len(tried)} filters, encoders and graphs on test pictures; {clear} of these "
            "tests gave a clear answer"
        )


def _refusal(text: str, one: Try) -> tuple[str, str]:
    """The line that says what FFmpeg refuses, and the name in front of it: ("Option 'x' not found", "Parsed_eq_1")."""
    words = UNLINKED if one.names else UNENCODED if one.kind == "encoder" else REFUSED
    unable = UNCONFIGURED.search(text) if one.names else None
    for line in map(str.strip, text.splitlines()):
        bare = PREFIX.sub("", line)
        if words.search(bare) or (unable and line.startswith(f"[{unable[1]} @")):
            return bare, line[1:].partition(" @")[0] if bare != line else ""
    return "", ""


def _words(link: Link, known: Collection[str]) -> tuple[str, bool] | None:
    """The filter as it is tried, and whether that is all of it; None for one that is not: it may not be known, work on
    the GPU or open files.
    """
    data = ffmpeg.commands()["filters"]
    name = link.name
    if name not in known or name in data["files"] or name in data["gpu"] or name in data["unclear"]:
        return None
    if re.search(r"^hw|sink$|_(?:cuda|npp)$", name) or of_another(name):
        return None
    all_parts = pieces(link.arguments, ":")
    parts = [part for part in all_parts if not OF_FILES.search(part.partition("=")[0]) or "=" not in part]
    given = ":".join(parts)
    if (
        not ONE_FILTER.fullmatch(given)
        or len(given) > MOST_LETTERS
        or any(part.lstrip().startswith("/") for part in parts)
    ):
        return None
    return f"{name}{'=' if given else ''}{given}", parts == all_parts


def _filter(link: Link, where: str, known: Collection[str]) -> Try | None:
    """The filter alone, between test pictures (or sound) and nothing."""
    data = ffmpeg.commands()["filters"]
    words = _words(link, known)
    if words is None or link.name.endswith("src"):
        return None
    source = SOUND if link.name in data["audio"] else PICTURE
    takes = range(max(len(link.takes), 2 if link.name in data["two_inputs"] else 1))
    gives = "".join(f"[o{at}]" for at in range(max(len(link.gives), 1)))
    graph = "".join(f"{source}[i{at}];" for at in takes) + "".join(f"[i{at}]" for at in takes) + words[0] + gives
    maps = [word for label in re.findall(r"\[o\d+\]", gives) for word in ("-map", label)]
    return Try(
        "filter", link.name, f"{where} {link.name}={link.arguments}".rstrip("="), (("-filter_complex", graph, *maps),)
    )


def _graph(text: str, where: str, known: Collection[str], inputs: int) -> Try | None:
    """The whole graph, on generated inputs; None if a part of it cannot be tried. It is rebuilt from the parsed graph,
    so FFmpeg runs exactly the filters that were checked.
    """
    data = ffmpeg.commands()["filters"]
    chains = links(text)
    every = [link for chain in chains for link in chain]
    given = [label for link in every for label in link.gives]
    taken = {label for link in every for label in link.takes}
    source, simple = where == "-f lavfi", where[1:].split(":")[0] in FILTERS
    if inputs > MOST_INPUTS or not every or not all(LABEL.fullmatch(label) for label in (*given, *taken)):
        return None
    if not simple and not all(label in given or OF_INPUT.fullmatch(label) for label in taken):
        return None
    shown: list[str] = []
    for chain in chains:
        steps = []
        for link in chain:
            words, whole = _words(link, known) or ("", False)
            if not whole and link.name not in data["in_place"]:
                return None
            takes, gives = ("".join(f"[{label}]" for label in labels) for labels in (link.takes, link.gives))
            steps.append(f"{takes}{words if whole else 'null'}{gives}")
        shown.append(",".join(steps))
    graph = ";".join(shown)
    kind = "a" if where.startswith(("-af", "-filter:a")) else "v"
    maps = [f"0:{kind}"] if simple else [f"[{label}]" for label in given if label not in taken]
    words_of = ("-f", "lavfi", "-i", graph) if source else (
        f"-filter:{kind}" if simple else "-filter_complex", graph, *(word for one in maps for word in ("-map", one))
    )  # fmt: skip
    made = [("-f", "lavfi", "-i", one) * (1 if simple else inputs) for one in INPUTS]
    names = frozenset((*(link.name for link in every), *(f"[{label}]" for label in (*given, *taken))))
    ways = (words_of,) if source else tuple((*one, *words_of) for one in made)
    return Try("filter", every[0].name if len(every) == 1 else "", f"{where} {text}", ways, frozenset(), names)


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
        for base, shape in SHAPES.get(kind, {}).items():
            value = file.last(base, f"{base}:{kind[0]}", f"{base}:{stream}")
            if value != "cuda" and shape.fullmatch(value):
                options[base] = value
        words = [word for base, value in options.items() for word in (f"-{base}", value)]
        source = SOUND if kind == "audio" else PICTURE
        yield Try("encoder", encoder, f"-c:{kind[0]} {encoder}",
                  (("-filter_complex", f"{source}[o]", "-map", "[o]", f"-c:{kind[0]}", encoder, *words),),
                  frozenset(options))  # fmt: skip
