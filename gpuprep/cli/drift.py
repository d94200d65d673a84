"""gpuprep drift: the check itself, and schedule, unschedule and last of the night check on the host itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from gpuprep.cli import options
from gpuprep.cli.groups import DefaultGroup
from gpuprep.cli.output import as_output
from gpuprep.cli.run_hosts import (
    Request,
    by_inventory,
    errors_to_stderr,
    execute,
    load_profiles,
    machines_of,
    needs_host,
    on_hosts,
    run_options,
)
from gpuprep.reports import RECORDS

if TYPE_CHECKING:
    from gpuprep.cli.run_hosts import Workflow
    from gpuprep.records import RunRecord
    from gpuprep.remote import Target
    from gpuprep.workflows.runs import Options, RunContext


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
@options.busy
@click.option("--last", is_flag=True, help="Show the results of the hosts' last night check; needs no profile.")
@click.option("--now", is_flag=True, help="Have the hosts run their night check now, and show the results.")
@as_output(options.results(*RECORDS))
@options.store
def check(
    probe: str,
    deep: bool,
    fix: bool,
    last: bool,
    now: bool,
    when_busy: str,
    wait_minutes: int,
    **shared: Any,
) -> int:
    """Compare machines with their profile, their certified run and their last check.

    Reads the facts of each host in one round trip. Changes nothing, unless you give --fix. Several hosts are a table,
    the worst host first. With -i and without HOST: all hosts of the inventory.
    """
    request = Request(**shared)
    if last or now:
        from gpuprep.errors import UsageError

        word, does = ("--last", "shows the results of the last night check") if last else ("--now", "runs that check")
        given = {
            "--now": last and now,
            "--probe": probe != "none",
            "--deep": deep,
            "--fix": fix,
            "--profile": request.profile is not None,
        }
        for name in [name for name, is_given in given.items() if is_given]:
            raise UsageError(f"{word} and {name} exclude each other", f"{word} only {does}")
        return execute("last", request, now=now)
    if when_busy != "refuse" and not fix:
        from gpuprep.errors import UsageError

        raise UsageError("--when-busy is for --fix, which is not given", "without --fix drift changes nothing")
    return execute(
        "drift",
        request,
        probe=probe,
        deep=deep,
        fix=fix,
        quick=True,
        when_busy=when_busy,
        wait_minutes=wait_minutes,
    )


def _time_of_day(_ctx: click.Context, _parameter: click.Parameter, value: str | None) -> str | None:
    from gpuprep.nightly.units import AT

    if value is not None and not AT.fullmatch(value):
        raise click.BadParameter(f"{value!r} is no time of day; allowed: 00:00 to 23:59, the host's local time")
    return value


@drift.command("schedule", short_help="Let machines check themselves every night")
@options.hosts
@options.profile
@click.option(
    "--at",
    metavar="HH:MM",
    callback=_time_of_day,
    help="Time of the check, in the host's local time. Default: as set before, else from the profile (02:30).",
)
@click.option(
    "--random-delay",
    metavar="MINUTES",
    type=click.IntRange(0, 720),
    help="Longest random delay after that time, so that not all hosts start together. Default: as for --at.",
)
@click.option(
    "--probe",
    type=click.Choice(["none", "quick"]),
    help="quick also measures the speed, if no program uses a GPU. Default: as for --at.",
)
@as_output(options.output)
@options.store
def schedule(at: str | None, random_delay: int | None, probe: str | None, **shared: Any) -> int:
    """Let machines check themselves every night, without the controller.

    Installs the agent of this gpuprep, unless the host has it already, and a systemd timer. You can run it again: it
    changes only what differs, and what you chose with an option stays. After `drift unschedule` the profile decides.
    """
    from gpuprep.workflows import provision, runs
    from gpuprep.workflows import schedule as nightly

    request = Request(**shared)
    needs_host("drift schedule", request)
    machines = machines_of(request)
    chosen: dict[str, Any] = {"at": at, "random_delay_minutes": random_delay, "probe": probe}
    given = {name: value for name, value in chosen.items() if value is not None}
    profiles = load_profiles("drift schedule", request, machines)
    for profile in profiles.values():
        provision.check_request(profile, runs.Options())

    def workflow(target: Target, options: Options, context: RunContext) -> RunRecord:
        return nightly.schedule(target, profiles[target.name], by_inventory(target, request, options), context, given)

    return _show(_on_hosts(request, workflow, machines), request)


@drift.command("unschedule", short_help="Remove the night check; its results stay")
@options.hosts
@as_output(options.output)
@options.store
def unschedule(**shared: Any) -> int:
    """Remove the night check from machines. Its results stay on the machines and in the store."""
    request = Request(profile=None, **shared)
    from gpuprep.workflows import schedule as nightly

    needs_host("drift unschedule", request)
    return _show(_on_hosts(request, nightly.unschedule, machines_of(request)), request)


@drift.command("last", short_help="Show the results of the last night check")
@options.hosts
@as_output(options.results(*RECORDS))
@options.store
def last(**shared: Any) -> int:
    """Show the newest result of each machine's night check, and store it here.

    Needs one round trip per machine, and neither root nor a profile. The exit code is 3 if there is no result, or if
    the result is older than two nights, from the future or from another machine: then the machine's state is unknown.
    """
    return execute("last", Request(profile=None, **shared))


def _on_hosts(request: Request, workflow: Workflow, machines: Sequence[Target]) -> list[RunRecord]:
    from gpuprep import settings

    site = settings.load()
    name = click.get_current_context().command_path
    return on_hosts(name, request, site, workflow, run_options(request, site), machines)


def _show(records: list[RunRecord], request: Request) -> int:
    """Print a few lines per host, for schedule and unschedule."""
    from gpuprep.records import showable
    from gpuprep.reports import documents, drifted
    from gpuprep.workflows import provision

    def page(those: Sequence[RunRecord]) -> str:
        if request.output.as_json:
            return documents.render_several(those, provision.worst([record.exit_code for record in those]))
        return "".join(drifted.nightly(host.host, host.nightly) for host in those if host.nightly is not None)

    whole, shown = showable.each(page, records, whole=request.output.as_json)
    if whole:
        request.output.write(whole)
    errors_to_stderr(shown)
    return provision.worst([record.exit_code for record in shown])
