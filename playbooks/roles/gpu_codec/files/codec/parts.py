"""FFmpeg's configure options, and whether a build has the parts that were asked for."""

from __future__ import annotations

import subprocess
from pathlib import Path

from state import Spec

# Kinds of parts as the profile names them, and as FFmpeg's configure does.
KINDS = {
    "encoders": "encoder",
    "decoders": "decoder",
    "filters": "filter",
    "hwaccels": "hwaccel",
    "muxers": "muxer",
    "demuxers": "demuxer",
    "parsers": "parser",
    "bsfs": "bsf",
    "protocols": "protocol",
    "indevs": "indev",
}
# gpl: some measuring filters need it. cuda-llvm: clang compiles the CUDA filters, no toolkit, nothing nonfree.
BASE_FLAGS = [
    "--disable-everything",
    "--disable-autodetect",
    "--disable-doc",
    "--disable-debug",
    "--disable-ffplay",
    "--enable-gpl",
    "--enable-ffnvcodec",
    "--enable-nvenc",
    "--enable-nvdec",
    "--enable-cuvid",
    "--enable-cuda-llvm",
]
NPP_FLAGS = ["--enable-nonfree", "--enable-libnpp"]


class Refused(Exception):
    """One line: what is wrong with what, expected and found."""


def wished(spec: Spec, kind: str) -> list[str]:
    """The parts of one kind. libnpp is there for scale_npp, so npp brings it."""
    names = list(spec["parts"].get(kind, []))
    return [*names, "scale_npp"] if kind == "filters" and spec["npp"] and "scale_npp" not in names else names


def flags(spec: Spec) -> list[str]:
    """FFmpeg's configure options, in a settled order."""
    parts = [f"--enable-{KINDS[kind]}={name}" for kind in KINDS for name in wished(spec, kind)]
    prefix = Path(spec["prefix"]) / "ffmpeg" / "current"
    return [f"--prefix={prefix}", *BASE_FLAGS, *(NPP_FLAGS if spec["npp"] else []), *parts]


def components(spec: Spec) -> list[str]:
    """The parts as FFmpeg's config_components.h names them: H264_NVENC_ENCODER."""
    unknown = sorted(set(spec["parts"]) - set(KINDS))
    if unknown:
        raise Refused(f"no such kind of FFmpeg part: {', '.join(unknown)}; kinds are {', '.join(KINDS)}")
    return [f"{name}_{KINDS[kind]}".upper() for kind in KINDS for name in wished(spec, kind)]


def check_parts(spec: Spec, folder: Path, user: str | None = None) -> None:
    """Ask the build itself what it has. `-encoders` proves the build, not the GPU."""
    missing = []
    for kind in ("encoders", "decoders", "filters"):
        have = listed(ask(folder, f"-{kind}", user))
        missing += [f"{KINDS[kind]} {name}" for name in wished(spec, kind) if name not in have]
    if spec["parts"].get("hwaccels") and "cuda" not in ask(folder, "-hwaccels", user).split():
        missing.append("hwaccel cuda")
    configured = ask(folder, "-buildconf", user).split()
    missing += [flag for flag in flags(spec) if flag not in configured]
    if missing:
        raise Refused(f"the new FFmpeg lacks: {', '.join(missing)}")


def ask(folder: Path, option: str, user: str | None) -> str:
    command = [str(folder / "bin" / "ffmpeg"), "-hide_banner", option]
    try:
        # subprocess: a file just received is not run as root.
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, user=user)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Refused(f"the new FFmpeg does not run: {error}") from error
    if done.returncode != 0:
        raise Refused(f"`ffmpeg {option}` ended with {done.returncode}: {done.stderr.strip()[-300:]}")
    return done.stdout


def listed(output: str) -> set[str]:
    """Names in the listing of `-encoders`, `-decoders` or `-filters`: the second column."""
    rows = (line.split() for line in output.splitlines())
    return {row[1] for row in rows if len(row) > 2 and row[1] != "="}
