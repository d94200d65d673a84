"""gpuprep rollback."""

from __future__ import annotations

import dataclasses
import sys
from typing import Any

import click

from gpuprep.cli import options
from gpuprep.cli.output import as_output


@click.command(short_help="Go back to the driver that a host had before its last change")
@options.hosts
@click.option("--check", is_flag=True, help="Change nothing: show what would be done.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask. Needed where there is no terminal.")
@click.option("--no-reboot", is_flag=True, help="Never reboot the machine. If a reboot is needed, stop and say so.")
@options.busy
@as_output(options.output)
@options.store
def rollback(check: bool, yes: bool, no_reboot: bool, when_busy: str, wait_minutes: int, **shared: Any) -> int:
    """Go back to the driver that a host had before its last change.

    Before gpuprep changes a driver, the host keeps the packages of the one that works, with pin, holds, locks, stream
    and module options. This command shows what going back would do, asks, does it and restarts the machine. The host
    needs no network for it. `driver.rollback: auto` in the profile lets the host go back by itself where the new driver
    does not work after the restart.
    """
    from gpuprep import settings
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
    from gpuprep.errors import Interrupted, UsageError
    from gpuprep.workflows import rollback as workflow

    request = Request(profile=None, **shared)
    needs_host("rollback", request)
    if not (yes or check) and not sys.stdin.isatty():
        raise UsageError("`gpuprep rollback` asks before it changes anything, and this is no terminal", "add --yes")
    site = settings.load()
    chosen = run_options(
        request,
        site,
        check=check,
        reboot=not no_reboot,
        validate=False,
        when_busy=when_busy,
        wait_minutes=wait_minutes,
    )
    if request.ask_become_pass:
        chosen = dataclasses.replace(chosen, become_password=ask_password())
        request = dataclasses.replace(request, ask_become_pass=False)
    machines = machines_of(request)
    looked = on_hosts("rollback", request, site, workflow.look, chosen, machines, stored=not check)
    can = {record.host: record for record in looked if not record.error}
    if check or not can or any(record.exit_code == Interrupted.exit_code for record in looked):
        return show(looked, request.output, as_plan=check, stored=not check)
    if not (yes and request.output.quiet):
        show_plans(list(can.values()), color=request.output.color)
    if not yes and not click.confirm("Go back?", default=False, err=True):
        raise UsageError("nothing was changed", "answer y, or add --yes")
    going = [target for target in machines if target.name in can]
    went = on_hosts("rollback", request, site, workflow.rollback, chosen, going, batch=looked[0].batch_id)
    ended = {record.host: record for record in (*looked, *went)}
    return show([ended[target.name] for target in machines], request.output)
