"""gpuprep tune."""

from __future__ import annotations

from typing import Any

import click

from gpuprep.cli import options
from gpuprep.cli.work import Request, execute
from gpuprep.reports import RECORDS


@click.command()
@options.hosts
@options.profile
@click.option("--check", is_flag=True, help="Change nothing: show what would be done.")
@click.option("--diff", is_flag=True, help="Show the lines of files that change; with --check, that would change.")
@click.option("--no-reboot", is_flag=True, help="Never reboot the machine. If a reboot is needed, stop and say so.")
@click.option("--deep", is_flag=True, help="Run the roles, even if the host's facts already match.")
@options.results(*RECORDS)
@options.store
def tune(check: bool, diff: bool, no_reboot: bool, deep: bool, **shared: Any) -> int:
    """Set only persistence mode, clocks, power limit, ECC and compute mode.

    The settings survive a reboot and a reload of the driver. gpuprep reads them back after setting them. It neither
    changes nor judges the rest of the profile.
    """
    return execute("tune", Request(**shared), check=check, diff=diff, reboot=not no_reboot, deep=deep)
