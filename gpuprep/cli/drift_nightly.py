"""gpuprep drift schedule, unschedule and last: the nightly check on the host itself."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from gpuprep.cli import options
from gpuprep.cli.console import check_output, emit
from gpuprep.cli.work import Request, errors_to_stderr, execute, load_profile, on_hosts, run_options

if TYPE_CHECKING:
    from gpuprep.cli.work import Workflow
    from gpuprep.records import RunRecord


def _time_of_day(_ctx: click.Context, _parameter: click.Parameter, value: str | None) -> str | None:
    from gpuprep.nightly.units import AT

    if value is not None and not AT.fullmatch(value):
        raise click.BadParameter(f"{value!r} is no time of day; allowed: 00:00 to 23:59, the host's local time")
    return value


@click.command("schedule", short_help="Let machines check themselves every night")
@options.hosts
@options.profile
@click.option(
    "--at",
    metavar="HH:MM",
    callback=_time_of_day,
    help="When, in the host's local time. Default: what the profile says, 02:30 unless it differs.",
)
@click.option(
    "--random-delay",
    metavar="MINUTES",
    type=click.IntRange(0, 720),
    help="Wait up to so long more, so that a fleet does not wake at once. Default: what the profile says.",
)
@click.option(
    "--probe",
    type=click.Choice(["none", "quick"]),
    help="quick also measures, where no program uses a GPU. Default: what the profile says.",
)
@options.output
@options.store
def schedule(at: str | None, random_delay: int | None, probe: str | None, **shared: Any) -> int:
    """Let machines check themselves every night, with nobody to ask.

    Installs the agent where it is not the one of this gpuprep, and makes a systemd timer. Doing it again changes only
    what differs.
    """
    from gpuprep.workflows import provision, runs
    from gpuprep.workflows import schedule as nightly

    request = Request(**shared)
    wished = load_profile("drift schedule", request)
    assert wished is not None
    chosen: dict[str, Any] = {"at": at, "random_delay_minutes": random_delay, "probe": probe}
    given = {name: value for name, value in chosen.items() if value is not None}
    profile = dataclasses.replace(wished, drift=dataclasses.replace(wished.drift, **given))
    provision.check_request(profile, runs.Options())
    return _show(
        _on_hosts(request, lambda target, options, line: nightly.schedule(target, profile, options, line)), request
    )


@click.command("unschedule", short_help="End the nightly check; its results stay")
@options.hosts
@options.output
@options.store
def unschedule(**shared: Any) -> int:
    """Take the nightly check away from machines. What it found stays on them and in the store."""
    request = Request(profile=None, **shared)
    from gpuprep.workflows import schedule as nightly

    return _show(_on_hosts(request, nightly.unschedule), request)


@click.command("last", short_help="Show what machines found themselves")
@options.hosts
@options.output
@options.store
def last(**shared: Any) -> int:
    """Show the newest result of the nightly check of each machine, and store it here.

    One round trip a machine, without root and without a profile. No result, or one that is older than two nights, from
    later than now or of another machine, is exit code 3: nobody knows how that machine is now.
    """
    return execute("last", Request(profile=None, **shared))


def _on_hosts(request: Request, workflow: Workflow) -> list[RunRecord]:
    from gpuprep import settings
    from gpuprep.errors import UsageError

    check_output(request.output)
    name = click.get_current_context().command_path
    if not request.hosts and request.inventory is None:
        raise UsageError(f"`{name}` needs a HOST", f"{name} HOST, or {name} -i INVENTORY")
    site = settings.load()
    return on_hosts(name, request, site, workflow, run_options(request, site))


def _show(records: list[RunRecord], request: Request) -> int:
    """Of schedule and unschedule: a few lines a host."""
    from gpuprep.records import showable
    from gpuprep.reports import json, nightly
    from gpuprep.workflows import provision

    def page(those: Sequence[RunRecord]) -> str:
        if request.as_json:
            return json.render_several(those, provision.gravest([record.exit_code for record in those]))
        return "".join(nightly.render(one.host, one.nightly) for one in those if one.nightly is not None)

    whole, shown = showable.each(page, records, whole=request.as_json)
    if whole:
        emit(whole, request.output)
    errors_to_stderr(shown)
    return provision.gravest([record.exit_code for record in shown])
