"""FFmpeg: libraries that it can be built with (ffmpeg.yml), and what its commands mean (ffmpegcommands.yml)."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from gpuprep.catalogue import datafile


@dataclass(frozen=True)
class Library:
    """One library of the system."""

    name: str
    configure: tuple[str, ...]
    licence: str
    tls: bool
    parts: Mapping[str, tuple[str, ...]]  # "filters" -> names that need it


@cache
def libraries() -> Mapping[str, Library]:
    """By name: "gnutls"."""
    return {
        name: Library(
            name,
            tuple(entry["configure"]),
            entry["licence"],
            entry.get("tls", False),
            {kind: tuple(names) for kind, names in entry["parts"].items()},
        )
        for name, entry in datafile.read(Path(__file__).parent / "ffmpeg.yml")["libraries"].items()
    }


def tls() -> Collection[str]:
    return [name for name, library in libraries().items() if library.tls]


def needed(kind: str, part: str) -> tuple[str, ...]:
    """The libraries of which one is needed for a part ("filters", "drawtext"); () for none."""
    return tuple(name for name, library in libraries().items() if part in library.parts.get(kind, ()))


@cache
def commands() -> dict[str, Any]:
    """Options, filters, pixel formats, encoders and formats of files."""
    return datafile.read(Path(__file__).parent / "ffmpegcommands.yml")


def version_of(text: str) -> tuple[int, int] | None:
    """(7, 1) of "7.1.5" or "n7.1-12-g1234"; None for what is no release."""
    match = re.match(r"n?(\d{1,3})\.(\d{1,3})(?![\d])", text)
    return None if match is None else (int(match[1]), int(match[2]))
