"""gpuprep capacity."""

from __future__ import annotations

import dataclasses
from typing import Any

import click

from gpuprep.cli import options
from gpuprep.cli.work import Request, execute
from gpuprep.reports import RECORDS


@click.command()
@options.hosts
@options.profile
@click.option("--quick", is_flag=True, help="Decoding and one preset only, about fifteen seconds per GPU.")
@options.results(*RECORDS)
@options.store
def capacity(quick: bool, **shared: Any) -> int:
    """Measure how many video streams machines carry; change nothing.

    Counts 1080p30 and 4K30 streams that the GPU decodes, encodes (by codec and preset) and transcodes (1:1, and to
    1080p, 720p and 480p). Shows which engine is the limit, the picture quality and the latency. If a GPU has no
    encoder, the rest is measured. Takes about ten minutes. Without --profile the profile is base.
    """
    from gpuprep.workflows.capacity import PROFILE

    request = Request(**shared)
    if request.profile is None:
        request = dataclasses.replace(request, profile=PROFILE)
    return execute("capacity", request, quick=quick)
