"""What the transcode probe measured: the commands of NVIDIA's guide, and their outputs. docs/records.md, transcode."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Optional, Union

from gpuprep.records import Missing
from gpuprep.records.evidence import NOT_RECORDED, Capabilities, Error, Figure, Names, Size, Word, Written
from gpuprep.records.evidence.shared import Ffmpeg, NamedGpu, Probe

# What ffprobe says of an output: None where the output has none of it, Missing where that was not read.
Text = Union[str, Missing, None]
Number = Union[Written, Missing, None]
NOT_ASKED = Missing("not_asked")  # of an output of which neither sound nor silence was asked for


@dataclass(frozen=True)
class Needs:
    """FFmpeg's parts and the GPU's capabilities ("nvenc.h264") that a case needs."""

    encoders: Names = ()
    decoders: Names = ()
    filters: Names = ()
    capabilities: Capabilities = ()
    lines: Names = ()  # what FFmpeg says when it uses the features that were asked for


@dataclass(frozen=True)
class Expected:
    """The expected properties of an output. None: any value; for `audio` None means no audio."""

    codec: Text = None
    profile: Text = None
    pixel_format: Text = None
    width: Number = None
    height: Number = None
    frames: Number = None
    duration_seconds: Number = None
    audio: Text = field(default=NOT_ASKED, metadata={"unfit": NOT_RECORDED})
    b_frames: Text = None  # "present" | "absent"
    bit_rate_kbps: Number = None
    asked_kbps: Number = None
    bytes: Number = None
    psnr_db: Number = None
    ssim: Number = None


@dataclass(frozen=True)
class Output:
    name: str = "?"
    expected: Union[Expected, Missing] = Expected()
    codec: Text = NOT_RECORDED
    profile: Text = NOT_RECORDED
    pixel_format: Text = NOT_RECORDED
    width: Number = NOT_RECORDED
    height: Number = NOT_RECORDED
    frames: Number = NOT_RECORDED
    duration_seconds: Number = NOT_RECORDED
    audio: Text = NOT_RECORDED
    b_frames: Union[int, Missing, None] = NOT_RECORDED
    bit_rate_kbps: Number = NOT_RECORDED
    bytes: Number = NOT_RECORDED
    psnr_db: Number = NOT_RECORDED
    ssim: Number = NOT_RECORDED
    xpsnr_db: Number = NOT_RECORDED
    quality_judged: Optional[bool] = True
    black_seconds: Number = NOT_RECORDED
    frozen_seconds: Number = NOT_RECORDED
    first_frame: str = ""  # "data:image/jpeg;base64,…"
    last_frame: str = ""
    error: Error = ""


@dataclass(frozen=True)
class GpuProof:
    """FFmpeg's own lines about the engines, and NVML's utilisation of them in per cent."""

    nvenc_lines: Union[tuple[str, ...], Missing] = NOT_RECORDED
    nvdec_lines: Union[tuple[str, ...], Missing] = NOT_RECORDED
    encoder_utilization_percent: Optional[float] = None
    decoder_utilization_percent: Optional[float] = None
    encoder_sessions: Optional[int] = None


@dataclass(frozen=True)
class Case:
    id: Word = "?"
    number: Optional[int] = None  # the row of NVIDIA's guide
    chapter: str = ""
    title: str = ""
    command: str = ""
    needs: Union[Needs, Missing] = NOT_RECORDED
    outcome: Optional[str] = None
    exit_code: Optional[int] = None
    seconds: Figure = NOT_RECORDED
    decisive_line: str = ""
    refused_in: str = ""  # of outcome "refused": the case in which the driver refused the same encoder
    missing_parts: tuple[str, ...] = ()
    warnings: Names = ()
    at_once: Optional[int] = 1  # cases at work at the same time, this one counted
    outputs: tuple[Output, ...] = ()
    gpu_proof: Union[GpuProof, Missing] = NOT_RECORDED


@dataclass(frozen=True)
class Chunks:
    """Several files into several renditions each: seconds of one process, and of one process per rendition."""

    files: Size = None
    renditions: Size = None
    one_process_seconds: Figure = NOT_RECORDED
    many_processes_seconds: Figure = NOT_RECORDED
    saved_seconds: Figure = NOT_RECORDED


@dataclass(frozen=True)
class Input:
    name: str = ""
    codec: str = ""
    width: Size = None
    height: Size = None
    frames: Size = None
    fps: Figure = NOT_RECORDED
    audio: Optional[str] = None


@dataclass(frozen=True)
class Transcode:
    quick: Optional[bool] = None
    ffmpeg: Union[Ffmpeg, Missing, None] = None
    gpu: Optional[NamedGpu] = None
    inputs: tuple[Input, ...] = ()
    cases: tuple[Case, ...] = ()
    chunks: Union[Chunks, Missing] = NOT_RECORDED


# Whether transcodes work and look right; how fast the engines are is the next one's question.
PROBE = Probe(
    "transcode", Transcode, 70, "codec", "transcodes of NVIDIA's FFmpeg guide", timeout_seconds=1200, shares_turn=True
)  # fmt: skip
