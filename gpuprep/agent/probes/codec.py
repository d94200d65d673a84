"""Lists the parts of the FFmpeg on the PATH. Tests the build, not the GPU."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Dict, List, Union

from gpuprep.agent.facts import parse
from gpuprep.agent.facts.shells import login_path, which
from gpuprep.agent.probereports import tell
from gpuprep.agent.programs.run import run
from gpuprep.agent.video.licences import licence
from gpuprep.records import Missing

# Rows of -encoders and -decoders: six flags and a name; of -filters: two or three flags (three before 7.1), a name
# and its pads.
CODER_ROW = re.compile(r"^ [A-Z.]{6} (\S+) ", re.MULTILINE)
FILTER_ROW = re.compile(r"^ [A-Z.]{2,3} (\S+) +\S+->\S+", re.MULTILINE)
FORMAT_ROW = re.compile(r"^ [D ][E ][d ]? +([A-Za-z0-9_,.-]+) ", re.MULTILINE)
PIXEL_ROW = re.compile(r"^[IOHPB.]{5} ([a-z0-9_]+) +\d", re.MULTILINE)
OPTIONS = (
    "version", "encoders", "decoders", "filters", "hwaccels", "muxers", "demuxers", "bsfs", "protocols", "pix_fmts",
    "buildconf",
)  # fmt: skip
LEGEND = "="  # the rows that explain the flags look like rows of a coder named "="


def measure(arguments: Dict[str, Any]) -> Union[Dict[str, Any], Missing]:
    """arguments: path (default: ffmpeg of a login shell).

    Values: encoders, decoders, filters, hwaccels, muxers, demuxers, bsfs, protocols, pix_fmts, buildconf (lists of
    words), version, licence, path.
    """
    asked = arguments.get("path")
    path = named(asked) if isinstance(asked, str) else which("ffmpeg", login_path())
    if isinstance(path, Missing):
        return path
    if path is None:
        return Missing("not_installed", "no ffmpeg on the PATH of a login shell")
    texts = {}
    for number, option in enumerate(OPTIONS):
        tell(f"ffmpeg -{option}", done=number, of=len(OPTIONS), unit="lists")
        text = run([path, "-hide_banner", f"-{option}"])
        if isinstance(text, Missing):
            return text
        texts[option] = text
    return {
        "encoders": coders(texts["encoders"]),
        "decoders": coders(texts["decoders"]),
        "filters": filters(texts["filters"]),
        "hwaccels": hwaccels(texts["hwaccels"]),
        "muxers": formats(texts["muxers"]),
        "demuxers": formats(texts["demuxers"]),
        "bsfs": words(texts["bsfs"]),
        "protocols": words(texts["protocols"]),
        "pix_fmts": pixel_formats(texts["pix_fmts"]),
        "buildconf": buildconf(texts["buildconf"]),
        "licence": licence(buildconf(texts["buildconf"])),
        "version": parse.ffmpeg_version(texts["version"]) or "",
        "path": path,
    }


def named(path: str) -> Union[str, Missing]:
    """`path` if its file name is ffmpeg, else Missing: who may run probes must not start other programs as root."""
    return path if Path(path).name.startswith("ffmpeg") else Missing("not_supported", f"{path} is no ffmpeg")


def coders(text: str) -> List[str]:
    """`ffmpeg -encoders` or `-decoders` ─► names."""
    return [name for name in CODER_ROW.findall(text) if name != LEGEND]


def filters(text: str) -> List[str]:
    """`ffmpeg -filters` ─► names."""
    return FILTER_ROW.findall(text)


def hwaccels(text: str) -> List[str]:
    """`ffmpeg -hwaccels` ─► names: one a line after the title."""
    return [line.strip() for line in text.splitlines() if line.strip() and not line.rstrip().endswith(":")]


def formats(text: str) -> List[str]:
    """`ffmpeg -muxers` or `-demuxers` ─► names; a row may have several: "mov,mp4,m4a"."""
    return [name for row in FORMAT_ROW.findall(text) for name in row.split(",") if name != LEGEND]


def words(text: str) -> List[str]:
    """`ffmpeg -bsfs` or `-protocols` ─► names: one a line; titles end with a colon."""
    return list(dict.fromkeys(hwaccels(text)))


def pixel_formats(text: str) -> List[str]:
    """`ffmpeg -pix_fmts` ─► names."""
    return PIXEL_ROW.findall(text)


def buildconf(text: str) -> List[str]:
    """`ffmpeg -buildconf` ─► configure's arguments, one a line."""
    return [line.strip() for line in text.splitlines() if line.strip().startswith("--")]
