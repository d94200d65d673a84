"""Commands of FFmpeg as the stand-in of simulated machines reads them."""

from __future__ import annotations

import shlex

from gpuprep.sim.guest import commandline, mapping
from gpuprep.sim.guest.mapping import Media, Plan

HD = Media("h264", "yuv420p", 1920, 1080, 30.0, 96)


def planned(words: str, *media: Media) -> Plan:
    command = commandline.parse(shlex.split(words))
    return mapping.plan(command, media or [HD] * len(command.inputs))
