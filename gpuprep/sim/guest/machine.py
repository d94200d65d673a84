"""What a command of ffmpeg finds in the simulated VM: the GPU, the build's parts, the inputs, the software encoder."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpuprep.agent import host_paths
from gpuprep.agent.gpu import simgpu, simstate
from gpuprep.sim.guest.commandline import Command, File
from gpuprep.sim.guest.mapping import Media

# Where an ffmpeg with software encoders may be: the agent's environment has the Python package imageio-ffmpeg.
SOFTWARE = (
    ("/usr/lib/gpuprep-sim", "ffmpeg-software"),
    (host_paths.AGENT_LIBRARIES, "python3*/site-packages/imageio_ffmpeg/binaries/ffmpeg-*"),
    ("/usr/bin", "ffmpeg"),
)
DEFAULT_HEADERS = "12.1"
LDCONFIG = "/sbin/ldconfig"


@dataclass(frozen=True)
class Machine:
    """`gpu` is None where every GPU that the command may use is lost; `missing_library` is what the loader does not
    find; `cuda_error` why CUDA gives no context although the GPU is there, both "" for none."""

    gpu: simgpu.Gpu | None
    nvenc_api: str
    headers: str
    missing_library: str
    cuda_error: str
    parts: dict[str, list[str]]


def look(command: Command, real: Path, folder: Path = simstate.FOLDER) -> Machine:
    """`real` is the ffmpeg that was called."""
    state = simstate.read(folder)
    gpus = [simgpu.Gpu(index, section, folder) for index, section in enumerate(simstate.gpu_sections(state))]
    manifest = _manifest(real)
    headers = ".".join(str(manifest.get("headers_version", DEFAULT_HEADERS)).split(".")[:2])
    parts = manifest.get("parts")
    gpu = _chosen(gpus, command, os.environ.get("CUDA_VISIBLE_DEVICES"))
    return Machine(
        gpu=gpu,
        nvenc_api=state.get("system", {}).get("nvenc_api", headers),
        headers=headers,
        missing_library=missing_library(),
        cuda_error=_cuda_error(state.get("system", {}), gpu),
        parts=parts if isinstance(parts, dict) else {},
    )


PROHIBITED, EXCLUSIVE_PROCESS = 2, 3  # nvmlComputeMode_t


def _cuda_error(system: dict[str, str], gpu: simgpu.Gpu | None) -> str:
    """What CUDA answers where the driver's parts differ or the compute mode lets nobody else in."""
    if system.get("installed_driver", system.get("driver")) != system.get("driver"):
        return "cu->cuInit(0) failed -> CUDA_ERROR_SYSTEM_DRIVER_MISMATCH: system has unsupported driver combination"
    mode = gpu.number("compute_mode") if gpu else 0
    taken = mode == EXCLUSIVE_PROCESS and gpu is not None and bool(simstate.loads(gpu.index, gpu.folder))
    if mode == PROHIBITED or taken:
        return "cu->cuCtxCreate() failed -> CUDA_ERROR_DEVICE_UNAVAILABLE: CUDA-capable device(s) is/are busy"
    return ""


def _manifest(real: Path) -> dict[str, Any]:
    try:
        document = json.loads((real.parent.parent / "manifest.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return document if isinstance(document, dict) else {}


def _chosen(gpus: Sequence[simgpu.Gpu], command: Command, visible: str | None) -> simgpu.Gpu | None:
    """CUDA numbers what is visible; a list ends at the first name that is none. A lost GPU is none of CUDA's."""
    living = [gpu for gpu in gpus if not gpu.lost]
    if visible is not None:
        wanted = []
        for word in visible.split(","):
            match = [g for g in living if word.strip() == str(g.index) or (len(word) > 4 and g.uuid.startswith(word))]
            if not match:
                break
            wanted.append(match[0])
        living = wanted
    number = _device_number(command)
    return living[number] if number < len(living) else None


def _device_number(command: Command) -> int:
    named = [file.value("hwaccel_device") for file in command.inputs] + [f.value("gpu") for f in command.outputs]
    created = (command.value("init_hw_device") or "").partition(":")[2].split(",")[0]
    return next((int(word) for word in [*named, created] if word and word.isdigit()), 0)


def missing_library() -> str:
    """The first of the driver's video libraries that the loader's list has not."""
    done = subprocess.run([LDCONFIG, "-p"], capture_output=True, text=True, check=False)
    wanted = ("libcuda.so.1", "libnvcuvid.so.1", "libnvidia-encode.so.1")
    return next((name for name in wanted if f"\t{name} " not in done.stdout), "") if done.returncode == 0 else ""


def software() -> Path | None:
    """An ffmpeg with software encoders, or None."""
    for folder, pattern in SOFTWARE:
        programs = sorted(path for path in Path(folder).glob(pattern) if os.access(path, os.X_OK))
        if programs:
            return programs[-1]
    return None


def media(file: File, real: Path) -> Media | None:
    """The video of an input, by ffprobe or, of raw pictures, by the options; None where there is none to read."""
    if file.value("f") == "rawvideo":
        width, _, height = (file.value("s", "video_size") or "0x0").partition("x")
        return Media("rawvideo", file.value("pix_fmt", "pixel_format") or "yuv420p", int(width), int(height))
    entries = "stream=codec_name,pix_fmt,width,height,r_frame_rate,nb_frames,profile:format=duration"
    format_of = ["-f", kind] if (kind := file.value("f")) else []
    asked = ["-v", "error", "-select_streams", "v:0", "-show_entries", entries, "-of", "json", *format_of, file.url]
    try:
        done = subprocess.run(
            [str(real.with_name("ffprobe")), *asked],
            capture_output=True,
            text=True,
            check=False,
            stdin=subprocess.DEVNULL,
        )
        document = json.loads(done.stdout)
        return _media(document["streams"][0], document.get("format", {}))
    except (OSError, ValueError, KeyError, IndexError):
        return None


def _media(stream: dict[str, Any], container: dict[str, Any]) -> Media:
    over, _, under = str(stream.get("r_frame_rate", "25/1")).partition("/")
    fps = float(over) / float(under or 1) if re.fullmatch(r"\d+", over) and under != "0" else 25.0
    counted = str(stream.get("nb_frames", ""))
    frames = int(counted) if counted.isdigit() else round(float(container.get("duration") or 0) * fps)
    return Media(
        stream["codec_name"], stream.get("pix_fmt", ""), int(stream["width"]), int(stream["height"]), fps, frames,
        str(stream.get("profile", "")),
    )  # fmt: skip
