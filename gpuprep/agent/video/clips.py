"""Inputs of the transcodes: short clips with sound, made once and kept; a long clip is a short clip repeated.

clip("h264-1080p")          the short clip
clip("h264-1080p", 200)     the same pictures again and again for at least 200 s, joined without encoding

A long clip is one file with rising timestamps. It is not made with FFmpeg's -stream_loop: with hwaccel cuda that failed
at the loop on a real H200.
"""

from __future__ import annotations

import contextlib
import importlib.util
import math
import os
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Dict, Iterable, List, Optional, Sequence, Tuple, Union

from gpuprep.agent import host_paths
from gpuprep.agent.facts.shells import login_path
from gpuprep.agent.programs import children, owncache, trusted
from gpuprep.agent.programs.run import run
from gpuprep.records import Missing

VERSION = 1  # of the pictures and settings below, in the folder's name: raise it with each change of them
FPS = 30
# A multiple of 16 frames is a whole number of AAC frames (1024 samples at 48 kHz): picture and sound end together.
LONG, SHORT = 96, 48
# A clip of more is joined from pieces of so many: FFmpeg looks into each file that it joins, and 82 of VP9 took 9 s.
PIECE = 8
MAKERS = 4  # clips that are made side by side
CORES = 8  # with fewer, making clips would slow what is measured at the same time
LIMIT_BYTES = 3 * 2**30  # long clips that were not used for longest go first
TIMEOUT_SECONDS = 240.0
TIDYING = threading.Lock()
# Clips that could not be made: thirty cases ask for eight clips, and trying each time took 94 s on a real H100.
FAILED: Dict[Path, Missing] = {}
MAKING: Dict[Path, threading.Lock] = {}


@dataclass(frozen=True)
class Spec:
    """One clip: `picture` is a lavfi graph that ends in the pixel format."""

    codec: str
    width: int
    height: int
    frames: int
    pixel_format: str
    picture: str
    tone_hz: int
    kbps: int = 5000  # asked of the encoder, with the most that it may give and the kbit that it may save for that
    most_kbps: int = 7000
    buffer_kbit: int = 7000


@dataclass(frozen=True)
class Clip:
    """A clip on disk, at 30 fps, with AAC sound."""

    name: str
    path: Path
    codec: str
    width: int
    height: int
    pixel_format: str
    frames: int
    seconds: float
    fps: int = FPS
    audio: str = "aac"

    @property
    def bit_rate_kbps(self) -> Union[int, Missing]:
        """Bit rate of the file, including its sound (96 kbit/s)."""
        try:
            size = self.path.stat().st_size
        except OSError as error:
            return Missing("command_failed", str(error))
        return round(size * 8 / 1000 / self.seconds) if size else Missing("unparsable", "the clip is empty")


# Three kinds of pictures: sharp edges and motion, a slow zoom into fine detail, and grain. All are the same every
# time (noise has a fixed seed), so two codecs' clips of one kind show the same frames.
BARS = (
    "testsrc2=s={w}x{h}:r=30,noise=alls=8:allf=t[a];mandelbrot=s=480x270:r=30:end_scale=0.01:end_pts=200[b];"
    "[a][b]overlay=(W-w)/2:(H-h)/2,format={f}"
)
ZOOM = "mandelbrot=s={w}x{h}:r=30:end_scale=0.005:end_pts=300,format={f}"
GRAIN = "testsrc=s={w}x{h}:r=30,format=yuv420p,noise=alls=20:allf=t,format={f}"
# Noise that leaves no picture like the one before takes all the bits that there are.
NOISE = "testsrc2=s={w}x{h}:r=30,format=yuv420p,noise=alls=24:allf=t,format={f}"

UHD = (20_000, 28_000, 28_000)

