"""gpuprep rollback."""

from __future__ import annotations

import dataclasses
import sys
from typing import Any

import click

from gpuprep.cli import options
from gpuprep.cli.output import as_output
from gpuprep.untrusted.plaintext import visible


@click.command(short_help="Go back to the driver that a host had before its last change")
@options.hosts
@click.option("--check", is_flag=True, help="Change nothing: show what would be done.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask. Needed where there is no terminal.")
@click.option("--no-reboot", is_flag=True, help="Never reboot the machine. If a reboot is needed, stop and say so.")
@as_output(options.output)
@options.store
def rollback(check: bool, yes: bool, no_reboot: bool, **shared: Any) -> int:
    """Go back to the driver that a host had before its last change.

    Before gpuprep changes a driver, the host keeps the packages of the one that works, with pin, holds, locks, stream
    and module options. This command shows what going back would do, asks, does it and restarts the machine. The host
    needs no network for it. `driver.rollback: auto` in the profile lets the host go back by itself where the new driver
    does not work after the restart.
    """
    from gpuprep import settings
    from gpuprep.cli.run_hosts import Request, ask_password, machines_of, needs_host, on_hosts, run_options, show
    from gpuprep.errors import UsageError
    from gpuprep.workflows import rollback as workflow

    request = Request(profile=None, **shared)
    needs_host("rollback", request)
    if not (yes or check) and not sys.stdin.isatty():
        raise UsageError("`gpuprep rollback` asks before it changes anything, and this is no terminal", "add --yes")
    site = settings.load()
    chosen = run_options(request, site, reboot=not no_reboot, validate=False)
    if request.ask_become_pass:
        chosen = dataclasses.replace(chosen, become_password=ask_password())
        request = dataclasses.replace(request, ask_become_pass=False)
    machines = machines_of(request)
    for target in machines:
        way = workflow.look(target, chosen)
        click.echo("\n  ".join(visible(line) for line in (f"{target.name}:", *way.lines())), err=not check)
    if check:
        return 0
    if not yes and not click.confirm("Go back?", default=False, err=True):
        raise UsageError("nothing was changed", "answer y, or add --yes")
    records = on_hosts("rollback", request, site, workflow.rollback, chosen, machines)
    return show(records, request.output)
