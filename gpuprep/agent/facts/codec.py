"""nv-codec-headers, and the FFmpeg that a plain `ffmpeg` starts."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any, Dict, Optional, Type, TypeVar, Union

from gpuprep.agent.facts import parse
from gpuprep.agent.facts.digests import Digests
from gpuprep.agent.facts.manifest import NAME, is_intact, read_manifest
from gpuprep.agent.programs.run import read_text, run
from gpuprep.records import CodecFacts, Missing, OptStr

Value = TypeVar("Value")

# pkg-config's own search order, for machines on which pkg-config is not installed.
PKG_CONFIG_PLACES = (
    "/usr/local/lib/{triplet}/pkgconfig", "/usr/local/lib/pkgconfig", "/usr/local/share/pkgconfig",
    "/usr/lib/{triplet}/pkgconfig", "/usr/lib64/pkgconfig", "/usr/lib/pkgconfig", "/usr/share/pkgconfig",
)  # fmt: skip


def codec_facts(ffmpeg: OptStr, digests: Digests) -> CodecFacts:
    headers = headers_version()
    intact = headers_intact(digests)
    if not isinstance(ffmpeg, str):
        build = ffmpeg if isinstance(ffmpeg, Missing) else None
        return CodecFacts(headers, ffmpeg, ffmpeg, ffmpeg, ffmpeg, build, headers_intact=intact)
    real = os.path.realpath(ffmpeg)
    folder = _manifest_folder(Path(real))
    manifest = read_manifest(folder)
    return CodecFacts(
        headers_version=headers,
        ffmpeg_path=ffmpeg,
        ffmpeg_real_path=real,
        ffmpeg_version=ffmpeg_version(ffmpeg),
        build_key=_entry(manifest, folder, "key", str),
        manifest_intact=is_intact(folder, manifest, digests.of) if isinstance(manifest, dict) else manifest,
        redistributable=_entry(manifest, folder, "redistributable", bool),
        headers_intact=intact,
    )


def headers_version() -> OptStr:
    text = run(["pkg-config", "--modversion", "ffnvcodec"], accept=(0, 1))
    if isinstance(text, str):
        return text.strip() or None
    if text.reason != "command_not_found":
        return text
    place = _pkg_config_file()
    contents = read_text(place) if place else None
    if not isinstance(contents, str):
        return contents
    return parse.pkg_config_version(contents) or Missing("unparsable", f"{place} names no version")


def headers_intact(digests: Digests) -> Union[bool, Missing, None]:
    """Whether the installed headers match their manifest; None: they have no manifest.

    The folder is that of the lib/pkgconfig/ffnvcodec.pc which pkg-config finds.
    """
    place = _pkg_config_file()
    if place is None:
        return None
    folder = Path(os.path.realpath(str(place))).parents[2]
    manifest = read_manifest(folder)
    return is_intact(folder, manifest, digests.of) if isinstance(manifest, dict) else manifest


def _pkg_config_file() -> Optional[Path]:
    for pattern in PKG_CONFIG_PLACES:
        path = Path(pattern.format(triplet=f"{platform.machine()}-linux-gnu")) / "ffnvcodec.pc"
        if path.exists():
            return path
    return None


def ffmpeg_version(ffmpeg: str) -> OptStr:
    text = run([ffmpeg, "-hide_banner", "-version"])
    if isinstance(text, Missing):
        return text
    return parse.ffmpeg_version(text) or Missing("unparsable", f"{ffmpeg} -version: {text.strip():.80}")


def _manifest_folder(program: Path) -> Path:
    """<build>/bin/ffmpeg or <build>/ffmpeg ─► <build>."""
    return program.parent if (program.parent / NAME).exists() else program.parent.parent


def _entry(
    manifest: Union[Dict[str, Any], Missing, None], folder: Path, name: str, kind: Type[Value]
) -> Union[Value, Missing, None]:
    if not isinstance(manifest, dict):
        return manifest
    value = manifest.get(name)
    return value if isinstance(value, kind) else Missing("unparsable", f"{folder / NAME} has no {name}")
