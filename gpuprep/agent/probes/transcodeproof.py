"""Checks one output: ffprobe's data, similarity of its pictures to the source's, and thumbnails.

The same FFmpeg reads the files in software: its h264, hevc and vp9 decoders use the GPU only on request.
A figure that could not be read is Missing; no content of a file raises an exception.
"""

from __future__ import annotations

import base64
import json
import math
import re
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence, Union

from gpuprep.agent.probes.transcodecases import RAW_FRAMES, Case, Input, Output
from gpuprep.agent.probes.transcoderun import Ran, execute
from gpuprep.agent.programs.run import run
from gpuprep.agent.video.clips import FPS, Clip
from gpuprep.agent.video.ffmpegerrors import decisive_line
from gpuprep.records import Missing

TIMEOUT_SECONDS = 180.0
COMPARED_FRAMES = 32  # of a long output, every n-th frame is compared, so that some this many are
IDENTICAL_DB = 100.0  # what is written for pictures that are equal, whose PSNR is infinite
THUMBNAIL_WIDTH = 160
BITS = {"nv12": 12, "yuv420p": 12, "p010le": 24, "yuv420p10le": 24, "yuv444p": 24, "yuv444p16le": 48}  # a pixel
# The planar format in which pictures of this one are compared; no sample changes on the way.
PLANAR = {"nv12": "yuv420p", "p010le": "yuv420p10le"}
FIGURES = (
    "codec", "profile", "pixel_format", "width", "height", "frames", "duration_seconds", "audio", "b_frames",
    "bit_rate_kbps", "bytes", "psnr_db", "ssim", "xpsnr_db", "black_seconds", "frozen_seconds",
)  # fmt: skip
PICTURES = ("psnr_db", "ssim", "xpsnr_db", "black_seconds", "frozen_seconds", "first_frame", "last_frame")
NUMBER = r"(inf|nan|[0-9.]+)"
PSNR = re.compile(rf"\] PSNR .*average:{NUMBER}")
SSIM = re.compile(rf"\] SSIM .*All:{NUMBER}")
XPSNR = re.compile(rf"\] XPSNR .*y: *{NUMBER}")
BLACK = re.compile(r"black_duration: ?([0-9.]+)")
FROZEN = re.compile(r"freeze_(start|duration): ([0-9.]+)")
OUTPUT = re.compile(r"^Output #\d+, \S+, to '(.*)':")
STREAM = re.compile(r"Stream #\d+:\d+.*: Video: (\w+).*?, (\w+)(?:\([^)]*\))?, (\d+)x(\d+)")


def expected(output: Output, case: Case, clips: Dict[str, Clip]) -> Dict[str, Any]:
    """The expected values of an output, from the case and its inputs."""
    frames, fps = frames_of(output.source, case, clips)
    return {
        "codec": output.codec,
        "profile": output.profile,
        "pixel_format": output.pixel_format,
        "width": output.width,
        "height": output.height,
        "frames": frames,
        "duration_seconds": None if output.codec == "rawvideo" else round(frames / fps, 3),
        "audio": clips[output.source].audio if output.audio else None,
        "b_frames": output.b_frames,
        "bit_rate_kbps": output.bit_rate_kbps,
        "asked_kbps": output.asked_kbps,
        "bytes": raw_bytes(output, frames) if output.codec == "rawvideo" else None,
        "psnr_db": output.psnr_db,
        "ssim": output.ssim,
    }


def frames_of(file: str, case: Case, clips: Dict[str, Clip]) -> "tuple[int, float]":
    """(frames, frames per second) of an input; raw input has 25 fps, FFmpeg's default."""
    raw = _input(case, file).kind == "raw"
    return (RAW_FRAMES, 25.0) if raw else (clips[file].frames, float(FPS))


def raw_bytes(output: Output, frames: int) -> int:
    return output.width * output.height * BITS[output.pixel_format] // 8 * frames


def prove(ffmpeg: str, ffprobe: str, case: Case, output: Output, folder: Path, clips: Dict[str, Clip], ran: Ran) -> Any:
    """One entry of `outputs` (docs/records.md)."""
    wanted = expected(output, case, clips)
    nothing = Missing("not_read", "there is no output to read")
    proof: Dict[str, Any] = {"name": output.file, "expected": wanted, **dict.fromkeys(FIGURES, nothing)}
    proof.update(first_frame=nothing, last_frame=nothing, quality_judged=output.psnr_db is not None, error=None)
    path = folder / output.file
    if not path.is_file() or not path.stat().st_size:
        return {**proof, "error": "FFmpeg wrote nothing here"}
    proof["bytes"] = path.stat().st_size
    if output.codec == "rawvideo":
        proof.update(_of_raw(output, path.stat().st_size, ran.lines))
    else:
        proof.update(_of_file(ffprobe, path))
    proof.update(_pictures(ffmpeg, case, output, folder, wanted["frames"], proof))
    return proof


