"""nv-codec-headers, and the FFmpeg that a plain `ffmpeg` starts."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any, Dict, Union

from gpuprep.onhost import parse
from gpuprep.onhost.manifest import NAME, is_intact, read_manifest
from gpuprep.onhost.run import read_text, run
from gpuprep.records import CodecFacts, Missing, OptStr

# pkg-config's own search order, for machines on which pkg-config is not installed.
PKG_CONFIG_PLACES = (
    "/usr/local/lib/{triplet}/pkgconfig", "/usr/local/lib/pkgconfig", "/usr/local/share/pkgconfig",
    "/usr/lib/{triplet}/pkgconfig", "/usr/lib64/pkgconfig", "/usr/lib/pkgconfig", "/usr/share/pkgconfig",
)  # fmt: skip


def codec_facts(ffmpeg: OptStr) -> CodecFacts:
    headers = headers_version()
    if not isinstance(ffmpeg, str):
        return CodecFacts(headers, ffmpeg, ffmpeg, ffmpeg, ffmpeg, ffmpeg if isinstance(ffmpeg, Missing) else None)
    real = os.path.realpath(ffmpeg)
    folder = _manifest_folder(Path(real))
    manifest = read_manifest(folder)
    return CodecFacts(
        headers_version=headers,
        ffmpeg_path=ffmpeg,
        ffmpeg_real_path=real,
        ffmpeg_version=ffmpeg_version(ffmpeg),
        build_key=_key(manifest, folder),
        manifest_intact=is_intact(folder, manifest) if isinstance(manifest, dict) else manifest,
        redistributable=_redistributable(manifest, folder),
    )


def headers_version() -> OptStr:
    text = run(["pkg-config", "--modversion", "ffnvcodec"], accept=(0, 1))
    if isinstance(text, str):
        return text.strip() or None
    if text.reason != "command_not_found":
        return text
    for pattern in PKG_CONFIG_PLACES:
        found = read_text(Path(pattern.format(triplet=f"{platform.machine()}-linux-gnu")) / "ffnvcodec.pc")
        if isinstance(found, str):
            return parse.pkg_config_version(found) or Missing("unparsable", "ffnvcodec.pc names no version")
    return None


def ffmpeg_version(ffmpeg: str) -> OptStr:
    text = run([ffmpeg, "-hide_banner", "-version"])
    if isinstance(text, Missing):
        return text
    return parse.ffmpeg_version(text) or Missing("unparsable", f"{ffmpeg} -version: {text.strip():.80}")


def _manifest_folder(program: Path) -> Path:
    """<build>/bin/ffmpeg or <build>/ffmpeg ─► <build>."""
    return program.parent if (program.parent / NAME).exists() else program.parent.parent


def _key(manifest: Union[Dict[str, Any], Missing, None], folder: Path) -> OptStr:
    if not isinstance(manifest, dict):
        return manifest
    key = manifest.get("key")
    return key if isinstance(key, str) else Missing("unparsable", f"{folder / NAME} has no key")


def _redistributable(manifest: Union[Dict[str, Any], Missing, None], folder: Path) -> Union[bool, Missing, None]:
    if not isinstance(manifest, dict):
        return manifest
    value = manifest.get("redistributable")
    return value if isinstance(value, bool) else Missing("unparsable", f"{folder / NAME} has no redistributable")
