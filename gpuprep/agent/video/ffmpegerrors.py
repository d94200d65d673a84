"""What FFmpeg's lines mean: the cause of a failure, the remedy, and whether the line says that the GPU lacks a feature.

FFmpeg's last line ("Conversion failed!", "No capable devices found") does not help; the cause is in a line above. The
decisive line is the first line that the table lists as a cause. Texts are from the sources of FFmpeg 5.1 to 9.0.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Optional, Sequence


@dataclass(frozen=True)
class Cause:
    """`denies`: the capability that the GPU lacks according to the driver, with "*" for any codec; "" for none."""

    pattern: str
    meaning: str
    remedy: str
    denies: str = ""


CAUSES = (
    Cause(
        r"No space left on device|Disk quota exceeded",
        "the disk is full",
        "free some room where temporary files go (TMPDIR) and validate again",
    ),
    Cause(
        r"Cannot load libcuda\.so",
        "there is no NVIDIA driver here, or a container without the GPU",
        "install or load the driver (gpuprep provision, step driver); start containers with the GPU",
    ),
    Cause(
        r"Cannot load libnvidia-encode\.so|Cannot load libnvcuvid\.so|Failed loading nvcuvid",
        "the driver's video library is missing: headless packages and containers without the video capability lack it",
        "install the driver's encode and decode libraries (gpuprep provision, step driver); in containers add the "
        "capability 'video' (NVIDIA_DRIVER_CAPABILITIES)",
    ),
    Cause(
        r"Driver does not support the required nvenc API",
        "FFmpeg was built with nv-codec-headers that are newer than the driver",
        "rebuild FFmpeg with older headers (codec.headers in the profile), or install a newer driver",
    ),
    Cause(
        r"CUDA_ERROR_SYSTEM_NOT_READY|CUDA_ERROR_SYSTEM_DRIVER_MISMATCH",
        "CUDA cannot start: Fabric Manager is not running, or the driver's parts are of two versions",
        "start nvidia-fabricmanager where there are NVSwitches, or reboot after a driver upgrade",
    ),
    Cause(
        r"CUDA_ERROR_NO_DEVICE|CUDA_ERROR_INVALID_DEVICE",
        "CUDA sees no GPU: it is lost, hidden by CUDA_VISIBLE_DEVICES, or its module is not loaded",
        "look at `nvidia-smi`; a GPU that fell off the bus comes back when the machine is stopped and started",
    ),
    Cause(
        r"CUDA_ERROR_DEVICE_UNAVAILABLE|CUDA_ERROR_COMPUTE_MODE",
        "the GPU accepts no further process: its compute mode is exclusive or prohibited",
        "set tuning.compute_mode to default, or end the process that uses the GPU",
    ),
    Cause(
        r"CUDA_ERROR_(ILLEGAL_ADDRESS|LAUNCH_FAILED|UNKNOWN|ECC_UNCORRECTABLE|HARDWARE_STACK_ERROR|CONTAINED)",
        "the GPU failed while it worked",
        "read the kernel's log for an Xid; stop and start the machine, and ask the provider if it comes again",
    ),
    Cause(
        r"OpenEncodeSessionEx failed: unsupported device",
        "this GPU has no encoder (NVENC)",
        "use a GPU with NVENC, or encode in software",
        denies="nvenc",
    ),
    Cause(
        r"OpenEncodeSessionEx failed: (out of memory|incompatible client key)",
        "no further encoder session: the session limit or the GPU's memory is used up",
        "end other encoders on this GPU and start fewer at once; consumer GPUs have a session limit of the driver",
    ),
    Cause(
        r"CUDA_ERROR_OUT_OF_MEMORY|out of memory \(10\)|: Cannot allocate memory",
        "the GPU or the machine has no memory left",
        "end other processes on the GPU, or start fewer at once",
    ),
    Cause(
        r"10 bit encode not supported",
        "the encoder has no 10-bit mode for this codec",
        "use HEVC for 10 bit",
        denies="nvenc.*.10bit",
    ),
    Cause(
        r"YUV444P not supported",
        "the encoder has no 4:4:4 mode for this codec",
        "encode 4:2:0",
        denies="nvenc.*.444",
    ),
    Cause(
        r"Temporal AQ not supported",
        "the encoder has no temporal adaptive quantization",
        "leave -temporal-aq out",
        denies="nvenc.*.temporal_aq",
    ),
    Cause(
        r"RC lookahead not supported",
        "the encoder has no look-ahead",
        "leave -rc-lookahead out",
        denies="nvenc.*.lookahead",
    ),
    Cause(
        r"Max B-frames \d+ exceed \d+",
        "the encoder supports fewer B-frames for this codec",
        "use a smaller -bf",
        denies="nvenc.*.b_frames",
    ),
    Cause(
        r"B frames? as references? (are|is) not supported",
        "the encoder cannot use B-frames as references",
        "use -b_ref_mode disabled",
        denies="nvenc.*.b_ref",
    ),
    Cause(
        r"Codec not supported",
        "the encoder does not support this codec",
        "use another codec",
        denies="nvenc.*",
    ),
    Cause(
        r"Hardware is lacking required capabilities|Codec \S+ is not supported",
        "the decoder (NVDEC) of this GPU does not support this codec or format",
        "decode it in software, or use a GPU that supports it",
        denies="nvdec.*",
    ),
    Cause(
        r"Video (width|height) \d+ not within range|Frame Dimension less than the minimum",
        "the pictures are smaller or larger than the engine supports",
        "use a size that the engine supports: 256x256 and more is safe",
    ),
    Cause(r"No decoder surfaces left", "the decoder ran out of surfaces", "raise -extra_hw_frames"),
    Cause(
        r"Using more than 32 \(\d+\) decode surfaces",
        "many cores make FFmpeg ask for more decode surfaces than NVDEC has",
        "put -threads 1 before -i",
    ),
    Cause(
        r"Unknown (encoder|decoder) '|No such filter: '|No option name near|Unrecognized option '",
        "this FFmpeg was built without a part, or is of a version that does not know the option",
        "rebuild FFmpeg with the part (gpuprep provision, step codec)",
    ),
    Cause(r"InitializeEncoder failed", "the encoder refused these settings", "read FFmpeg's lines to see which one"),
    Cause(r"Invalid data found when processing input|moov atom not found", "the input is damaged",
          "remove the kept clips (gpuprep/clips in the cache folder): they are made again"),
)  # fmt: skip
# These also follow other errors and explain less: they count only if no line above matches.
CONSEQUENCES = (
    Cause(
        r"Impossible to convert between the formats supported by the filter",
        "a filter of the CPU got pictures in the GPU's memory, or the GPU's decoder failed before",
        "read the lines above it",
    ),
    Cause(
        r"No (NVENC )?capable devices found|Provided device doesn't support required NVENC features",
        "no GPU supports the requested encoder settings",
        "read the line above it",
    ),
    Cause(
        r"Device creation failed|No device available|Failed setup for format cuda|doesn't support hardware accelerated",
        "FFmpeg could not open the GPU",
        "read the lines above it",
    ),
)
# A warning after which FFmpeg ends with 0 but has ignored an option.
UNUSED_OPTION = re.compile(r"has not been used for any stream")
LOOKS_BAD = re.compile(r"\b(error|failed|cannot|invalid|unable|not supported|denied|killed)\b", re.IGNORECASE)
PREFIX = re.compile(r"^(\[[^\]]*@ 0x[0-9a-f]+\] *)+")


def cause(line: str) -> Optional[Cause]:
    """The table's cause for one line; None if the line is not in the table."""
    for known in (*CAUSES, *CONSEQUENCES):
        if re.search(known.pattern, line):
            return known
    return None


def decisive_line(lines: Sequence[str]) -> str:
    """The line of FFmpeg's output that names the cause, without its @ address; "" if FFmpeg printed nothing."""
    messages = [PREFIX.sub("", line.strip()) for line in lines if line.strip()]
    for table in (CAUSES, CONSEQUENCES):
        for line in messages:
            if any(re.search(known.pattern, line) for known in table):
                return line
    bad = [line for line in messages if LOOKS_BAD.search(line)]
    return (bad or messages[-1:] or [""])[0]