def _of_raw(output: Output, size: int, lines: Sequence[str]) -> Dict[str, Any]:
    """Values of a raw file, which has no header: from FFmpeg's messages; the file's size must fit them."""
    stream = written_as(output.file, lines)
    if isinstance(stream, Missing):
        return dict.fromkeys(("codec", "pixel_format", "width", "height", "frames"), stream)
    bits = BITS.get(stream["pixel_format"])
    frames: Any = Missing("unparsable", f"pixels of {stream['pixel_format']} are of unknown size")
    if bits and stream["width"] and stream["height"]:
        frames = size * 8 / (stream["width"] * stream["height"] * bits)
        frames = int(frames) if frames == int(frames) else round(frames, 2)
    return {**stream, "frames": frames, "profile": None, "audio": None, "duration_seconds": None,
            "b_frames": None, "bit_rate_kbps": None}  # fmt: skip


def written_as(file: str, lines: Sequence[str]) -> Union[Dict[str, Any], Missing]:
    """Codec, pixel format and size of the output `file`, from FFmpeg's own list of outputs."""
    inside = False
    for line in lines:
        head = OUTPUT.match(line.strip())
        if head:
            inside = head.group(1) == file
        stream = STREAM.search(line) if inside else None
        if stream:
            codec, pixel_format, width, height = stream.groups()
            return {"codec": codec, "pixel_format": pixel_format, "width": int(width), "height": int(height)}
    return Missing("unparsable", f"FFmpeg did not say how it wrote {file}")


def _of_file(ffprobe: str, path: Path) -> Dict[str, Any]:
    entries = (
        "format=duration,bit_rate:stream=codec_type,codec_name,profile,pix_fmt,width,height,nb_read_frames,duration,"
        "bit_rate:frame=media_type,pict_type"
    )
    text = run(
        [ffprobe, "-v", "error", "-count_frames", "-show_frames", "-show_entries", entries, "-of", "json", str(path)],
        timeout=TIMEOUT_SECONDS,
    )
    return parse_probe(text)


def parse_probe(text: Union[str, Missing]) -> Dict[str, Any]:
    """ffprobe's JSON ─► figures. An absent or unreadable figure is Missing."""
    names = ("codec", "profile", "pixel_format", "width", "height", "frames", "duration_seconds", "audio", "b_frames")
    every = (*names, "bit_rate_kbps")
    if isinstance(text, Missing):
        return dict.fromkeys(every, text)
    try:
        document = json.loads(text)
        streams = [stream for stream in document["streams"] if isinstance(stream, dict)]
        frames = [frame for frame in document.get("frames", ()) if isinstance(frame, dict)]
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        return dict.fromkeys(every, Missing("unparsable", f"ffprobe: {error!r:.100}: {text[:60]!r}"))
    video = next((stream for stream in streams if stream.get("codec_type") == "video"), None)
    if video is None:
        return dict.fromkeys(every, Missing("unparsable", "ffprobe finds no video in it"))
    audio = next((stream for stream in streams if stream.get("codec_type") == "audio"), None)
    types = [frame.get("pict_type") for frame in frames if frame.get("media_type") == "video"]
    rate = _number(video, "bit_rate")
    return {
        "codec": _word(video, "codec_name"),
        "profile": _word(video, "profile"),
        "pixel_format": _word(video, "pix_fmt"),
        "width": _number(video, "width", int),
        "height": _number(video, "height", int),
        "frames": _number(video, "nb_read_frames", int),
        "duration_seconds": _number(video, "duration"),
        "audio": None if audio is None else _word(audio, "codec_name"),
        "b_frames": types.count("B") if types else Missing("unparsable", "ffprobe lists no pictures"),
        "bit_rate_kbps": rate if isinstance(rate, Missing) else round(rate / 1000),
    }


def _word(stream: Dict[str, Any], key: str) -> Union[str, Missing]:
    value = stream.get(key)
    return value if isinstance(value, str) else Missing("unparsable", f"ffprobe gives no {key}")


def _number(stream: Dict[str, Any], key: str, kind: Any = float) -> Any:
    missing = Missing("unparsable", f"ffprobe gives no {key}")
    try:
        value = kind(stream[key])
    except (KeyError, TypeError, ValueError, OverflowError):
        return missing
    return value if math.isfinite(value) else missing


