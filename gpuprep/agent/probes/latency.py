"""How long does one picture take? Pictures go into FFmpeg's stdin one at a time, 30 per second, and each is timed.

As in a live stream, pictures go into and out of a pipe: a picture's time begins when its last byte is written, and ends
when its line comes out (`-f framecrc` writes one line per picture). So FFmpeg's own queues and copies count.
Nothing else runs meanwhile; B-frames are off, because a B-frame waits for a later picture.
"""

from __future__ import annotations

import contextlib
import os
import statistics
import subprocess
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Collection, Dict, List, Mapping, Optional, Sequence, Tuple, Union

from gpuprep.agent.probereports import measured
from gpuprep.agent.programs import children
from gpuprep.agent.video.clips import encoders, programs
from gpuprep.agent.video.ffmpegerrors import decisive_line
from gpuprep.agent.video.sessions import environment
from gpuprep.agent.video.throughputplan import DOWNLOAD, SOFTWARE
from gpuprep.records import Missing

Values = Dict[str, Any]
WIDTH, HEIGHT, FPS = 1920, 1080, 30
PICTURES = 120  # that go in
SETTLED = 45  # of them do not count: FFmpeg starts, and looks into its input
RAW_PICTURES = 6  # different raw ones, again and again: each has 3 MB
ROOM_MIB = 96
PATIENCE = 20.0  # seconds after the last picture went in
PREPARE_SECONDS = 60.0
PRESETS = ("p1", "p4", "p7")
PICTURE, VIDEO_TAG = 1, 9  # AVCPacketType: a picture; TagType: video
FLV_HEADER = 13
LEAST = 20  # pictures of which a median says something
LONGEST_LINE = 4096
ON_GPU = ("-threads", "1", "-hwaccel", "cuda", "-hwaccel_output_format", "cuda")
FEW = ("-probesize", "100000", "-analyzeduration", "500000")
OUT = ("-fps_mode", "passthrough", "-flush_packets", "1", "-f", "framecrc", "pipe:1")
HOW = (
    f"{WIDTH}x{HEIGHT}, one session, {FPS} pictures a second through pipes: from the last byte in to its line out "
    "(FFmpeg's queues included), no B-frames"
)


@dataclass(frozen=True)
class Work:
    kind: str
    codec: str
    preset: str

    @property
    def is_raw(self) -> bool:
        return self.kind == "encode"


def measure(
    ffmpeg: str,
    made: Mapping[str, str],
    done: Collection[Tuple[str, str, Optional[str]]],
    deadline: float,
) -> List[Values]:
    """`done`: (kind, codec, preset) of the series that succeeded; `made` is added to FFmpeg's environment.

    Values: docs/records.md, "throughput".
    """
    rows = []
    try:
        with children.scratch("latency", ROOM_MIB, within=None) as folder:
            sources: Dict[bool, Union[List[bytes], Missing]] = {}
            for work in chosen(done):
                if time.monotonic() + PICTURES / FPS > deadline:
                    rows.append(_row(work, Missing("not_run", "the time limit was reached before it began")))
                    continue
                if work.is_raw not in sources:
                    sources[work.is_raw] = raw(folder) if work.is_raw else stream(folder)
                units = sources[work.is_raw]
                if isinstance(units, Missing):
                    rows.append(_row(work, units))
                else:
                    several = [units[number % len(units)] for number in range(PICTURES)] if work.is_raw else units
                    rows.append(_row(work, timed([ffmpeg, *command(work)], several, made)))
                measured(rows[-1], "latency", len(rows) - 1)
    except OSError as error:
        return [_row(work, Missing("command_failed", str(error))) for work in chosen(done)]
    return rows


def chosen(done: Collection[Tuple[str, str, Optional[str]]]) -> List[Work]:
    """What to measure: decoding of H.264, every encoder at three presets, and a transcode."""
    every = [Work(kind, codec, preset or "") for kind, codec, preset in sorted(done, key=str)]
    return [
        case
        for case in every
        if (case.kind == "decode" and case.codec == "h264")
        or (case.kind == "encode" and "-" not in case.codec and case.preset in PRESETS)
        or (case.kind in ("transcode", "software") and "-" not in case.codec)
    ]


def command(work: Work) -> List[str]:
    """FFmpeg's arguments: reads stdin, prints one line per picture."""
    logging = ["-hide_banner", "-nostats", "-v", "warning"]
    if work.is_raw:
        size = f"{WIDTH}x{HEIGHT}"
        taken = ["-f", "rawvideo", "-pix_fmt", "nv12", "-s", size, "-r", str(FPS), "-i", "pipe:0"]
    else:
        taken = [*FEW, *ON_GPU, "-f", "flv", "-i", "pipe:0"]
    down = ["-vf", DOWNLOAD] if work.kind in ("decode", "software") else []
    return [*logging, *taken, "-map", "0:v:0", *down, *_encoder(work), *OUT]


def _encoder(work: Work) -> List[str]:
    if work.kind == "decode":
        return ["-c:v", "rawvideo", "-threads", "1"]  # more threads of this encoder keep pictures back
    if work.kind == "software":
        return ["-c:v", SOFTWARE[work.codec], "-preset", work.preset, "-tune", "zerolatency", "-b:v", "5M"]
    name = f"{work.codec}_nvenc"
    return ["-c:v", name, "-preset", work.preset, "-tune", "ll", "-zerolatency", "1", "-bf", "0", "-b:v", "5M"]


