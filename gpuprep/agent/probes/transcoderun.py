"""One transcode: its inputs laid out in a folder, FFmpeg run in it, its output and NVML's readings during the run."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Dict, List, Optional, Sequence, Set, Tuple, Union

from gpuprep.agent.compute.sampler import Sampler
from gpuprep.agent.probes.transcodecases import PREFIX, RAW_FRAMES, Case, Input
from gpuprep.agent.programs import children
from gpuprep.agent.video.clips import Clip, clip
from gpuprep.agent.video.ffmpegerrors import PREFIX as PLACE
from gpuprep.agent.video.ffmpegerrors import UNUSED_OPTION, decisive_line
from gpuprep.records import Missing

if TYPE_CHECKING:
    from gpuprep.agent.gpu.nvml import Gpu

PREPARE_SECONDS = 60.0
KEPT_BYTES = 400_000  # of what FFmpeg says, from its begin and from its end
KEPT_LINES = 12
Running = Set["subprocess.Popen[bytes]"]
# What FFmpeg's CUDA parts say at -v verbose when the GPU works for them.
NVENC_LINE = re.compile(
    r"Loaded Nvenc version|Nvenc initialized successfully|Lookahead enabled|AQ enabled|\(\w+_nvenc\)"
)
NVDEC_LINE = re.compile(
    r"NVDEC capabilities:|format supported: |CUVID capabilities for|pix_?fmt: ?cuda|Failed setup for format cuda"
)


@dataclass
class Ran:
    """How one command ended. `outcome` is one of docs/records.md."""

    outcome: str
    seconds: float = 0.0
    exit_code: Optional[int] = None
    lines: List[str] = field(default_factory=list)
    reason: str = ""  # where FFmpeg itself printed nothing of it
    refused_in: str = ""  # the case in which the driver refused this one's encoder
    encoder_utilization: Any = None
    decoder_utilization: Any = None
    encoder_sessions: Any = None

    @property
    def decisive(self) -> str:
        if self.outcome == "completed":
            return ""
        return self.reason or decisive_line(self.lines)

    @property
    def warnings(self) -> List[str]:
        """Warnings that mean that FFmpeg ignored a part of the command, although it ended with 0."""
        return [PLACE.sub("", line) for line in self.lines if UNUSED_OPTION.search(line)]

    def proof(self) -> Dict[str, Any]:
        return {
            "nvenc_lines": _few(self.lines, NVENC_LINE),
            "nvdec_lines": _few(self.lines, NVDEC_LINE),
            "encoder_utilization_percent": self.encoder_utilization,
            "decoder_utilization_percent": self.decoder_utilization,
            "encoder_sessions": self.encoder_sessions,
        }


class _Watched:
    """A GPU whose load also has the number of encoder sessions, for the sampler."""

    def __init__(self, gpu: Gpu) -> None:
        self.index = gpu.index
        self._gpu = gpu
        self.sessions: Union[int, Missing, None] = None

    def load(self) -> Dict[str, Any]:
        now = self._gpu.encoder_sessions()
        if isinstance(self.sessions, int) and isinstance(now, int):
            self.sessions = max(self.sessions, now)
        elif not isinstance(self.sessions, int):
            self.sessions = now
        return self._gpu.load()


def environment() -> Dict[str, str]:
    """Our environment, with messages in English and GPUs in NVML's order: CUDA's own order has the fastest first."""
    return {**os.environ, "LC_ALL": "C", "AV_LOG_FORCE_NOCOLOR": "1", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}


def lay_out(ffmpeg: str, case: Case, folder: Path, clips: Optional[Path]) -> Union[Dict[str, Clip], Missing]:
    """Put the case's inputs into `folder`. Returns input file ► the clip of its pictures; Missing for a failure."""
    input_clips: Dict[str, Clip] = {}
    try:
        for item in case.inputs:
            source = clip(item.clip, item.seconds, within=clips)
            if isinstance(source, Missing):
                return source
            refusal = _make(ffmpeg, item, source.path, folder / item.file)
            if refusal is not None:
                return refusal
            input_clips[item.file] = source
    except OSError as error:
        return Missing("command_failed", f"inputs of {case.id}: {error}")
    return input_clips


