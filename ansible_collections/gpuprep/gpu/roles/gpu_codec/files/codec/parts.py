"""FFmpeg's configure options, and whether a build has the parts that were asked for."""

from __future__ import annotations

import contextlib
import os
import pwd
import resource
import signal
import subprocess
import tempfile
from pathlib import Path
from typing import IO, Any

from state import Spec

LISTING_SECONDS = 60
LISTING_BYTES = 1 << 20  # `-encoders` of everything that FFmpeg has is 30 kB

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
# Libraries of the system. OpenSSL 3 is under the Apache License, which fits version 3 of the GPL alone.
LIBRARY_FLAGS = {
    "gnutls": ["--enable-gnutls"],
    "openssl": ["--enable-openssl", "--enable-version3"],
    "srt": ["--enable-libsrt"],
    "freetype": ["--enable-libfreetype"],
    "fontconfig": ["--enable-libfontconfig"],
    "harfbuzz": ["--enable-libharfbuzz"],
    "ass": ["--enable-libass"],
    "opus": ["--enable-libopus"],
    "x264": ["--enable-libx264"],
    "x265": ["--enable-libx265"],
    "zlib": ["--enable-zlib"],
}
# As configure calls it: as `ffmpeg -encoders` does.
LISTED_AS = {"movtext": "mov_text"}


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
    return [f"--prefix={prefix}", *BASE_FLAGS, *(NPP_FLAGS if spec["npp"] else []), *library_flags(spec), *parts]


def library_flags(spec: Spec) -> list[str]:
    wanted = spec.get("libraries", [])
    unknown = sorted(set(wanted) - set(LIBRARY_FLAGS))
    if unknown:
        raise Refused(f"no such library: {', '.join(unknown)}; libraries are {', '.join(LIBRARY_FLAGS)}")
    return [flag for name, several in LIBRARY_FLAGS.items() if name in wanted for flag in several]


def licence(spec: Spec) -> str:
    """As FFmpeg's configure decides."""
    if spec["npp"]:
        return "nonfree: it may be used, and not be given to others"
    return f"GPL version {3 if '--enable-version3' in library_flags(spec) else 2} or later"


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
        missing += [f"{KINDS[kind]} {name}" for name in wished(spec, kind) if LISTED_AS.get(name, name) not in have]
    if spec["parts"].get("hwaccels") and "cuda" not in ask(folder, "-hwaccels", user).split():
        missing.append("hwaccel cuda")
    configured = ask(folder, "-buildconf", user).split()
    missing += [flag for flag in flags(spec) if flag not in configured]
    if missing:
        raise Refused(f"the new FFmpeg lacks: {', '.join(missing)}")


def ask(folder: Path, option: str, user: str | None) -> str:
    """What the build's ffmpeg prints. As `user` it has that user's one group, no terminal, and room for a listing."""
    who: dict[str, Any] = {}
    if user:  # a file just received is not run as root, nor with a group of root's
        account = pwd.getpwnam(user)
        who = {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}
    command = [str(folder / "bin" / "ffmpeg"), "-hide_banner", option]
    with tempfile.TemporaryFile() as said, tempfile.TemporaryFile() as complained:
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=complained,
                cwd="/",
                env={"PATH": "/usr/bin:/bin", "LC_ALL": "C"},
                start_new_session=True,
                preexec_fn=confine,
                **who,
            )
        except OSError as error:
            raise Refused(f"the new FFmpeg does not run: {error}") from error
        try:
            code = process.wait(LISTING_SECONDS)
        except subprocess.TimeoutExpired as error:
            raise Refused(f"the new FFmpeg does not run: {error}") from error
        finally:
            with contextlib.suppress(ProcessLookupError):  # whatever it started ends with it
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        if code != 0:
            raise Refused(f"`ffmpeg {option}` ended with {code}: {text_of(complained).strip()[-300:]!a}")
        return text_of(said)


def confine() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (LISTING_BYTES, LISTING_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (LISTING_SECONDS, LISTING_SECONDS))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def text_of(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read(LISTING_BYTES).decode(errors="replace")


def listed(output: str) -> set[str]:
    """Names in the listing of `-encoders`, `-decoders` or `-filters`: the second column."""
    rows = (line.split() for line in output.splitlines())
    return {row[1] for row in rows if len(row) > 2 and row[1] != "="}
