"""gpuprep validate."""

from __future__ import annotations

from typing import Any

import click

from gpuprep.cli import options
from gpuprep.cli.work import Request, execute
from gpuprep.reports import RECORDS

PROBE_HELP = (
    "toolkit, codec, cudnn, gemm, bandwidth, nccl, transcode, throughput, or facts (no probe); "
    "repeat the option, or write a,b."
)


@click.command()
@options.hosts
@options.profile
@click.option("--only", multiple=True, metavar="PROBE", callback=options.names, help=f"Only these probes: {PROBE_HELP}")
@click.option("--quick", is_flag=True, help="Short measurements, about ten seconds per GPU and probe.")
@click.option("--first-failure", is_flag=True, help="End at the first FAIL; what was not measured by then is UNKNOWN.")
@options.results(*RECORDS)
@options.store
def validate(only: tuple[str, ...], quick: bool, first_failure: bool, **shared: Any) -> int:
    """Measure machines and judge them by a profile; change nothing.

    Reads the machine's facts (driver, CUDA, cuDNN, FFmpeg, tuning, holds, units, errors of the GPU). Then it compiles a
    CUDA program and runs convolutions, matrix products, memory and link transfers, NCCL between several GPUs, the
    transcodes of NVIDIA's FFmpeg guide, and video sessions until the GPU takes no more. For each it reports whether the
    result is as wanted, and where speed was lost.
    """
    return execute("validate", Request(**shared), probes=only, quick=quick, first_failure=first_failure)
