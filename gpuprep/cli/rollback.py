"""gpuprep rollback."""

from __future__ import annotations

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
    from gpuprep.cli.run_hosts import Request, execute_after_a_look, needs_host, run_options
    from gpuprep.workflows import rollback as workflow

    request = Request(profile=None, **shared)
    needs_host("rollback", request)
    chosen = run_options(
        request,
        settings.load(),
        check=check,
        reboot=not no_reboot,
        validate=False,
        when_busy=when_busy,
        wait_minutes=wait_minutes,
    )
    return execute_after_a_look(
        "rollback",
        request,
        workflow.look,
        lambda target, asked, context, _: workflow.rollback(target, asked, context),
        chosen,
        question="Go back?",
        yes=yes,
    )