def _pictures(
    ffmpeg: str, case: Case, output: Output, folder: Path, frames: int, seen: Dict[str, Any]
) -> Dict[str, Any]:
    """Quality compared with the source, black and frozen pictures, thumbnails, from one pass over both files."""
    first, last = f"{output.file}.first.jpg", f"{output.file}.last.jpg"
    made = ["-i", output.file]
    if output.codec == "rawvideo":
        for key in ("width", "height", "pixel_format"):
            if isinstance(seen[key], Missing):
                return dict.fromkeys(PICTURES, seen[key])
        made = _reading(output.file, seen["pixel_format"], f"{seen['width']}x{seen['height']}")
    argv = [
        ffmpeg, "-hide_banner", "-nostdin", "-v", "info", "-nostats", "-y", *made, *_source(case, output),
        "-filter_complex", graph(output, frames),
        "-map", "[q1]", "-map", "[q2]", "-map", "[q3]", "-f", "null", "-",
        "-map", "[first]", "-frames:v", "1", "-q:v", "7", "-f", "image2", "-update", "1", first,
        "-map", "[last]", "-q:v", "7", "-f", "image2", "-update", "1", last,
    ]  # fmt: skip
    ran = execute(argv, folder, TIMEOUT_SECONDS)
    read = parse_pictures(ran.lines, frames / FPS)
    if ran.outcome != "completed":
        why = Missing("command_failed", f"comparing with the source: {ran.reason or decisive_line(ran.lines)}")
        read = dict.fromkeys(read, why)
    return {**read, "first_frame": thumbnail(folder / first), "last_frame": thumbnail(folder / last)}


def graph(output: Output, frames: int) -> str:
    """The filter graph of that pass. Frames are matched by their number: raw pictures have no real timestamps."""
    planar = PLANAR.get(output.pixel_format, output.pixel_format)
    step = max(1, frames // COMPARED_FRAMES)
    # setpts forgets the frame rate, and xpsnr divides by it.
    clock = f"settb=1/{FPS},setpts=N,fps={FPS}"
    picture = f"{output.picture}," if output.picture else ""
    return (
        f"[0:v]{clock},split[all][some];"
        f"[all]scale={THUMBNAIL_WIDTH}:-2,format=yuv420p,blackdetect=d=0.1,freezedetect=n=0.0003:d=0.5,"
        f"scale=out_range=full,format=yuvj420p,split[first][last];"
        f"[some]framestep={step},format={planar},split=3[o1][o2][o3];"
        f"[1:v]{clock},framestep={step},{picture}scale={output.width}:{output.height}:flags=area,format={planar},"
        "split=3[s1][s2][s3];"
        "[o1][s1]psnr=shortest=1[q1];[o2][s2]ssim=shortest=1[q2];[o3][s3]xpsnr=shortest=1[q3]"
    )


def _source(case: Case, output: Output) -> List[str]:
    item = _input(case, output.like or output.source)
    if item.kind == "raw":
        return _reading(item.file, item.pixel_format, f"{item.width}x{item.height}")
    return ["-i", item.file]


def _input(case: Case, file: str) -> Input:
    return next(item for item in case.inputs if item.file == file)


def _reading(file: str, pixel_format: Any, size: str) -> List[str]:
    return ["-f", "rawvideo", "-pix_fmt", str(pixel_format), "-s", size, "-i", file]


def parse_pictures(lines: Sequence[str], seconds: float) -> Dict[str, Any]:
    """FFmpeg's output of that pass ─► psnr_db, ssim, xpsnr_db, black_seconds, frozen_seconds."""
    text = "\n".join(lines)
    started: Optional[float] = None
    frozen = 0.0
    for kind, value in FROZEN.findall(text):
        started = float(value) if kind == "start" else None
        frozen += float(value) if kind == "duration" else 0.0
    if started is not None:  # frozen to the end: then no duration is known
        frozen += max(0.0, seconds - started)
    return {
        "psnr_db": figure(PSNR, text, "psnr"),
        "ssim": figure(SSIM, text, "ssim"),
        "xpsnr_db": figure(XPSNR, text, "xpsnr"),
        "black_seconds": round(sum(float(value) for value in BLACK.findall(text)), 2),
        "frozen_seconds": round(frozen, 2),
    }


def figure(pattern: "re.Pattern[str]", text: str, name: str) -> Union[float, Missing]:
    matches = pattern.findall(text)
    if not matches or matches[-1] == "nan":
        return Missing("unparsable", f"FFmpeg named no {name}")
    return IDENTICAL_DB if matches[-1] == "inf" else round(float(matches[-1]), 4)


def thumbnail(path: Path) -> Union[str, Missing]:
    """The picture as a data URI."""
    try:
        content = path.read_bytes()
    except OSError as error:
        return Missing("command_failed", f"no thumbnail: {error}")
    if not content.startswith(b"\xff\xd8"):
        return Missing("unparsable", f"{path.name} is no JPEG")
    return f"data:image/jpeg;base64,{base64.b64encode(content).decode()}"
