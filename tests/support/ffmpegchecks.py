"""An ffmpeg command in, what it needs out, and what a build and a GPU have of that."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Sequence
from typing import Any

from builders import load

from gpuprep.agent.probes import codec as probe
from gpuprep.catalogue import boards
from gpuprep.checks import ffmpegcommand, ffmpegneeds, ffmpegtries
from gpuprep.desired.loading import schema
from gpuprep.records import Missing
from gpuprep.records.evidence.codec import Codec

SHIPPED = {name: load(name).codec.parts for name in ("base", "video")}
VERSION = load("video").codec.ffmpeg
ALLOWED = {kind: schema.allowed_parts(kind) for kind in SHIPPED["base"]}


def asked(words: str | Sequence[str]) -> ffmpegcommand.Asked:
    """Raises UsageError for what is no command."""
    return ffmpegcommand.needs(shlex.split(words) if isinstance(words, str) else words)


def tries(words: str) -> list[str]:
    """What a host's FFmpeg would be asked to try, each as one text."""
    return [" ".join(way) for one in ffmpegtries.of(asked(words), ALLOWED["filters"]) for way in one.ways]


def of_profile(name: str, *, npp: bool = False, **changed: Any) -> Codec:
    """The parts of a build by a shipped profile; `changed`: lists that are others."""
    made = ffmpegneeds.of_profile(SHIPPED[name], npp=npp, version=VERSION)
    return dataclasses.replace(made, **changed)


def build(**lists: Any) -> Codec:
    """The parts of a build, as the probe lists them."""
    return Codec(**lists)


def checked(
    words: str | Sequence[str],
    parts: Codec | Missing,
    gpu: str | None = "t4",
    gpus: int | None = None,
    ffmpeg: str | None = None,
) -> ffmpegneeds.Checked:
    """The whole answer. `gpu`: a model, or nobody knows which; `gpus`: how many the host has, or nobody knows.
    `ffmpeg`: the program that is asked to try what it can.
    """
    on = [next(board for board in boards().values() if board.model.key == gpu)] if gpu else []
    version = "" if isinstance(parts, Missing) else parts.version
    command = ffmpegcommand.needs(shlex.split(words) if isinstance(words, str) else words, version)
    tried = None
    if ffmpeg is not None:
        asks = ffmpegtries.of(command, ALLOWED["filters"])
        ends = iter(probe.tried(ffmpeg, [list(way) for one in asks for way in one.ways]))
        tried = [(one, [next(ends) for _ in one.ways]) for one in asks]
    found = ffmpegneeds.answers(command, parts, on, SHIPPED, ALLOWED, gpus, tried)
    return ffmpegneeds.Checked("a test", version, "", False, command, tuple(found))


def answered(words: str, parts: Codec | Missing, gpu: str | None = "t4") -> dict[str, ffmpegcommand.Answer]:
    """By kind and name: "encoders libx264". `gpu`: a model, or nobody knows which."""
    found = checked(words, parts, gpu).answers
    return {f"{one.need.kind} {one.need.name}": one for one in found}
