"""Profiles of machines that present another system, and the driver that an archive of a test has for a wish."""

from __future__ import annotations

from builders import bare_snapshot, load

from gpuprep import catalogue
from gpuprep.desired import host_rules, nearest, profile_rules

PROFILE = """\
extends: base
description: one cell of the matrix of systems
driver: {{source: {source}, version: "{version}"}}
cuda: {{version: "{cuda}"}}
cudnn: {{version: none}}
codec: {{ffmpeg: none}}
extras: {{tools: []}}
"""


def planned_driver(release: catalogue.OsRelease, wish: str, flavour: str) -> str | None:
    """The version that the plan takes from this archive for a T4; None where it is refused."""
    refusals = list[profile_rules.Refusal]()
    profile = load("t4", driver={"source": "distribution", "version": wish, "flavour": flavour})
    planned = host_rules.driver(nearest.Nearest(profile, bare_snapshot(), ()), release, flavour, refusals)
    assert (planned is None) == bool(refusals)
    return planned
