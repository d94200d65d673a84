"""Work without an output file, at the speed of the model: `-progress` reports what the engines would have made."""

from __future__ import annotations

import contextlib
import re
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from typing import TextIO

from gpuprep.agent.gpu import simgpu, simstate
from gpuprep.sim.guest import messages, pace, refusals, software
from gpuprep.sim.guest.commandline import Command
from gpuprep.sim.guest.mapping import Media, Plan

START_SECONDS = 0.35  # until the first frame: CUDA's context, the decoder, the encoder
SHARE_SECONDS = 0.5  # between looks at what else runs
SCALED = re.compile(r"\bscale_cuda=(\d{1,5}):(\d{1,5})")
FPS_FILTER = re.compile(r"\bfps=(?:fps=)?(\d+)")


def is_for(command: Command) -> bool:
    """One input, outputs that are all thrown away, and a report of progress."""
    discards = bool(command.outputs) and all(output.value("f") == "null" for output in command.outputs)
    return discards and len(command.inputs) == 1 and command.value("progress") is not None


def work_of(command: Command, plan: Plan, media: Media | None) -> pace.Work:
    """What the command asks of the engines."""
    decode = plan.decodes[0].media if plan.decodes else None
    encode = plan.encodes[0] if plan.encodes else None
    graph = command.outputs[0].value("vf", "filter") or ""
    raised = FPS_FILTER.search(graph)
    repeat = int(raised[1]) / media.fps if raised and media and media.fps else 1.0
    preset = (encode.options.get("preset", "p4") if encode else "p4").removeprefix("p")
    codec = decode.codec if decode else ""
    if decode and codec == "hevc" and "10" in decode.pixel_format:
        codec = "hevc10"
    ladder = len(plan.encodes) > 1
    if ladder and media:
        repeat = 1.0 + sum(int(w) * int(h) for w, h in SCALED.findall(command.value("filter_complex") or "")) / max(
            media.width * media.height, 1
        )
    return pace.Work(
        decode_codec=codec,
        encode_codec=encode.codec if encode else "",
        preset=int(preset) if preset.isdigit() else 4,
        width=media.width if media else 1920,
        height=media.height if media else 1080,
        encode=repeat if encode else 0.0,
        delivered=1.0 if ladder else 0.0,
    )


def run(command: Command, plan: Plan, media: Sequence[Media | None], gpu: simgpu.Gpu) -> int:
    """Runs until the input ends or we are told to end; returns ffmpeg's exit code."""
    work = work_of(command, plan, media[0])
    known = media[0]
    total = (known.frames if known else 0) * (work.delivered or work.encode or 1.0)
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    with software.sessions(plan, gpu, busy=False) as refused, _report(command.value("progress") or "-") as report:
        if refused is not None:
            for place, text in refused.lines:
                messages.say(place, text)
            return refused.exit_code
        period = float(command.value("stats_period") or 0.5)
        frames = _frames(work, gpu, total, period, stop, report, known.fps if known else 25.0)
    if frames < 0:
        lost = refusals.lost_meanwhile()
        for place, text in lost.lines:
            messages.say(place, text)
        return lost.exit_code
    if stop.is_set():
        messages.say("", "Exiting normally, received signal 15.")
        return 255
    return 0


def _frames(
    work: pace.Work, gpu: simgpu.Gpu, total: float, period: float, ended: threading.Event, report: TextIO, fps: float
) -> float:
    """Reports progress until all frames are made; returns their number, -1 if the GPU was lost."""
    frames, told_of, looked = 0.0, 0.0, 0.0
    begun = time.monotonic()
    ended.wait(START_SECONDS)
    values = software.shown(gpu)
    values |= {"decodes": int(bool(work.decode_codec)), "encodes": int(bool(work.encode))}
    speed = pace.Rate(0.0, 0.0, 0.0)
    last = time.monotonic()
    with simstate.load(gpu.index, values, gpu.folder) as load:
        while frames < total and not ended.is_set():
            now = time.monotonic()
            if now - looked >= SHARE_SECONDS:
                looked = now
                if software.is_lost(gpu):
                    return -1.0
                speed = _share(work, gpu)
                load.change(
                    {**values, "decoder": round(speed.decoder_percent), "encoder": round(speed.encoder_percent)}
                )
            frames = min(total, frames + speed.fps * (now - last))
            last = now
            if now - told_of >= period:
                told_of = now
                _tell(report, frames, now - begun, fps, "continue")
            ended.wait(period)
    _tell(report, frames, time.monotonic() - begun, fps, "end")
    return frames


def _share(work: pace.Work, gpu: simgpu.Gpu) -> pace.Rate:
    """Our part of the engines now, at the clock that they have now."""
    now = simgpu.current(gpu)
    others = simstate.loads(gpu.index, gpu.folder)
    decoding = sum(load.get("decodes") == "1" for load in others)
    encoding = sum(load.get("encodes") == "1" for load in others)
    return pace.rate(work, now.video, now.video_clock_mhz(), decoding, encoding)


def _tell(report: TextIO, frames: float, seconds: float, fps: float, progress: str) -> None:
    made = int(frames)
    out = made / fps
    clock = f"{int(out // 3600):02d}:{int(out // 60) % 60:02d}:{out % 60:09.6f}"
    report.write(
        f"frame={made}\nfps={made / max(seconds, 0.001):.2f}\nstream_0_0_q=-0.0\nbitrate=N/A\ntotal_size=N/A\n"
        f"out_time_us={round(out * 1e6)}\nout_time_ms={round(out * 1e6)}\nout_time={clock}\ndup_frames=0\n"
        f"drop_frames=0\nspeed={out / max(seconds, 0.001):.3g}x\nprogress={progress}\n"
    )
    report.flush()


@contextlib.contextmanager
def _report(target: str) -> Iterator[TextIO]:
    if target in ("-", "pipe:1"):
        yield sys.stdout
    elif target == "pipe:2":
        yield sys.stderr
    else:
        with open(target.removeprefix("file:"), "w", encoding="utf-8") as file:
            yield file
