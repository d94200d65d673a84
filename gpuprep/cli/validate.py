"""gpuprep validate."""

from __future__ import annotations

from typing import Any

import click

from gpuprep.cli import options
from gpuprep.cli.work import Request, execute

PROBE_HELP = "toolkit, codec, cudnn, gemm, bandwidth, transcode, throughput, or facts (none); several times or as a,b."


@click.command()
@options.hosts
@options.profile
@click.option("--only", multiple=True, metavar="PROBE", callback=options.names, help=f"Only these probes: {PROBE_HELP}")
@click.option("--quick", is_flag=True, help="Short measurements: a verdict in about ten seconds a GPU and probe.")
@options.output
@options.store
def validate(only: tuple[str, ...], quick: bool, **shared: Any) -> int:
    """Measure machines and judge them by a profile, changing nothing.

    Reads the machine's facts (driver, CUDA, cuDNN, FFmpeg, tuning, holds, units, errors of the GPU), then compiles a
    CUDA program, runs convolutions, matrix products, memory and link transfers and the transcodes of NVIDIA's
    FFmpeg guide, and says of each whether it is as it should be, and where missing speed went.
    """
    return execute("validate", Request(**shared), probes=only, quick=quick)