SPECS = {
    "h264-1080p": Spec("h264", 1920, 1080, LONG, "yuv420p", BARS, 440),
    "h264-1080p-noisy": Spec("h264", 1920, 1080, SHORT, "yuv420p", NOISE, 440, 8000, 8500, 4000),
    "h264-720p": Spec("h264", 1280, 720, LONG, "yuv420p", ZOOM, 660),
    "h264-540p": Spec("h264", 960, 540, LONG, "yuv420p", GRAIN, 880),
    "hevc-1080p": Spec("hevc", 1920, 1080, SHORT, "yuv420p", BARS, 440),
    "hevc10-1080p": Spec("hevc", 1920, 1080, SHORT, "yuv420p10le", BARS, 440),
    "vp9-1080p": Spec("vp9", 1920, 1080, SHORT, "yuv420p", BARS, 440),
    "av1-1080p": Spec("av1", 1920, 1080, SHORT, "yuv420p", BARS, 440),
    "h264-2160p": Spec("h264", 3840, 2160, SHORT, "yuv420p", BARS, 440, *UHD),
    "hevc-2160p": Spec("hevc", 3840, 2160, SHORT, "yuv420p", BARS, 440, *UHD),
    "av1-2160p": Spec("av1", 3840, 2160, SHORT, "yuv420p", BARS, 440, *UHD),
}  # fmt: skip

# Encoders, best first. Braces are replaced by the values of the clip (Spec).
RATE = ("-b:v", "{kbps}k", "-maxrate", "{most}k", "-bufsize", "{buffer}k")
ENCODERS = {
    "h264": (
        ("libx264", ("-preset", "ultrafast", "-bf", "2", "-x264-params", "cabac=1:8x8dct=1", *RATE)),
        ("h264_nvenc", ("-preset", "p4", *RATE)),
    ),
    "hevc": (
        ("libx265", ("-preset", "ultrafast", "-x265-params", "log-level=error", "-tag:v", "hvc1", *RATE)),
        ("hevc_nvenc", ("-preset", "p4", "-tag:v", "hvc1", *RATE)),
    ),
    "vp9": (("libvpx-vp9", ("-deadline", "realtime", "-cpu-used", "8", "-row-mt", "1", *RATE)),),
    "av1": (
        ("libsvtav1", ("-preset", "12", "-b:v", "{kbps}k")),
        ("libaom-av1", ("-usage", "realtime", "-cpu-used", "8", "-row-mt", "1", "-b:v", "{kbps}k")),
        ("av1_nvenc", ("-preset", "p4", *RATE)),
    ),
}
AGENT = Path(host_paths.AGENT_LIBRARIES)
REMEDY = "install imageio-ffmpeg for gpuprep's agent or a distribution's ffmpeg; either brings the encoder"
SOFTWARE_ROW = re.compile(r"^ V[A-Z.]{5} (\S+) ", re.MULTILINE)


def folder() -> Path:
    """Where clips are kept: the machine's cache for root, else the user's own."""
    base = Path(host_paths.CACHE) if trusted.is_root() else owncache.folder()
    return base / "clips" / f"v{VERSION}"


def clip(name: str, seconds: Optional[float] = None, *, within: Optional[Path] = None) -> Union[Clip, Missing]:
    """The clip `name` (of SPECS), at least `seconds` long; made if it does not exist yet.

    Missing gives the reason: no encoder (and what to install), no disk space, or the encoder's error.
    """
    try:
        place = folder() if within is None else within
    except OSError as error:
        return Missing("command_failed", str(error))
    if trusted.is_root() and (why := trusted.untrusted_reason(str(place))):
        return Missing("not_trusted", f"root writes no clips to {place}: {why}")
    return _made(name, repeats(SPECS[name], seconds), place)


