"""Lists the parts of the FFmpeg on the PATH, and tries options on a test picture. Tests the build, not the GPU."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any, Dict, List, Tuple, Union

from gpuprep.agent.facts import parse
from gpuprep.agent.facts.shells import login_path, which
from gpuprep.agent.probereports import tell
from gpuprep.agent.programs import children
from gpuprep.agent.programs.run import SEARCH_PATH, run
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
MOST_TRIES, TRY_SECONDS, ALL_TRIES_SECONDS = 64, 10.0, 60.0
SAID_BYTES, KEPT_LETTERS, NOT_ENDED = 65536, 2000, 124  # as timeout(1) ends
# A scale filter of 5.1 crashes on a wrong value, a formula may have a loop without end, and a size may be any.
LIMITED = ("prlimit", f"--as={4 * 2**30}", f"--fsize={SAID_BYTES}", "--core=0", "--cpu=5", "--")
AS_NOBODY = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--no-new-privs", "--")
LEGEND = "="  # the rows that explain the flags look like rows of a coder named "="


def measure(arguments: Dict[str, Any]) -> Union[Dict[str, Any], Missing]:
    """arguments: path (default: ffmpeg of a login shell), tries (lists of words, each to be tried by tried()).

    Values: encoders, decoders, filters, hwaccels, muxers, demuxers, bsfs, protocols, pix_fmts, buildconf (lists of
    words), version, licence, path; tried, if asked for: an exit code and what FFmpeg said, for each of the first tries.
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
    values = {
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
    tries = arguments.get("tries")
    return {**values, "tried": tried(path, tries)} if isinstance(tries, list) else values


def tried(path: str, tries: List[Any]) -> List[Tuple[int, str]]:
    """How FFmpeg ends with these words in front of an output to nowhere, without a GPU, and as the user nobody if we
    are root: the words may come from anybody.
    """
    environment = {"PATH": SEARCH_PATH, "LC_ALL": "C", "HOME": "/nonexistent", "CUDA_VISIBLE_DEVICES": ""}
    start = [*LIMITED, *(AS_NOBODY if os.geteuid() == 0 else ()), path, "-nostdin", "-hide_banner", "-v", "error"]
    until = time.monotonic() + ALL_TRIES_SECONDS
    ends: List[Tuple[int, str]] = []
    for words in tries[:MOST_TRIES]:
        if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
            break
        left = min(TRY_SECONDS, until - time.monotonic())
        if left <= 0:
            break
        with tempfile.TemporaryFile() as said:
            argv = [*start, *words, "-t", "0.04", "-frames:v", "1", "-f", "null", "-"]
            try:
                code = children.run(argv, timeout=left, stderr=said, env=environment, cwd="/").returncode
            except (OSError, ValueError, subprocess.TimeoutExpired) as error:
                ends.append((NOT_ENDED, str(error)[:KEPT_LETTERS]))
                continue
            said.seek(0)
            ends.append((code, said.read(KEPT_LETTERS).decode(errors="replace")))
    return ends


def named(path: str) -> Union[str, Missing]:
    """`path` if its file name is ffmpeg, else Missing: a probe must not start other programs as root."""
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
