"""Replaces the CUDA filters of filter graphs by software filters.

Where pictures are (GPU or not) is followed through each chain, so that a graph which a real ffmpeg refuses is refused.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Optional

from gpuprep.sim.guest.commandline import words

# The filters that a GPU and a CPU frame pass alike.
EITHER = words("""
    null fps split asplit settb setpts trim select framestep setdar setsar setparams concat copy metadata showinfo
    nullsink buffer buffersink loop tpad format
""")
SCALES = ("scale_cuda", "scale_npp", "scale2ref_npp")
RENAMED = {"yadif_cuda": "yadif", "bwdif_cuda": "bwdif", "overlay_cuda": "overlay", "thumbnail_cuda": "thumbnail"}
# The format of the pictures that NVDEC gives, and of what is uploaded.
SURFACES = {
    "yuv420p": "nv12", "yuvj420p": "nv12", "nv12": "nv12", "yuv420p10le": "p010le", "p010le": "p010le",
    "yuv444p": "yuv444p", "yuv444p10le": "yuv444p16le", "yuv444p16le": "yuv444p16le", "p016le": "p016le",
}  # fmt: skip
LABELS = re.compile(r"((?:\[[^\]]*\])*)(.*?)((?:\[[^\]]*\])*)", re.DOTALL)
LABEL = re.compile(r"\[([^\]]*)\]")


class CannotConvert(Exception):
    """A CPU filter got pictures in the GPU's memory, or the other way round; the text is ffmpeg's line."""


@dataclass(frozen=True)
class Pictures:
    """What flows: where it is and in what format ("" where nothing is known)."""

    on_gpu: bool = False
    pixel_format: str = ""


@dataclass
class Mapped:
    """A graph in software filters, and what its outputs carry: by label, "" for one without."""

    text: str
    outputs: dict[str, Pictures] = field(default_factory=dict)


def _split(text: str, mark: str) -> list[str]:
    """At `mark`, but not within quotes, brackets or after a backslash."""
    parts, current, quoted, escaped, depth = [], "", False, False, 0
    for character in text:
        if escaped or character == "\\":
            escaped = not escaped
        elif character == "'":
            quoted = not quoted
        elif character in "[]" and not quoted:
            depth += 1 if character == "[" else -1
        if character == mark and not (quoted or escaped or depth):
            parts.append(current)
            current = ""
        else:
            current += character
    return [*parts, current]


def mapped(text: str, sources: dict[str, Pictures], resized: dict[str, str]) -> Mapped:
    """`text` in software. `sources`: input label ("0:v", "" for a simple graph) ► pictures; `resized`: the filter that
    stands for a cuvid decoder's -resize and -crop, by the same labels."""
    known = dict(sources)
    result: list[str] = []
    for chain in _split(text, ";"):
        if chain.strip():
            result.append(_chain(chain.strip(), known, resized))
    return Mapped(";".join(result), {label: flow for label, flow in known.items() if label not in sources or not label})


def _chain(chain: str, known: dict[str, Pictures], resized: dict[str, str]) -> str:
    steps: list[str] = []
    flow: Optional[Pictures] = None
    for step in _split(chain, ","):
        match = LABELS.fullmatch(step.strip())
        assert match is not None  # every part of the pattern may be empty
        ins, body, outs = match[1], match[2].strip(), match[3]
        first = LABEL.findall(ins)
        if flow is None or first:
            flow = known.get(_key(first[0] if first else "", known), Pictures())
            before = [resized[key] for key in {_key(label, known) for label in first or [""]} if key in resized]
        else:
            before = []
        name, _, arguments = body.partition("=")
        software, flow = _filter(name.strip(), arguments, flow)
        steps.append(f"{ins}{','.join([*before, software or 'null'])}{outs}")
        for label in LABEL.findall(outs):
            known[label] = flow
        if not outs:
            known[""] = flow
    kept = [step for step in steps if step != "null"]
    return ",".join(kept or steps[:1])


def _key(label: str, known: dict[str, Pictures]) -> str:
    """ "0:v:0" and "0:V" are the first video stream as "0:v" is."""
    parts = label.split(":")
    short = f"{parts[0]}:v" if parts[0].isdigit() else label
    return short if short in known else label


def _filter(name: str, arguments: str, flow: Pictures) -> tuple[str, Pictures]:
    """(the software filter or "", what flows out of it)."""
    name = name.partition("@")[0]
    if name in ("hwupload", "hwupload_cuda"):
        return "", Pictures(True, flow.pixel_format)
    if name == "hwdownload":
        _need(flow.on_gpu, name)
        surface = SURFACES.get(flow.pixel_format, flow.pixel_format)
        return (f"format={surface}" if surface else ""), Pictures(False, surface)
    if name in SCALES:
        _need(flow.on_gpu, name)
        return _scale(arguments, flow)
    if name in RENAMED or name.endswith("_cuda"):
        _need(flow.on_gpu, name)
        return "=".join(filter(None, [RENAMED.get(name, "null"), arguments])), flow
    if name not in EITHER:
        _need(not flow.on_gpu, name)
    text = f"{name}={arguments}" if arguments else name
    if name == "format" and not flow.on_gpu:
        chosen = arguments.replace("pix_fmts=", "").split("|")[0]
        return text, Pictures(False, chosen)
    return ("" if name == "format" else text), flow


def _need(fits: bool, name: str) -> None:
    if not fits:
        raise CannotConvert(
            "Impossible to convert between the formats supported by the filter 'graph 0 input from stream 0:0' "
            f"and the filter 'auto_scale_0' ({name})"
        )


def _scale(arguments: str, flow: Pictures) -> tuple[str, Pictures]:
    values: dict[str, str] = {}
    for position, item in enumerate(filter(None, arguments.split(":"))):
        key, equals, value = item.partition("=")
        if equals:
            values[key] = value
        else:
            values[("w", "h", "interp_algo", "format")[min(position, 3)]] = item
    kept = {key: values[key] for key in ("w", "h", "force_original_aspect_ratio") if key in values}
    size = ":".join(f"{key}={value}" for key, value in kept.items())
    chosen = values.get("format", "")
    text = f"scale={size}" if size else ""
    if chosen and chosen != "same":
        return ",".join(filter(None, [text, f"format={chosen}"])), Pictures(True, chosen)
    return text, flow


def names(text: str) -> list[str]:
    """The filters that a graph names."""
    steps = (step.strip() for chain in _split(text, ";") for step in _split(chain, ","))
    bodies = (match[2].strip() for step in steps if (match := LABELS.fullmatch(step)) is not None)
    return [body.partition("=")[0].partition("@")[0].strip() for body in bodies]
