"""gpuprep provision."""

from __future__ import annotations

from typing import Any

import click

from gpuprep.cli import options
from gpuprep.cli.work import Request, execute

STEP_HELP = "driver, agent, tuning, cuda, cudnn, codec, extras; may be given several times or as a,b."


@click.command()
@options.hosts
@options.profile
@click.option(
    "--check", is_flag=True, help="Change nothing: show the plan. With --deep also run Ansible in check mode."
)
@click.option("--diff", is_flag=True, help="Show what changes in files; with --check, what would change.")
@click.option("--only", multiple=True, metavar="STEP", callback=options.names, help=f"Only these steps: {STEP_HELP}")
@click.option("--skip", multiple=True, metavar="STEP", callback=options.names, help=f"All but these steps: {STEP_HELP}")
@click.option("--no-reboot", is_flag=True, help="Never reboot the machine; stop and say so where a reboot is needed.")
@click.option(
    "--no-validate", is_flag=True, help="Do not look again after the last step; the run ends without a verdict."
)
@click.option("--deep", is_flag=True, help="Run every role even where the host's facts already match.")
@options.output
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
    """Plan, install, tune and check machines; ends with a verdict.

    Looks at the machine, runs the roles whose part is not as the profile wants it, looks again, measures briefly
    and judges; `gpuprep validate` measures at length. It can be run again at any time: a finished machine is
    recognised from its facts and nothing is run.
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
