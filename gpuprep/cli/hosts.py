"""gpuprep provision, plan, tune, validate and capacity: the commands that work on hosts."""

from __future__ import annotations

from typing import Any

import click

from gpuprep.cli import candidates, options
from gpuprep.cli.output import as_output
from gpuprep.cli.run_hosts import Request, execute
from gpuprep.reports import PLANS, RECORDS

STEP_HELP = "driver, agent, tuning, cuda, cudnn, nccl, codec, containers, extras. Repeat the option, or write a,b."


@click.command()
@options.hosts
@options.profile
@click.option(
    "--check", is_flag=True, help="Change nothing: show the plan. With --deep also run Ansible in check mode."
)
@click.option("--diff", is_flag=True, help="Show the lines of files that change; with --check, that would change.")
@click.option("--only", multiple=True, metavar="STEP", callback=options.names, help=f"Only these steps: {STEP_HELP}")
@click.option(
    "--skip", multiple=True, metavar="STEP", callback=options.names, help=f"All steps except these: {STEP_HELP}"
)
@click.option("--no-reboot", is_flag=True, help="Never reboot the machine. If a reboot is needed, stop and say so.")
@options.busy
@click.option(
    "--no-validate", is_flag=True, help="Do not check the machine after the last step; the run ends without a verdict."
)
@click.option("--deep", is_flag=True, help="Run every role, even if the host's facts already match.")
@as_output(options.results(*RECORDS))
@options.store
def provision(
    check: bool,
    diff: bool,
    only: tuple[str, ...],
    skip: tuple[str, ...],
    no_reboot: bool,
    no_validate: bool,
    deep: bool,
    when_busy: str,
    wait_minutes: int,
    **shared: Any,
) -> int:
    """Plan, install, tune and check machines; end with a verdict.

    Reads the machine's facts, runs the Ansible roles for everything that differs from the profile, reads the facts
    again, measures briefly and judges. For full measurements use `gpuprep validate`. You can run it again at any time:
    it recognises a finished machine from its facts and runs nothing.
    """
    return execute(
        "provision",
        Request(**shared),
        check=check,
        diff=diff,
        only=only,
        skip=skip,
        reboot=not no_reboot,
        validate=not no_validate,
        deep=deep,
        quick=True,
        when_busy=when_busy,
        wait_minutes=wait_minutes,
    )


@click.command()
@options.hosts
@options.profile
@as_output(options.results(*PLANS))
def plan(**shared: Any) -> int:
    """Show what provision would do and why; change nothing.

    Shows the same list as `gpuprep provision --check`. Without --profile, gpuprep proposes a profile for the GPUs of
    each host, and plans with it. A plan is not stored in the history.
    """
    return execute("plan", Request(**shared), stored=False)


@click.command()
@options.hosts
@options.profile
@click.option("--check", is_flag=True, help="Change nothing: show what would be done.")
@click.option("--diff", is_flag=True, help="Show the lines of files that change; with --check, that would change.")
@click.option("--no-reboot", is_flag=True, help="Never reboot the machine. If a reboot is needed, stop and say so.")
@options.busy
@click.option("--deep", is_flag=True, help="Run the roles, even if the host's facts already match.")
@as_output(options.results(*RECORDS))
@options.store
def tune(check: bool, diff: bool, no_reboot: bool, deep: bool, when_busy: str, wait_minutes: int, **shared: Any) -> int:
    """Set only persistence mode, clocks, power limit, ECC, MIG and compute mode.

    The settings survive a reboot and a reload of the driver. gpuprep reads them back after setting them. It neither
    changes nor judges the rest of the profile.
    """
    return execute(
        "tune",
        Request(**shared),
        check=check,
        diff=diff,
        reboot=not no_reboot,
        deep=deep,
        when_busy=when_busy,
        wait_minutes=wait_minutes,
    )


PROBE_HELP = f"{', '.join(candidates.PROBES)}, or facts (no probe); repeat the option, or write a,b."


@click.command()
@options.hosts
@options.profile
@click.option("--only", multiple=True, metavar="PROBE", callback=options.names, help=f"Only these probes: {PROBE_HELP}")
@click.option("--quick", is_flag=True, help="Short measurements, about ten seconds per GPU and probe.")
@click.option("--first-failure", is_flag=True, help="End at the first FAIL; what was not measured by then is UNKNOWN.")
@as_output(options.results(*RECORDS))
@options.store
def validate(only: tuple[str, ...], quick: bool, first_failure: bool, **shared: Any) -> int:
    """Measure machines and judge them by a profile; change nothing.

    Reads the machine's facts (driver, CUDA, cuDNN, FFmpeg, tuning, holds, units, errors of the GPU). Then it compiles a
    CUDA program and runs convolutions, matrix products, memory and link transfers, NCCL between several GPUs, the
    transcodes of NVIDIA's FFmpeg guide, and video sessions until the GPU takes no more. For each it reports whether the
    result is as wanted, and where speed was lost.
    """
    return execute("validate", Request(**shared), probes=only, quick=quick, first_failure=first_failure)


@click.command()
@options.hosts
@options.profile
@click.option("--quick", is_flag=True, help="Decoding and one preset only, about fifteen seconds per GPU.")
@as_output(options.results(*RECORDS))
@options.store
def capacity(quick: bool, **shared: Any) -> int:
    """Measure how many video streams machines carry; change nothing.

    Counts 1080p30 and 4K30 streams that the GPU decodes, encodes (by codec and preset) and transcodes (1:1, and to
    1080p, 720p and 480p). Shows which engine is the limit, the picture quality and the latency. If a GPU has no
    encoder, the rest is measured. Takes about ten minutes. Without --profile the profile is base.
    """
    return execute("capacity", Request(**shared), quick=quick)
