"""gpuprep drift: the check itself, and the subcommands of the night check."""

from __future__ import annotations

from typing import Any

import click

from gpuprep.cli import drift_nightly, options
from gpuprep.cli.defaultgroup import DefaultGroup
from gpuprep.cli.work import Request, execute
from gpuprep.reports import RECORDS


@click.group(cls=DefaultGroup, default="check")
def drift() -> None:
    """Compare machines with their profile and their certified run. Changes nothing unless you give --fix.

    `gpuprep drift HOST --profile t4` means `gpuprep drift check HOST --profile t4`.
    """


@drift.command("check", short_help="Compare machines now")
@options.hosts
@options.profile
@click.option(
    "--probe",
    type=click.Choice(["none", "quick"]),
    default="none",
    show_default=True,
    help="quick also measures the speed, in about ten seconds per GPU, and compares it with the baseline.",
)
@click.option("--deep", is_flag=True, help="Also run Ansible's check mode over the same roles.")
@click.option("--fix", is_flag=True, help="Repair what needs no reboot and no new package.")
@click.option("--last", is_flag=True, help="Show the results of the hosts' last night check; needs no profile.")
@options.results(*RECORDS)
@options.store
def check(probe: str, deep: bool, fix: bool, last: bool, **shared: Any) -> int:
    """Compare machines with their profile, their certified run and their last check.

    Reads the facts of each host in one round trip. Changes nothing, unless you give --fix. Several hosts are a table,
    the worst host first. With -i and without HOST: all hosts of the inventory.
    """
    request = Request(**shared)
    if last:
        from gpuprep.errors import UsageError

        given = {"--probe": probe != "none", "--deep": deep, "--fix": fix, "--profile": request.profile is not None}
        for name in [name for name, is_given in given.items() if is_given]:
            raise UsageError(
                f"--last and {name} exclude each other", "--last only shows the results of the last night check"
            )
        return execute("last", request)
    return execute("drift", request, probe=probe, deep=deep, fix=fix, quick=True)


for command in (drift_nightly.schedule, drift_nightly.unschedule, drift_nightly.last):
    drift.add_command(command)
