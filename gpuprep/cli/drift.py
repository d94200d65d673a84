"""gpuprep drift: the check itself, and its subcommands for the nightly one."""

from __future__ import annotations

from typing import Any

import click

from gpuprep.cli import drift_nightly, options
from gpuprep.cli.defaultgroup import DefaultGroup
from gpuprep.cli.work import Request, execute
from gpuprep.reports import FLEET_FORMATS


@click.group(cls=DefaultGroup, default="check")
def drift() -> None:
    """Compare machines with their profile and with what was certified, changing nothing.

    `gpuprep drift HOST --profile t4` is `gpuprep drift check HOST --profile t4`.
    """


@drift.command("check", short_help="Compare machines now")
@options.hosts
@options.profile
@click.option(
    "--probe",
    type=click.Choice(["none", "quick"]),
    default="none",
    show_default=True,
    help="quick also measures the speed against the baseline, in about ten seconds a GPU.",
)
@click.option("--deep", is_flag=True, help="Also run Ansible's check mode over the same roles.")
@click.option("--fix", is_flag=True, help="Put back what needs no reboot and no package.")
@click.option("--last", is_flag=True, help="Show what the hosts found themselves last night; needs no profile.")
@click.option(
    "--format",
    "style",
    type=click.Choice(FLEET_FORMATS),
    default="text",
    show_default=True,
    help="How to show the result, one document for all hosts; prometheus is for a textfile collector, html a page.",
)
@options.output
@options.store
def check(probe: str, deep: bool, fix: bool, last: bool, style: str, **shared: Any) -> int:
    """Compare machines with their profile, their certified run and their last check.

    Reads the facts of each host in one round trip and changes nothing, unless --fix is given. Several hosts are a row
    each, the worst first. With -i and no HOST: all hosts of the inventory.
    """
    request = Request(**shared)
    if last:
        from gpuprep.errors import UsageError

        given = {"--probe": probe != "none", "--deep": deep, "--fix": fix, "--profile": request.profile is not None}
        for name in [name for name, is_given in given.items() if is_given]:
            raise UsageError(f"--last and {name} exclude each other", "--last shows what the hosts have found already")
        return execute("last", request, style=style)
    return execute("drift", request, style=style, probe=probe, deep=deep, fix=fix, quick=True)


for command in (drift_nightly.schedule, drift_nightly.unschedule, drift_nightly.last):
    drift.add_command(command)
