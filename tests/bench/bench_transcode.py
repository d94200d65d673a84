"""A transcode run as gpuprep runs a case, against the same FFmpeg command by itself.

    python tests/bench/bench_transcode.py

gpuprep's way reads FFmpeg's verbose words and samples the GPU twenty times a second meanwhile; what it proves about the
output afterwards happens beside the next case and is not in it. Where there is a GPU, the guide's own case is taken;
elsewhere a transcode in software of the same length, sampling a GPU that answers as fast as Python does.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gpuprep.agent.compute.sampler import COLUMNS
from gpuprep.agent.gpu.nvml import Nvml
from gpuprep.agent.probes.transcodecases import BY_ID, Case, Input, Output
from gpuprep.agent.probes.transcoderun import command, environment, lay_out, run_case
from gpuprep.agent.video import clips
from gpuprep.agent.video.clips import Clip

LIMIT = 1.1
ROUNDS = 5
SECONDS = 16.0
ON_A_GPU = ("transcode", "decode")  # the first that this GPU can do
SOFTWARE = ("libx264 -preset ultrafast", "mpeg4", "mjpeg")


class Answering:
    """A GPU whose readings cost nothing: the sampler's own work is still done."""

    index = 0

    def load(self) -> dict[str, Any]:
        return dict.fromkeys(COLUMNS, 0)

    def encoder_sessions(self) -> int:
        return 0


def transcode() -> tuple[float, float]:
    """Seconds of gpuprep's way and of plain FFmpeg, in turns, of each the fastest round: other work on the machine only
    ever adds. Ends the program where there is nothing to run.
    """
    with tempfile.TemporaryDirectory(prefix="gpuprep-bench-") as name, _gpu() as gpu:
        folder = Path(name)
        ffmpeg, case = _case(folder, gpu)
        _ours(ffmpeg, case, folder, gpu or Answering())
        _theirs(ffmpeg, case, folder)
        pairs = []
        for _ in range(ROUNDS):
            pairs.append((_ours(ffmpeg, case, folder, gpu or Answering()), _theirs(ffmpeg, case, folder)))
    return min(ours for ours, _ in pairs), min(theirs for _, theirs in pairs)


@contextlib.contextmanager
def _gpu() -> Iterator[Any]:
    with Nvml() as nvml:
        gpus = nvml.gpus()
        yield gpus[0] if isinstance(gpus, list) and gpus else None


def _case(folder: Path, gpu: Any) -> tuple[str, Case]:
    """(ffmpeg, a case that it can run), with the inputs in `folder`."""
    installed = shutil.which("ffmpeg")
    for name in ON_A_GPU if gpu is not None and installed else ():
        case = BY_ID[name]
        laid = lay_out(str(installed), case, folder, None)
        if isinstance(laid, dict) and run_case(str(installed), case, folder, gpu).outcome == "completed":
            return str(installed), case
        for path in folder.iterdir():
            path.unlink()
    for program in clips.programs():
        for encoder in SOFTWARE:
            if encoder.split()[0] in clips.encoders(program):
                case = _in_software(encoder)
                laid = lay_out(program, case, folder, None)
                if isinstance(next(iter(laid.values())) if isinstance(laid, dict) else laid, Clip):
                    return program, case
                sys.exit(f"no input for the bench: {laid}")
    sys.exit("no ffmpeg here that encodes: pip install imageio-ffmpeg")


def _in_software(encoder: str) -> Case:
    return Case(
        "bench", None, "", "transcode in software",
        (Input("input.mp4", "h264-1080p", seconds=SECONDS),),
        f"-i input.mp4 -c:a copy -c:v {encoder} -b:v 5M output.mp4",
        (Output("output.mp4", 1920, 1080),),
    )  # fmt: skip


def _ours(ffmpeg: str, case: Case, folder: Path, gpu: Any) -> float:
    start = time.perf_counter()
    ran = run_case(ffmpeg, case, folder, gpu)
    seconds = time.perf_counter() - start
    if ran.outcome != "completed":
        sys.exit(f"gpuprep's run {ran.outcome}: {ran.decisive}")
    return seconds


def _theirs(ffmpeg: str, case: Case, folder: Path) -> float:
    """As a person would: no verbose words."""
    words = command(case)
    at = words.index("-v")
    start = time.perf_counter()
    done = subprocess.run(
        [ffmpeg, *words[:at], "-v", "error", *words[at + 2 :]],
        cwd=folder, env=environment(), stdin=subprocess.DEVNULL, capture_output=True, check=False,
    )  # fmt: skip
    seconds = time.perf_counter() - start
    if done.returncode:
        sys.exit(f"plain ffmpeg ended with {done.returncode}: {done.stderr.decode(errors='replace')[-1000:]}")
    return seconds


if __name__ == "__main__":
    ours, theirs = transcode()
    print(f"{ours / theirs:.3f}x (limit {LIMIT}x): {ours:.2f} s / {theirs:.2f} s, load {os.getloadavg()[0]:.1f}")
    sys.exit(ours / theirs > LIMIT)
