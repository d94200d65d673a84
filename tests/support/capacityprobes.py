"""What `gpuprep capacity` measures: the series it plans, and quality and latency by a real FFmpeg on the CPU."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ffmpegplans

from gpuprep.agent.probes import latency, quality
from gpuprep.agent.probes.codec import filters
from gpuprep.agent.probes.transcoderun import execute
from gpuprep.agent.programs import children
from gpuprep.agent.programs.run import run
from gpuprep.agent.video import clips, throughputplan
from gpuprep.records import Missing
from gpuprep.sim import gpus
from gpuprep.sim.guest import commandline, pace, paced

REAL = next((one for one in clips.programs() if {"libx264", "rawvideo"} <= set(clips.encoders(one))), None) or ""
SECONDS = 300.0  # ends a hang


@dataclass(frozen=True)
class Planned:
    """A series that would be measured, and its command with 30 pictures a second of in.mp4."""

    kind: str
    codec: str
    preset: str | None
    width: int
    needs: str
    clip: str
    clip_width: int
    engines: int | None
    command: list[str]


def planned(*, nvenc: int, nvdec: int, daily: bool = False) -> list[Planned]:
    """Of a GPU with these engines. `daily`: what `gpuprep validate` measures of them."""
    engines = throughputplan.Engines(nvenc, nvdec)
    every = throughputplan.plan(False, engines) if daily else throughputplan.capacity_plan(engines)
    return [
        Planned(
            one.kind, one.codec, one.preset, one.size[0], one.needs, one.clip, clips.SPECS[one.clip].width,
            throughputplan.engines_of(one, engines), throughputplan.command("ffmpeg", one, Path("in.mp4"), 30),
        )
        for one in every
    ]  # fmt: skip


def clip_and_a_worse_one(folder: Path) -> tuple[Path, Path]:
    """A clip, and the same at a low rate."""
    source, worse = folder / "in.mp4", folder / "out.mp4"
    made = ["-f", "lavfi", "-i", "testsrc2=s=320x240:r=30:d=1", "-c:v", "libx264", "-qp", "0", "-pix_fmt", "yuv420p"]
    for words in ([*made, str(source)], ["-i", str(source), "-c:v", "libx264", "-b:v", "100k", str(worse)]):
        assert execute([REAL, "-v", "error", *words], folder, SECONDS).outcome == "completed"
    return source, worse


def compared(source: Path, other: Path, have: Sequence[str] | None = None) -> dict[str, Any]:
    """The quality of `other`, by the filters of this FFmpeg or those that it is said to `have`."""
    listed = run([REAL, "-hide_banner", "-filters"])
    assert isinstance(listed, str)
    clip = clips.Clip("x", source, "h264", 320, 240, "yuv420p", 30, 1.0)
    return quality._compared(REAL, clip, other, filters(listed) if have is None else have)


def latency_of_decoding() -> tuple[list[float] | Missing, int]:
    """Milliseconds of the pictures of a whole stream that the CPU decodes, and how many pictures it has."""
    with children.scratch("test", 96) as folder:
        units = latency.stream(folder)
    assert isinstance(units, list)
    gpu_words = {"-hwaccel", "cuda", "-hwaccel_output_format"}
    said = [word for word in latency.command(latency.Work("decode", "h264", "")) if word not in gpu_words]
    at = said.index("-vf")
    return latency.timed([REAL, *said[:at], *said[at + 2 :]], units, {}), len(units)


def latency_on_a_gpu(pictures: int) -> list[float] | Missing:
    """Of encoding on the GPU, where there is none."""
    units = [b"\0" * (latency.WIDTH * latency.HEIGHT * 3 // 2)] * pictures
    return latency.timed([REAL, *latency.command(latency.Work("encode", "h264", "p4"))], units, {})


def pieces(flv: bytes) -> list[bytes] | Missing:
    return latency.pieces(flv)


def simulated_ladder(encodes: float | None = None) -> tuple[float, float, float]:
    """What a ladder delivers, what it encodes in pictures of 1080p, and its frames a second on a simulated T4.

    `encodes`: its speed if it encoded so much.
    """
    series = throughputplan.Series("ladder", "h264", "p3", True)
    words = throughputplan.command("ffmpeg", series, Path("in.mp4"), 30)[1:]
    parsed = commandline.parse(words)
    assert paced.is_for(parsed)
    work = paced.work_of(parsed, ffmpegplans.planned(shlex.join(words)), ffmpegplans.HD)
    if encodes is not None:
        work = dataclasses.replace(work, encode=encodes)
    video = gpus.models()["t4"].data["performance"]["video"]
    return work.delivered, work.encode, pace.rate(work, video, 1500, 1, 1).fps