def _make(ffmpeg: str, item: Input, source: Path, target: Path) -> Optional[Missing]:
    if item.kind == "clip":
        target.symlink_to(source)
        return None
    argv = [ffmpeg, "-hide_banner", "-nostdin", "-v", "error", "-y", "-i", str(source), "-map", "0:v:0"]
    if item.kind == "stream":
        argv += ["-c", "copy", "-f", "h264", str(target)]
    else:
        shape = f"scale={item.width}:{item.height},format={item.pixel_format}"
        argv += ["-frames:v", str(RAW_FRAMES), "-vf", shape, "-f", "rawvideo", str(target)]
    ran = execute(argv, target.parent, PREPARE_SECONDS)
    if ran.outcome == "completed":
        return None
    return Missing("command_failed", f"{target.name} could not be made: {ran.decisive}")


def command(case: Case) -> List[str]:
    """FFmpeg's arguments."""
    return [*PREFIX, *shlex.split(case.arguments)]


def run_case(ffmpeg: str, case: Case, folder: Path, gpu: Optional[Gpu], running: Optional[Running] = None) -> Ran:
    """Run the case in `folder`, with NVML's readings if `gpu` is given. `running` has the process meanwhile."""
    argv = [ffmpeg, *command(case)]
    if gpu is None:
        return execute(argv, folder, case.timeout_seconds, running=running)
    watched = _Watched(gpu)
    with Sampler([watched]) as sampler:
        ran = execute(argv, folder, case.timeout_seconds, running=running)
    ran.encoder_utilization = sampler.highest(gpu.index, "encoder_utilization_percent")
    ran.decoder_utilization = sampler.highest(gpu.index, "decoder_utilization_percent")
    ran.encoder_sessions = watched.sessions
    return ran


def execute(
    argv: Sequence[str],
    folder: Path,
    timeout: float,
    extra: Optional[Dict[str, str]] = None,
    running: Optional[Running] = None,
) -> Ran:
    """Run FFmpeg to its end or `timeout`. If it cannot be started, that is an outcome, too."""
    started = time.monotonic()
    try:
        process = children.start(
            list(argv), cwd=str(folder), env={**environment(), **(extra or {})},
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        )  # fmt: skip
    except OSError as error:
        return Ran("failed", reason=f"{argv[0]} could not be started: {error}")
    running = set() if running is None else running
    running.add(process)
    timed_out = False
    try:
        _, stderr = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        timed_out = True
        children.end(process)
        _, stderr = process.communicate()
    finally:
        running.discard(process)
        children.end(process)
    seconds, code = time.monotonic() - started, process.returncode
    ran = Ran("completed" if code == 0 else "failed", seconds, code, _lines(stderr))
    if timed_out:
        ran.outcome, ran.reason = "timed_out", f"ffmpeg was stopped after {timeout:g} s"
    elif code < 0:
        ran.reason = f"ffmpeg was killed by signal {-code}"
    return ran


def missing_parts(case: Case, parts: Dict[str, Any]) -> List[str]:
    """The case's needs that this build of FFmpeg lacks: "filter scale_npp"."""
    kinds: Tuple[Tuple[str, str, Tuple[str, ...]], ...] = (
        ("encoder", "encoders", case.encoders), ("decoder", "decoders", case.decoders),
        ("filter", "filters", case.filters), ("hwaccel", "hwaccels", case.hwaccels),
    )  # fmt: skip
    return [f"{kind} {name}" for kind, plural, names in kinds for name in names if name not in parts[plural]]


def _lines(stderr: Optional[bytes]) -> List[str]:
    text = stderr or b""
    if len(text) > 2 * KEPT_BYTES:
        text = text[:KEPT_BYTES] + b"\n" + text[-KEPT_BYTES:]
    return text.decode(errors="replace").replace("\r", "\n").splitlines()


def _few(lines: Sequence[str], pattern: "re.Pattern[str]") -> List[str]:
    """The first lines that match, each once, without addresses."""
    distinct = dict.fromkeys(PLACE.sub("", line.strip()) for line in lines if pattern.search(line))
    return list(distinct)[:KEPT_LINES]
