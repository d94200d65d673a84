"""gpuprep unprovision: takes back what gpuprep did on machines."""

from __future__ import annotations

from typing import Any

import click

from gpuprep.cli import options
from gpuprep.cli.hosts import STEP_HELP
from gpuprep.cli.output import as_output
from gpuprep.cli.run_hosts import Request, execute_after_a_look, needs_host, run_options
from gpuprep.reports import RECORDS


@click.command()
@options.hosts
@click.option("--check", is_flag=True, help="Change nothing: show what would be taken back.")
@click.option("--only", multiple=True, metavar="STEP", callback=options.names, help=f"Only these steps: {STEP_HELP}")
@click.option("-y", "--yes", is_flag=True, help="Do it without asking. Needed where there is no terminal.")
@click.option("--no-reboot", is_flag=True, help="Never reboot the machine. If a reboot is needed, say so.")
@options.busy
@as_output(options.results(*RECORDS))
@options.store
def unprovision(
    check: bool,
    only: tuple[str, ...],
    yes: bool,
    no_reboot: bool,
    when_busy: str,
    wait_minutes: int,
    **shared: Any,
) -> int:
    """Take back what gpuprep did on machines, and nothing else.

    Packages that it installed, repositories, pins, holds, files, units, users, clocks and power. Shows the list first
    and asks. What was there before stays, and so does what you installed since then. For a machine that an older
    gpuprep set up, it says what it cannot know. You can run it again at any time, also after a run that was
    interrupted.
    """
    from gpuprep import settings
    from gpuprep.workflows import unprovision as workflow

    request = Request(profile=None, **shared)
    needs_host("unprovision", request)
    chosen = run_options(
        request,
        settings.load(),
        only=only,
        check=check,
        reboot=not no_reboot,
        when_busy=when_busy,
        wait_minutes=wait_minutes,
    )
    workflow.check_request(chosen)
    return execute_after_a_look(
        "unprovision", request, workflow.look, workflow.unprovision, chosen, question="Take all this back?", yes=yes
    )
