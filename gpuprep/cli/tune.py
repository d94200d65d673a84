"""gpuprep tune."""

from __future__ import annotations

from typing import Any

import click

from gpuprep.cli import options
from gpuprep.cli.work import Request, execute


@click.command()
@options.hosts
@options.profile
@click.option("--check", is_flag=True, help="Change nothing: show what would be done.")
@click.option("--diff", is_flag=True, help="Show what changes in files; with --check, what would change.")
@click.option("--no-reboot", is_flag=True, help="Never reboot the machine; stop and say so where a reboot is needed.")
@click.option("--deep", is_flag=True, help="Run the roles even where the host's facts already match.")
@options.output
@options.store
def tune(check: bool, diff: bool, no_reboot: bool, deep: bool, **shared: Any) -> int:
    """Set persistence, clocks, power limit, ECC and compute mode only.

    The settings outlive a reboot and a reload of the driver, and are read back after they were made. The rest
    of the profile is neither touched nor judged.
    """
    return execute("tune", Request(**shared), check=check, diff=diff, reboot=not no_reboot, deep=deep)
