"""How good are the pictures of an encoder? Encodes a clip once with each preset, and compares the result with the clip.

The comparison is FFmpeg's own (filters psnr and xpsnr). If a build lacks one filter, that figure is Missing.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, Collection, Dict, List, Mapping, Optional, Sequence, Tuple, Union

from gpuprep.agent.probereports import measured
from gpuprep.agent.probes.codec import filters
from gpuprep.agent.probes.transcodeproof import PSNR, XPSNR, figure
from gpuprep.agent.probes.transcoderun import Ran, execute
from gpuprep.agent.programs import children
from gpuprep.agent.programs.run import run
from gpuprep.agent.video.clips import FPS, Clip, clip
from gpuprep.agent.video.ffmpegerrors import decisive_line
from gpuprep.agent.video.throughputplan import DOWNLOAD, SOFTWARE
from gpuprep.records import Missing

Values = Dict[str, Any]
SOURCE = "h264-1080p"
KBPS = 5000
ROOM_MIB = 64
SECONDS = 60.0  # for one encode, and for one comparison
COMPARE = {"psnr_db": ("psnr", PSNR), "xpsnr_db": ("xpsnr", XPSNR)}
ON_GPU = ("-hwaccel", "cuda", "-hwaccel_output_format", "cuda")


def measure(
    ffmpeg: str,
    clips: Optional[Path],
    made: Mapping[str, str],
    done: Collection[Tuple[str, str, Optional[str]]],
    deadline: float,
) -> List[Values]:
    """`done`: (kind, codec, preset) of the series that succeeded; `made` is added to FFmpeg's environment.

    Values: docs/records.md, "throughput".
    """
    wanted = [
        series for series in sorted(done, key=str) if series[0] in ("encode", "software") and "-" not in series[1]
    ]
    if not wanted:
        return []
    source = clip(SOURCE, within=clips)
    listed = run([ffmpeg, "-hide_banner", "-filters"])
    have = filters(listed) if isinstance(listed, str) else []
    rows = []
    for kind, codec, preset in wanted:
        encoder = SOFTWARE[codec] if kind == "software" else f"{codec}_nvenc"
        row: Values = {
            "codec": codec, "preset": preset, "encoder": encoder, "asked_kbps": KBPS, "frames": None,
            **dict.fromkeys(
                ("bit_rate_kbps", *COMPARE), Missing("not_run", "the time limit was reached before it began")
            ),
        }  # fmt: skip
        if isinstance(source, Missing):
            row.update(dict.fromkeys(("bit_rate_kbps", *COMPARE), source))
        elif time.monotonic() + SECONDS / 4 < deadline:
            row.update(_encoded_row(ffmpeg, source, encoder, str(preset), made, have))
        rows.append(row)
        measured(row, "quality", len(rows) - 1)
    return rows


def _encoded_row(
    ffmpeg: str, source: Clip, encoder: str, preset: str, made: Mapping[str, str], have: Sequence[str]
) -> Values:
    try:
        with children.scratch("quality", ROOM_MIB) as folder:
            file = folder / "out.mp4"
            ran = execute(encode(ffmpeg, source.path, encoder, preset, file), folder, SECONDS, dict(made))
            if ran.outcome != "completed" or not file.is_file():
                why = Missing("command_failed", f"encoding: {_words(ran)}")
                return dict.fromkeys(("bit_rate_kbps", *COMPARE), why)
            rate = round(file.stat().st_size * 8 / 1000 / source.seconds)
            return {"bit_rate_kbps": rate, "frames": source.frames, **_compared(ffmpeg, source, file, have)}
    except OSError as error:
        return dict.fromkeys(("bit_rate_kbps", *COMPARE), Missing("command_failed", str(error)))


def encode(ffmpeg: str, source: Path, encoder: str, preset: str, file: Path) -> List[str]:
    """The command that encodes the clip; an encoder on the CPU also gets its pictures from the GPU."""
    down = ["-vf", DOWNLOAD] if encoder in SOFTWARE.values() else []
    return [
        ffmpeg, "-hide_banner", "-nostdin", "-nostats", "-v", "warning", "-y", "-threads", "1", *ON_GPU,
        "-i", str(source), "-map", "0:v:0", *down, "-c:v", encoder, "-preset", preset, "-b:v", f"{KBPS}k",
        "-maxrate", f"{2 * KBPS}k", "-bufsize", f"{2 * KBPS}k", "-an", str(file),
    ]  # fmt: skip


def _compared(ffmpeg: str, source: Clip, file: Path, have: Sequence[str]) -> Values:
    lacks = {
        name: Missing("not_installed", f"this ffmpeg has no filter {filter_}; profiles base and video build it")
        for name, (filter_, _) in COMPARE.items()
        if filter_ not in have
    }
    asked = [name for name in COMPARE if name not in lacks]
    if not asked:
        return dict(lacks)
    ran = execute(compare(ffmpeg, source.path, file, [COMPARE[name][0] for name in asked]), file.parent, SECONDS)
    text = "\n".join(ran.lines)
    read: Dict[str, Union[float, Missing]] = {}
    for name in asked:
        filter_, pattern = COMPARE[name]
        failed = Missing("command_failed", f"comparing: {_words(ran)}")
        read[name] = figure(pattern, text, filter_) if ran.outcome == "completed" else failed
    return {**lacks, **read}


def compare(ffmpeg: str, source: Path, file: Path, names: Sequence[str]) -> List[str]:
    """The command that compares both files, decoded in software. Pictures are matched by their number."""
    clock = f"settb=1/{FPS},setpts=N,fps={FPS},format=yuv420p"
    count = len(names)
    ours = "".join(f"[o{number}]" for number in range(count))
    theirs = "".join(f"[s{number}]" for number in range(count))
    steps = [f"[0:v:0]{clock},split={count}{ours}", f"[1:v:0]{clock},split={count}{theirs}"]
    steps += [f"[o{number}][s{number}]{name}=shortest=1[q{number}]" for number, name in enumerate(names)]
    maps = [word for number in range(count) for word in ("-map", f"[q{number}]", "-f", "null", "-")]
    return [
        ffmpeg, "-hide_banner", "-nostdin", "-nostats", "-v", "info", "-i", str(file), "-i", str(source),
        "-filter_complex", ";".join(steps), *maps,
    ]  # fmt: skip


def _words(ran: Ran) -> str:
    return ran.reason or decisive_line(ran.lines)
