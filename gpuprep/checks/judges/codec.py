"""Does FFmpeg have the parts that the profile asks for?"""

from __future__ import annotations

import re
from collections.abc import Sequence

from gpuprep.checks.common import check, unknown
from gpuprep.checks.evidence import Evidence
from gpuprep.records import Finding, Missing
from gpuprep.records.evidence.codec import Codec

# Kinds that ffmpeg does not list, or lists under other names, are looked up among configure's arguments.
CONFIGURED = {
    "muxers": "muxer", "demuxers": "demuxer", "parsers": "parser",
    "bsfs": "bsf", "protocols": "protocol", "indevs": "indev",
}  # fmt: skip
LISTED_AS = {"movtext": "mov_text"}  # configure's name ► FFmpeg's
HWACCEL = re.compile(r"_(nvdec|cuvid)$")


def findings(evidence: Evidence) -> list[Finding]:
    wanted, values = evidence.wanted, evidence.of(Codec, "codec")
    if wanted.codec.ffmpeg == "none":
        return []
    return [_kind(kind, names, values) for kind, names in wanted.codec.parts.items() if names]


def _kind(kind: str, names: Sequence[str], values: Codec | Missing) -> Finding:
    expected = f"{len(names)} {kind}"
    if isinstance(values, Missing):
        return unknown("ffmpeg", kind, values, expected=expected, role="gpu_codec")
    own = {"encoders": values.encoders, "decoders": values.decoders, "filters": values.filters,
           "hwaccels": values.hwaccels}  # fmt: skip
    source = kind if kind in own else "buildconf"
    listed = own.get(kind, values.buildconf)
    if isinstance(listed, Missing) or (kind not in own and kind not in CONFIGURED):
        reading = Missing("not_recorded", f"no {source} is listed")
        return unknown("ffmpeg", kind, reading, expected=expected, role="gpu_codec")
    have = set(listed) if kind in own else configured(listed, CONFIGURED[kind])
    absent = [name for name in names if _listed_name(kind, name) not in have]
    shown = f"lacks {', '.join(absent)}" if absent else expected
    why = f"FFmpeg lacks the {kind} {', '.join(absent)}"
    return check("ffmpeg", kind, len(absent), not absent, expected=expected, shown=shown, why=why, role="gpu_codec")


def _listed_name(kind: str, name: str) -> str:
    """The name in FFmpeg's lists for a name of configure: `ffmpeg -hwaccels` lists h264_nvdec and its like as cuda."""
    return "cuda" if kind == "hwaccels" and HWACCEL.search(name) else LISTED_AS.get(name, name)


def configured(arguments: Sequence[str], singular: str) -> set[str]:
    """Names in all arguments of the form `--enable-muxer=mp4,mov`."""
    names: set[str] = set()
    for argument in arguments:
        key, _, value = argument.strip().partition("=")
        if key == f"--enable-{singular}":
            names.update(name.strip("'\"") for name in value.strip("'\"").split(","))
    return names