def _row(work: Work, samples: "Union[List[float], Missing]") -> Values:
    row: Values = {"kind": work.kind, "codec": work.codec, "preset": work.preset, "frames": None, "how": HOW}
    if isinstance(samples, Missing):
        return {**row, "median_ms": samples, "p95_ms": samples}
    late = sorted(samples)
    row["frames"] = len(late)
    return {**row, "median_ms": round(statistics.median(late), 2), "p95_ms": round(late[int(0.95 * len(late))], 2)}


def timed(argv: Sequence[str], units: Sequence[bytes], made: Mapping[str, str]) -> Union[List[float], Missing]:
    """Milliseconds of each picture after the first SETTLED; Missing with FFmpeg's reason if pictures are lost."""
    process = children.start(
        list(argv), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(made)
    )
    entered: List[float] = []
    left: List[float] = []
    stderr: List[bytes] = []
    feeding = threading.Thread(target=_feed, args=(process, units, entered), daemon=True)
    listening = threading.Thread(target=_listen, args=(process, stderr), daemon=True)
    killer = threading.Timer(len(units) / FPS + PATIENCE, lambda: children.end(process))
    for thread in (feeding, listening, killer):
        thread.start()
    try:
        assert process.stdout is not None
        while line := process.stdout.readline(LONGEST_LINE):
            if not line.startswith(b"#"):
                left.append(time.monotonic())
        code = process.wait()
    finally:
        killer.cancel()
        children.end(process)
        feeding.join(PATIENCE)
        listening.join(PATIENCE)
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe is not None:
                with contextlib.suppress(OSError):  # what could not be written any more
                    pipe.close()
    if code:
        words = decisive_line(b"".join(stderr).decode(errors="replace").splitlines())
        return Missing("command_failed", words or f"ffmpeg ended with {code}")
    if len(left) != len(units) or len(entered) != len(units):
        return Missing("unparsable", f"{len(entered)} pictures went in, and {len(left)} came out")
    late = [1000 * (out - into) for into, out in zip(entered, left)][SETTLED:]  # noqa: B905  Python 3.9
    # On a busy CPU the feeding thread may read its clock after the picture came out: such a time is dropped.
    late = [delay for delay in late if delay > 0]
    return late if len(late) >= LEAST else Missing("not_sampled", f"only {len(late)} pictures counted")


def _feed(process: "subprocess.Popen[bytes]", units: Sequence[bytes], entered: List[float]) -> None:
    assert process.stdin is not None
    due = time.monotonic()
    try:
        for unit in units:
            wait = due - time.monotonic()
            if wait > 0:
                threading.Event().wait(wait)  # the pace of a camera
            process.stdin.write(unit)
            process.stdin.flush()
            entered.append(time.monotonic())
            due += 1 / FPS
        process.stdin.close()
    except (OSError, ValueError):  # it ended: its own words say why
        return


def _listen(process: "subprocess.Popen[bytes]", stderr: List[bytes]) -> None:
    assert process.stderr is not None
    while data := os.read(process.stderr.fileno(), 65536):
        if sum(map(len, stderr)) < 65536:
            stderr.append(data)


def raw(folder: Path) -> Union[List[bytes], Missing]:
    """A few pictures as NV12."""
    size = WIDTH * HEIGHT * 3 // 2
    content = _written(
        [*_pattern(RAW_PICTURES / FPS), "-pix_fmt", "nv12", "-f", "rawvideo"], folder / "pictures.yuv", "rawvideo"
    )
    if isinstance(content, Missing):
        return content
    units = [content[at : at + size] for at in range(0, len(content) - size + 1, size)]
    return units or Missing("command_failed", "no raw picture was made")


def stream(folder: Path) -> Union[List[bytes], Missing]:
    """An H.264 stream without B-frames as FLV, cut so that each piece ends with one picture."""
    coding = ["-c:v", "libx264", "-preset", "ultrafast", "-bf", "0", "-b:v", "5M", "-g", str(FPS), "-f", "flv"]
    content = _written([*_pattern(PICTURES / FPS), *coding], folder / "stream.flv", "libx264")
    return content if isinstance(content, Missing) else pieces(content)


def _pattern(seconds: float) -> List[str]:
    return ["-f", "lavfi", "-i", f"testsrc2=s={WIDTH}x{HEIGHT}:r={FPS}:d={seconds:.3f},noise=alls=8:allf=t"]


def _written(words: Sequence[str], file: Path, encoder: str) -> Union[bytes, Missing]:
    """The output of the first ffmpeg that has `encoder`; at most 60 MB (ROOM_MIB)."""
    from gpuprep.agent.probes.transcoderun import execute

    for program in programs():
        if encoder in encoders(program):
            ran = execute([program, "-nostdin", "-v", "error", "-y", *words, str(file)], file.parent, PREPARE_SECONDS)
            if ran.outcome == "completed":
                return file.read_bytes()
    return Missing("not_installed", f"no ffmpeg here has the encoder {encoder}")


def pieces(flv: bytes) -> Union[List[bytes], Missing]:
    """FLV ─► pieces of one picture each; headers belong to the following picture."""
    pictures: List[bytes] = []
    at, begun = FLV_HEADER, 0
    while at + 11 <= len(flv):
        size = int.from_bytes(flv[at + 1 : at + 4], "big")
        end = at + 11 + size + 4
        if end > len(flv):
            break
        if flv[at] == VIDEO_TAG and size > 1 and flv[at + 12] == PICTURE:
            pictures.append(flv[begun:end])
            begun = end
        at = end
    return pictures or Missing("unparsable", "FFmpeg wrote an FLV without pictures")
