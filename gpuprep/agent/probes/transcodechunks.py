"""Chapter 6.2: several inputs into several sizes, in one FFmpeg process against one process for each output.

Each process needs time to open CUDA, which matters most for short chunks of video. Both ways run in the environment
that the guide recommends, so only the number of processes differs.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence, Union

from gpuprep.agent.probes.transcodecases import BY_ID, PREFIX
from gpuprep.agent.probes.transcoderun import execute, missing_parts
from gpuprep.agent.video.clips import clip
from gpuprep.agent.video.ffmpegerrors import cause
from gpuprep.records import Missing

CHUNK = "h264-540p"
FILES = 4
SIZES = ("640:480", "320:240")
GUIDE = {"CUDA_VISIBLE_DEVICES": "0", "CUDA_DEVICE_MAX_CONNECTIONS": "2"}
TIMEOUT_SECONDS = 90.0
DECODE = ("-hwaccel", "cuda", "-hwaccel_output_format", "cuda", "-i")
ENCODE = ("-c:v", "h264_nvenc", "-b:v", "1M")


def chunks(
    ffmpeg: str, parts: Dict[str, Any], cases: Sequence[Dict[str, Any]], scratch: Path, clips: Optional[Path]
) -> Union[Dict[str, Any], Missing]:
    """{"files", "renditions", "one_process_seconds", "many_processes_seconds", "saved_seconds"}.

    Missing, with FFmpeg's line, if the case of 3.5 did not complete on this GPU.
    """
    model = BY_ID["many-to-many"]
    lacking = missing_parts(model, parts)
    if lacking:
        return Missing("not_installed", f"FFmpeg lacks {', '.join(lacking)}")
    refused = next((row for row in cases if row["id"] == model.id and row["outcome"] != "completed"), None)
    if refused is not None:
        line = str(refused["decisive_line"])
        known = cause(line)
        return Missing("not_supported" if known is not None and known.denies else "command_failed", line)
    source = clip(CHUNK, within=clips)
    if isinstance(source, Missing):
        return source
    folder = scratch / "chunks"
    try:
        folder.mkdir()
    except OSError as error:
        return Missing("command_failed", f"chunks: {error}")
    whole = _timed(ffmpeg, [_together(str(source.path))], folder)
    many = _timed(ffmpeg, _apart(str(source.path)), folder)
    for seconds in (whole, many):
        if isinstance(seconds, Missing):
            return seconds
    assert isinstance(whole, float)
    assert isinstance(many, float)
    return {
        "files": FILES,
        "renditions": len(SIZES),
        "one_process_seconds": round(whole, 3),
        "many_processes_seconds": round(many, 3),
        "saved_seconds": round(many - whole, 3),
    }


def _together(source: str) -> List[str]:
    words: List[str] = []
    for _ in range(FILES):
        words += [*DECODE, source]
    for file in range(FILES):
        for number, size in enumerate(SIZES):
            words += ["-map", f"{file}:v:0", *_rendition(size, f"one{file}-{number}.mp4")]
    return words


def _apart(source: str) -> List[List[str]]:
    return [
        [*DECODE, source, "-map", "0:v:0", *_rendition(size, f"many{file}-{number}.mp4")]
        for file in range(FILES)
        for number, size in enumerate(SIZES)
    ]


def _rendition(size: str, file: str) -> List[str]:
    return ["-vf", f"scale_cuda={size}", *ENCODE, "-fps_mode", "passthrough", file]


def _timed(ffmpeg: str, commands: Sequence[Sequence[str]], folder: Path) -> Union[float, Missing]:
    """Seconds of all commands, run one after the other; Missing if one fails."""
    started = time.monotonic()
    for words in commands:
        ran = execute([ffmpeg, *PREFIX, *words], folder, TIMEOUT_SECONDS, GUIDE)
        if ran.outcome != "completed":
            return Missing("command_failed", ran.decisive)
    return time.monotonic() - started
