"""The tarballs of a build: fetched once, believed by their sha256 alone."""

from __future__ import annotations

import hashlib
import os
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path

from gpuprep import catalogue
from gpuprep.desired.profile import CodecWish
from gpuprep.errors import GpuprepError
from gpuprep.paths import cache_dir

MOST_BYTES = 256 << 20
SECONDS = 60
Progress = Callable[[str], None]


def fetch(
    codec: CodecWish,
    mirrors: Mapping[str, str],
    progress: Progress,
    known: Callable[[str], Mapping[str, catalogue.Source]] = catalogue.source,
) -> dict[str, Path]:
    """The name in the build folder ► the file here: ffmpeg.tar, ffmpeg.tar.asc and headers.tar. Raises GpuprepError."""
    ffmpeg = known("ffmpeg")[codec.ffmpeg]
    headers = known("nv_codec_headers")[codec.headers]
    url = _mirrored(ffmpeg.url, mirrors.get("ffmpeg"))
    return {
        "ffmpeg.tar": _file(url, ffmpeg.sha256, progress),
        # Its own signature proves it: the build checks it with FFmpeg's release key.
        "ffmpeg.tar.asc": _file(f"{url}.asc", (), progress),
        "headers.tar": _file(_mirrored(headers.url, mirrors.get("nv_codec_headers")), headers.sha256, progress),
    }


def _mirrored(url: str, mirror: str | None) -> str:
    return f"{mirror.rstrip('/')}/{url.rpartition('/')[2]}" if mirror else url


def _file(url: str, known: tuple[str, ...], progress: Progress) -> Path:
    path = cache_dir() / "sources" / url.rpartition("/")[2]
    if path.is_file() and (not known or digest(path) in known):
        return path
    progress(f"fetching {url}")
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with urllib.request.urlopen(url, timeout=SECONDS) as answer, temporary.open("wb") as file:
            room = MOST_BYTES
            while block := answer.read(min(1 << 20, room + 1)):
                room -= len(block)
                if room < 0:
                    raise GpuprepError(f"{url} is larger than {MOST_BYTES >> 20} MiB", "is the mirror right?")
                file.write(block)
        checksum = digest(temporary)
        if known and checksum not in known:
            raise GpuprepError(
                f"{url} has the sha256 {checksum}, and {' or '.join(known)} is wanted", "try another mirror"
            )
        temporary.rename(path)
    except (urllib.error.URLError, OSError) as error:
        reason = getattr(error, "reason", error)
        raise GpuprepError(f"{url} could not be fetched: {reason}", "set a mirror: docs/mirrors.md") from None
    finally:
        temporary.unlink(missing_ok=True)
    return path


def digest(path: Path) -> str:
    return sha256(path.read_bytes())


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
