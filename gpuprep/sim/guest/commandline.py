"""Parses an ffmpeg command into global options, inputs and outputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Optional

Option = tuple[str, Optional[str]]  # the name without its dash, with its stream specifier; its value


def words(text: str) -> frozenset[str]:
    return frozenset(text.split())


FLAGS = words("""
    y n nostdin stdin hide_banner stats nostats re an vn sn dn shortest copyts start_at_zero benchmark benchmark_all
    ignore_unknown accurate_seek noaccurate_seek autorotate noautorotate autoscale noautoscale dump hex bitexact
    copy_unknown recast_media xerror report find_stream_info nofind_stream_info qphist
""")
GLOBAL = words("""
    y n nostdin stdin hide_banner stats nostats stats_period v loglevel progress report filter_complex lavfi
    init_hw_device filter_hw_device benchmark benchmark_all filter_threads filter_complex_threads copyts
    start_at_zero max_error_rate abort_on xerror vsync sdp_file dump hex cpuflags timelimit ignore_unknown
""")


@dataclass
class File:
    """An input or output and the options that precede it."""

    url: str
    options: list[Option] = field(default_factory=list)

    def value(self, *names: str) -> Optional[str]:
        """The last value of an option that is given under any of the names, whatever its stream specifier."""
        last = None
        for name, value in self.options:
            if name.split(":")[0] in names:
                last = value
        return last

    def video_codec(self) -> Optional[str]:
        """What -c:v, -codec:v, -vcodec or a plain -c names."""
        codec = None
        for name, value in self.options:
            base, _, kind = name.partition(":")
            if base == "vcodec" or (base in ("c", "codec") and (kind or "v").startswith("v")):
                codec = value
        return codec

    def words(self) -> list[str]:
        return [
            word for name, value in self.options for word in ((f"-{name}",) if value is None else (f"-{name}", value))
        ]


@dataclass
class Command:
    """A whole command. What stands at the end and belongs to nothing is in `trailing`."""

    general: list[Option] = field(default_factory=list)
    inputs: list[File] = field(default_factory=list)
    outputs: list[File] = field(default_factory=list)
    trailing: list[Option] = field(default_factory=list)

    def value(self, *names: str) -> Optional[str]:
        """The last value of a global option."""
        return next((value for name, value in reversed(self.general) if name in names), None)

    def has(self, name: str) -> bool:
        return any(given == name for given, _ in self.general)


def parse(words: Sequence[str]) -> Command:
    """The words after `ffmpeg` ─► Command. A word that misses its value gets ""."""
    command = Command()
    pending: list[Option] = []
    position = 0
    while position < len(words):
        word = words[position]
        position += 1
        if word == "-" or not word.startswith("-"):
            command.outputs.append(File(word, pending))
            pending = []
            continue
        name = word[1:]
        value: Optional[str] = None
        if name.split(":")[0] not in FLAGS:
            value = words[position] if position < len(words) else ""
            position += 1
        if name == "i":
            command.inputs.append(File(value or "", pending))
            pending = []
        elif name in GLOBAL:
            command.general.append((name, value))
        else:
            pending.append((name, value))
    command.trailing = pending
    return command
