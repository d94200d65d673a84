"""gpuprep provision."""

from __future__ import annotations

from typing import Any

import click

from gpuprep.cli import options
from gpuprep.cli.work import Request, execute
from gpuprep.reports import RECORDS

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
@click.option(
    "--no-validate", is_flag=True, help="Do not check the machine after the last step; the run ends without a verdict."
)
@click.option("--deep", is_flag=True, help="Run every role, even if the host's facts already match.")
@options.results(*RECORDS)
@options.store
def provision(
    check: bool,
    diff: bool,
    only: tuple[str, ...],
    skip: tuple[str, ...],
    no_reboot: bool,
    no_validate: bool,
    deep: bool,
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
    )