def _made(name: str, times: int, place: Path) -> Union[Clip, Missing]:
    """The short clip repeated `times` times in one file; 1: the short clip itself."""
    spec = SPECS[name]
    path = place / (f"{name}.mp4" if times == 1 else f"{name}-x{times}.mp4")
    made = Clip(
        name, path, spec.codec, spec.width, spec.height, spec.pixel_format,
        spec.frames * times, spec.frames * times / FPS,
    )  # fmt: skip
    try:
        with _being_made(path):
            if path.is_file() and path.stat().st_size:  # a machine that lost its power may leave an empty one
                os.utime(path)
                return made
            if path in FAILED:
                return FAILED[path]
            place.mkdir(parents=True, exist_ok=True)
            failure = _generate(spec, path) if times == 1 else _join(name, times, path, place)
            if failure is None:
                with TIDYING:
                    _make_room(place, path)
            else:
                FAILED[path] = failure
    except OSError as error:
        failure = Missing("command_failed", f"clip {name}: {error}")
    return made if failure is None else failure


def _being_made(path: Path) -> threading.Lock:
    """The lock of one clip, held while it is made. Long clips need only shorter clips, so there is no deadlock."""
    with TIDYING:
        return MAKING.setdefault(path, threading.Lock())


def repeats(spec: Spec, seconds: Optional[float]) -> int:
    """How often the short clip is repeated to last at least `seconds`; None: 1."""
    times = 1 if seconds is None else max(1, math.ceil(seconds * FPS / spec.frames))
    return times if times <= PIECE else PIECE * math.ceil(times / PIECE)


def prepare(wanted: Iterable[Tuple[str, Optional[float]]], *, within: Optional[Path] = None) -> None:
    """Make these clips (name, seconds), several at a time. clip() then returns them, or why they failed."""
    lengths: Dict[str, List[Optional[float]]] = {}
    for name, seconds in wanted:
        lengths.setdefault(name, []).append(seconds)

    def make(name: str) -> None:
        for seconds in lengths[name]:
            clip(name, seconds, within=within)

    with ThreadPoolExecutor(max(1, min(MAKERS, os.cpu_count() or 1))) as pool:
        list(pool.map(make, lengths))


def make_beforehand(wanted: Iterable[Tuple[str, Optional[float]]], *, within: Optional[Path] = None) -> Dict[str, Any]:
    """As prepare(), while a GPU is measured: only with encoders on the CPU, at the lowest priority.

    A clip that is not made here is made, or reported as missing, when a probe reads it.
    """
    cores = os.cpu_count() or 1
    able = [(name, seconds) for name, seconds in wanted if cores >= CORES and by_processor(name)]
    if able:
        os.nice(19)
        prepare(able, within=within)
    return {"clips": len(able)}


def by_processor(name: str) -> bool:
    """Whether the first encoder to try for this clip runs on the CPU."""
    candidates = (
        encoder for encoder, _ in ENCODERS[SPECS[name].codec] for program in programs() if encoder in encoders(program)
    )
    return not next(candidates, "nvenc").endswith("nvenc")


def programs() -> List[str]:
    """Paths of every ffmpeg that may have an encoder: the agent's own static one, then those on a login's PATH."""
    spec = importlib.util.find_spec("imageio_ffmpeg")  # finds it without importing it
    places = [Path(place) for place in (spec.submodule_search_locations or ())] if spec else []
    places += sorted(AGENT.glob("python3*/site-packages/imageio_ffmpeg"))  # an agent that was sent along runs elsewhere
    paths: List[str] = []
    for place in places:
        paths += sorted(str(path) for path in (place / "binaries").glob("ffmpeg-*") if os.access(path, os.X_OK))
    path = login_path()
    for name in (path if isinstance(path, str) else os.defpath).split(os.pathsep):
        program = Path(name or ".", "ffmpeg")
        if program.is_file() and os.access(program, os.X_OK):
            paths.append(str(program.resolve()))
    return list(dict.fromkeys(paths))


@lru_cache(maxsize=None)
def encoders(program: str) -> Tuple[str, ...]:
    """Video encoders that this ffmpeg was built with; () if it does not run."""
    text = run([program, "-hide_banner", "-encoders"])
    return () if isinstance(text, Missing) else tuple(SOFTWARE_ROW.findall(text))


