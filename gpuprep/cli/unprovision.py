"""gpuprep unprovision: takes back what gpuprep did on machines."""

from __future__ import annotations

import dataclasses
import sys
from typing import Any

import click

from gpuprep.cli import options
from gpuprep.cli.hosts import STEP_HELP
from gpuprep.cli.output import as_output
from gpuprep.cli.run_hosts import (
    Request,
    ask_password,
    machines_of,
    needs_host,
    on_hosts,
    run_options,
    show,
    show_plans,
)
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
    from gpuprep.errors import UsageError
    from gpuprep.workflows import unprovision as workflow

    request = Request(profile=None, **shared)
    needs_host("unprovision", request)
    site = settings.load()
    chosen = run_options(
        request, site, only=only, check=check, reboot=not no_reboot, when_busy=when_busy, wait_minutes=wait_minutes
    )
    workflow.check_request(chosen)
    asks = sys.stdin.isatty() and sys.stderr.isatty()
    if not (check or yes or asks):
        raise UsageError(
            "there is no terminal to ask on, and --yes is not given",
            "look first with --check, then run the same command with --yes",
        )
    if request.ask_become_pass:  # once, for the list and for the work
        chosen = dataclasses.replace(chosen, become_password=ask_password())
        request = dataclasses.replace(request, ask_become_pass=False)
    machines = machines_of(request)
    listed = on_hosts("unprovision", request, site, workflow.look, chosen, machines, stored=False)
    if check or any(record.error for record in listed):
        return show(listed, request.output, as_plan=True, stored=False)
    if not request.output.quiet or asks:
        show_plans(listed, color=request.output.color)
    todo = any(record.plan and record.plan.steps for record in listed)
    if todo and not yes and not click.confirm("Take all this back?", default=False, err=True):
        raise UsageError("nothing was changed", "answer y, or add --yes")
    shown = {record.host: record.plan for record in listed}
    records = on_hosts(
        "unprovision",
        request,
        site,
        lambda target, asked, context: workflow.unprovision(target, asked, context, shown.get(target.name)),
        chosen,
        machines,
    )
    return show(records, request.output)
