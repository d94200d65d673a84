"""gpuprep drift: the check itself, and its subcommands for the nightly one."""

from __future__ import annotations

from typing import Any

import click

from gpuprep.cli import options
from gpuprep.cli.work import Request, execute


class DriftGroup(click.Group):
    """`gpuprep drift HOST` is the check; `schedule`, `unschedule` and `last` are subcommands."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[0] in self.commands:
            return super().parse_args(ctx, args)
        wants_help = any(arg in ("-h", "--help") for arg in args)
        return super().parse_args(ctx, args if wants_help else ["check", *args])


@click.group(cls=DriftGroup)
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
@options.output
@options.store
def check(probe: str, deep: bool, fix: bool, **shared: Any) -> int:
    """Compare machines with their profile, their certified run and their last check.

    Reads the facts of each host in one round trip and changes nothing, unless --fix is given.
    """
    return execute("drift", Request(**shared), probe=probe, deep=deep, fix=fix, quick=True)