def _generate(spec: Spec, path: Path) -> Optional[Missing]:
    """Encode the clip with the first encoder that works; returns None, or the last error if no encoder works."""
    rates = {"kbps": spec.kbps, "most": spec.most_kbps, "buffer": spec.buffer_kbit}
    able = [
        (program, name, tuple(word.format(**rates) for word in options))
        for name, options in ENCODERS[spec.codec]
        for program in programs()
        if name in encoders(program)
    ]
    picture = spec.picture.format(w=spec.width, h=spec.height, f=spec.pixel_format)
    audio = f"sine=frequency={spec.tone_hz}:sample_rate=48000:duration={spec.frames / FPS}"
    commands = [
        [
            program, "-f", "lavfi", "-i", picture, "-f", "lavfi", "-i", audio, "-frames:v", str(spec.frames),
            "-c:v", name, *options, "-g", str(spec.frames),
        ]
        for program, name, options in able
    ]  # fmt: skip
    return _first_that_works(commands, path, f"no ffmpeg here encodes {spec.codec.upper()}")


def _join(name: str, times: int, path: Path, place: Path) -> Optional[Missing]:
    """Join the short clip `times` times in one file: copies the video, and encodes sound of the same length."""
    each = PIECE if times > PIECE else 1
    piece, pieces = _made(name, each, place), times // each
    if isinstance(piece, Missing):
        return piece
    quoted = str(piece.path).replace("'", "'\\''")
    row = f"file '{quoted}'\nduration {piece.seconds:.6f}\n"
    audio = f"sine=frequency={SPECS[name].tone_hz}:sample_rate=48000:duration={piece.seconds * pieces:.6f}"
    tag = ("-tag:v", "hvc1") if piece.codec == "hevc" else ()
    with children.scratch("clips", within=place) as folder:
        table = folder / "clips.ffconcat"
        table.write_text("ffconcat version 1.0\n" + row * pieces)
        commands = [
            [
                program, "-f", "concat", "-safe", "0", "-i", str(table), "-f", "lavfi", "-i", audio,
                "-map", "0:v:0", "-map", "1:a:0", "-c:v", "copy", *tag,
            ]
            for program in programs()
        ]  # fmt: skip
        return _first_that_works(commands, path, "no ffmpeg on this machine joins clips")


def _first_that_works(commands: Iterable[Sequence[str]], path: Path, none: str) -> Optional[Missing]:
    """Run the commands (program, options) until one writes the clip; returns None, or the last error, or `none`."""
    refusal = Missing("not_installed", f"{none}: {REMEDY}")
    for program, *options in commands:
        with children.scratch("clip", within=path.parent) as folder:
            part = folder / path.name
            argv = [
                program, "-hide_banner", "-nostdin", "-v", "error", "-y", *options,
                "-c:a", "aac", "-b:a", "96k", "-f", "mp4", str(part),
            ]  # fmt: skip
            answer = _finish(argv, part, path)
        if answer is None:
            return None
        refusal = answer
    return refusal


def _finish(argv: Sequence[str], part: Path, path: Path) -> Optional[Missing]:
    """Run the encoder; its file gets its name only when it is complete, so a reader never sees half a clip."""
    output = run(argv, timeout=TIMEOUT_SECONDS)
    if isinstance(output, Missing):
        return output
    if not part.is_file() or not part.stat().st_size:
        return Missing("command_failed", f"{argv[0]} wrote nothing for {path.name}")
    part.replace(path)
    return None


def _make_room(place: Path, newest: Path) -> None:
    """Delete long clips beyond LIMIT_BYTES, the least recently used first; the newest stays."""
    kept = []
    for file in place.glob("*-x*.mp4"):
        with contextlib.suppress(FileNotFoundError):  # another process makes room, too
            there = file.stat()
            kept.append((there.st_mtime, there.st_size, file))
    total = sum(size for _, size, _ in kept)
    for _, size, file in sorted(kept):
        if total <= LIMIT_BYTES:
            return
        if file != newest:
            total -= size
            file.unlink(missing_ok=True)
