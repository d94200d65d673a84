"""What provision, plan, tune and validate have in common: from options to targets, over the hosts, to a result."""

from __future__ import annotations

import dataclasses
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpuprep.cli.console import Console, page_width
from gpuprep.cli.output import Output, show_records
from gpuprep.reports.failures import Failed, groups, names
from gpuprep.untrusted.masking import keep_secret, masked, without_secret
from gpuprep.untrusted.plaintext import command as shell_command
from gpuprep.untrusted.plaintext import visible

if TYPE_CHECKING:
    from gpuprep.desired.profile import Profile
    from gpuprep.records import Plan, RunRecord
    from gpuprep.remote import Target
    from gpuprep.settings import SiteConfig
    from gpuprep.store import Store
    from gpuprep.workflows.runs import Options, RunContext

    Workflow = Callable[[Target, Options, RunContext], RunRecord]
    AfterALook = Callable[[Target, Options, RunContext, Plan | None], RunRecord]

DEFAULT_FORKS = 5
# these commands need no profile, or choose one themselves
NO_PROFILE = ("plan", "capacity", "drift last", "drift unschedule", "unprovision", "rollback", "watch")
DRIFT = ("drift", "last")
MOST_OF_BATCH = 100_000  # hosts
DRIFT_FORKS = 10  # a drift check is one short round trip
KEEP_LAST = 30  # runs of each host that no age takes away


@dataclass(frozen=True)
class Request:
    """The options that all four commands share, as click hands them over."""

    hosts: tuple[str, ...]
    profile: str | None
    inventory: str | None
    limit: str | None
    forks: int | None
    ssh_key: Path | None
    accept_new_host_key: bool
    become: bool
    ask_become_pass: bool
    output: Output
    store: str | None = None
    batch: str | None = None
    failed: bool = False


def execute(command: str, request: Request, *, stored: bool = True, **chosen: Any) -> int:
    """Run one workflow on every host and show the result in the format of the request; returns the exit code."""
    from gpuprep import settings
    from gpuprep.workflows import provision

    site = settings.load()
    needs_host("drift last" if command == "last" else command, request)
    options = run_options(request, site, **chosen)
    machines = machines_of(request)
    profiles = load_profiles(command, request, machines)
    for profile in profiles.values():
        provision.check_request(profile, options)
    workflow = _workflow(command, request, profiles)
    records = on_hosts(command, request, site, workflow, options, machines, stored=stored)
    as_table = command in DRIFT and (request.inventory is not None or len(records) > 1)
    # `drift last` stores the host's result; if there is none, no run is stored.
    kept = command != "last" or not records[0].error
    as_plan = options.check or command == "plan"
    return show(records, request.output, as_table=as_table, as_plan=as_plan, stored=kept)


def execute_after_a_look(
    command: str, request: Request, look: Workflow, work: AfterALook, options: Options, *, question: str, yes: bool
) -> int:
    """Show what `work` would do on every host, ask, and do it on those that answered; returns the exit code.

    A host that does not answer keeps no other from it: its failed look is its run.
    """
    from gpuprep import settings
    from gpuprep.errors import Interrupted, UsageError

    asks = sys.stdin.isatty() and sys.stderr.isatty()
    if not (options.check or yes or asks):
        raise UsageError(
            "there is no terminal to ask on, and --yes is not given",
            "look first with --check, then run the same command with --yes",
        )
    if request.ask_become_pass:  # once, for the look and for the work
        options = dataclasses.replace(options, become_password=ask_password())
        request = dataclasses.replace(request, ask_become_pass=False)
    site, machines = settings.load(), machines_of(request)
    looked = on_hosts(command, request, site, look, options, machines, stored=not options.check)
    plans = {record.host: record.plan for record in looked if not record.error}
    if options.check or not plans or any(record.exit_code == Interrupted.exit_code for record in looked):
        return show(looked, request.output, as_plan=options.check, stored=not options.check)
    if not (yes and request.output.quiet):
        show_plans([record for record in looked if record.host in plans], color=request.output.color)
    todo = any(plan and plan.steps for plan in plans.values())
    if todo and not yes and not click.confirm(question, default=False, err=True):
        raise UsageError("nothing was changed", "answer y, or add --yes")

    def shown(target: Target, chosen: Options, context: RunContext) -> RunRecord:
        return work(target, chosen, context, plans[target.name])

    able = [target for target in machines if target.name in plans]
    worked = on_hosts(command, request, site, shown, options, able, batch=looked[0].batch_id)
    ended = {record.host: record for record in (*looked, *worked)}
    return show([ended[target.name] for target in machines], request.output)


def _workflow(command: str, request: Request, profiles: Mapping[str, Profile]) -> Workflow:
    from gpuprep.workflows import drift, provision, schedule

    if command == "last":
        return schedule.last
    run = drift.check if command == "drift" else getattr(provision, command)

    def workflow(target: Target, options: Options, context: RunContext) -> RunRecord:
        if target.name not in profiles:
            return provision.plan_proposing(target, options, context).record
        return run(target, profiles[target.name], by_inventory(target, request, options), context)

    return workflow


def by_inventory(target: Target, request: Request, options: Options) -> Options:
    """The options with the profile that the inventory names, for the commands that a report offers."""
    if request.profile or not target.profile:
        return options
    return dataclasses.replace(options, asked={**options.asked, "profile": target.profile})


def run_options(request: Request, site: SiteConfig, **chosen: Any) -> Options:
    from gpuprep.workflows import runs

    return runs.Options(
        accept_new_host_key=request.accept_new_host_key,
        mirrors=site.mirrors,
        builds=site.builds,
        verbosity=max(0, request.output.verbosity - 1),
        asked=_asked(request),
        **chosen,
    )


def _asked(request: Request) -> dict[str, Any]:
    """Hosts and login options as typed, for the commands that a report offers. A store with a password is left out."""
    typed = {
        "hosts": list(request.hosts),
        "inventory": request.inventory,
        "limit": request.limit,
        "profile": request.profile,
        "ssh_key": str(request.ssh_key) if request.ssh_key else None,
        "accept_new_host_key": request.accept_new_host_key,
        "ask_become_pass": request.ask_become_pass,
        "store": without_secret(request.store),
    }
    return {name: value for name, value in typed.items() if value}


def on_hosts(
    command: str,
    request: Request,
    site: SiteConfig,
    workflow: Workflow,
    options: Options,
    machines: Sequence[Target],
    *,
    stored: bool = True,
    batch: str | None = None,
) -> list[RunRecord]:
    """Run `workflow` on every machine; the sudo password is asked for once, before the first.

    `batch`: the id of a batch that these runs belong to; None: a new one, where there is more than one machine.
    """
    from gpuprep.errors import StoreError
    from gpuprep.records.ids import new_run_id
    from gpuprep.store import Store
    from gpuprep.workflows import storeofruns
    from gpuprep.workflows.runs import UNEXPECTED, RunContext, on_each

    if request.ask_become_pass:
        options = dataclasses.replace(options, become_password=ask_password())
    if options.become_password:
        keep_secret(options.become_password)
    store = Store.open(request.store or site.store) if stored else None
    if store is not None:
        storeofruns.store_all(store)
    past = None if stored else _earlier_runs(request.store or site.store)
    # An inventory's hosts are a batch even if only one of them is left.
    if batch is None:
        batch = new_run_id() if len(machines) > 1 or request.inventory is not None else ""
    cancel = threading.Event()
    try:
        with Console(
            [target.name for target in machines],
            verbose=request.output.verbosity,
            quiet=request.output.quiet,
            no_color=request.output.no_color,
        ) as console:
            context = RunContext(
                console.progress, store, cancel.is_set, console.shows_time_left, batch_id=batch, past=past
            )

            def work(target: Target) -> RunRecord:
                ended: tuple[int, str | None, str] = (UNEXPECTED, None, "")
                try:
                    record = workflow(target, options, context)
                    ended = (record.exit_code, record.error, record.run_id)
                    return record
                finally:
                    console.ended(target.name, *ended)

            records = on_each(
                machines,
                work,
                forks=request.forks or site.forks or (DRIFT_FORKS if command in DRIFT else DEFAULT_FORKS),
                cancel=cancel,
                command=command,
                interrupted=lambda: console.say(
                    "Interrupted: ending what runs and writing the record; this takes a few seconds. "
                    "Ctrl-C again ends at once, without a record"
                ),
                runs=context.runs,
            )
            if store is not None and site.keep_days:
                try:
                    pruned = storeofruns.prune(store, site.keep_days, KEEP_LAST, [target.name for target in machines])
                except StoreError as error:  # the runs are stored, and are shown
                    console.say(f"runs older than keep_days are not deleted: {error.explain()}")
                else:
                    if pruned.run_ids:
                        console.say(f"{len(pruned.run_ids)} runs from before {pruned.before[:10]} deleted (keep_days)")
            return records
    finally:
        for opened in (store, past):
            if opened is not None:
                opened.close()


def _earlier_runs(url: str | None) -> Store | None:
    """The store, for an estimate; None if it cannot be opened: a missing estimate must not stop a command."""
    from gpuprep.errors import StoreError, UsageError
    from gpuprep.store import Store

    try:
        return Store.open(url)
    except (StoreError, UsageError):
        return None


def needs_host(command: str, request: Request) -> None:
    """Raises UsageError, which lists all profiles and simulated machines, if neither HOST nor -i is given."""
    from gpuprep.errors import UsageError

    if not (request.hosts or request.inventory is not None or request.batch or request.failed):
        raise UsageError(f"`gpuprep {command}` needs a HOST", _what_exists(command, request))


def load_profiles(command: str, request: Request, machines: Sequence[Target]) -> dict[str, Profile]:
    """The profile of each machine by its name: that of --profile, or else of the inventory.

    `last` needs none, because a host checks itself by its own profile, and `plan` proposes one where none is named.
    Raises ProfileError; UsageError, which lists all profiles, for a machine without one.
    """
    from gpuprep.desired import loading
    from gpuprep.errors import UsageError
    from gpuprep.workflows.provision import PROFILE

    if command == "last":
        return {}
    # A machine that is refused needs no profile of its own to say so.
    named = {
        machine.name: request.profile
        or machine.profile
        or (PROFILE if command == "capacity" or machine.refused else "")
        for machine in machines
    }
    without = [name for name, profile in named.items() if not profile]
    if without and command != "plan":
        some = f"`gpuprep {command}` needs --profile"
        if len(without) < len(named):
            some = f"{names(without)} of {request.inventory}: no gpu_profile, and --profile is not given"
        raise UsageError(some, _what_exists(command, request))
    loaded: dict[str, Profile] = {}
    for machine, profile in named.items():
        if not profile or profile in loaded:
            continue
        try:
            loaded[profile] = loading.load(profile)
        except UsageError as error:
            where = "" if request.profile else f"host {machine}: gpu_profile: "
            raise UsageError(f"{where}{error.what}", f"{error.hint}\n{_machines()}") from error
    return {name: loaded[profile] for name, profile in named.items() if profile}


def _what_exists(command: str, request: Request) -> str:
    """Hint of an incomplete command: the whole command with the typed hosts, and which profiles and machines exist."""
    from gpuprep.desired import loading

    words = ["gpuprep", *command.split()]
    words += ["--inventory", str(request.inventory)] if request.inventory is not None else []
    words += [] if command in NO_PROFILE else ["--profile", "PROFILE"]
    hosts = request.hosts or (("HOST",) if request.inventory is None else ())
    lines = [shell_command(*words, about=hosts)]
    if len(request.hosts) == 1 and request.inventory is None:
        lines.append(f"`{shell_command('gpuprep', 'plan', about=hosts)}` proposes a profile")
    return "\n".join([*lines, f"profiles: {', '.join(loading.available())}, or a path to a YAML file", _machines()])


def _machines() -> str:
    from gpuprep import sim
    from gpuprep.errors import GpuprepError

    try:
        machines = ", ".join(f"sim:{machine.name}" for machine in sim.machines())
    except GpuprepError:  # simulated machines cannot run here: then there is none
        machines = ""
    return f"simulated machines: {machines or 'none yet; `gpuprep sim up t4` makes one'}"


def machines_of(request: Request) -> list[Target]:
    """The hosts that the request names. Notes about them are printed. Raises UsageError."""
    from gpuprep.errors import UsageError
    from gpuprep.workflows import targets

    chosen = _of_batch(request)
    hosts = request.hosts or (tuple(chosen or ()) if request.inventory is None else ())
    machines = targets.parse(
        hosts,
        request.inventory,
        request.limit,
        ssh_key=str(request.ssh_key) if request.ssh_key else None,
        note=lambda text: click.echo(f"note: {visible(text)}", err=True),
    )
    if chosen is None:
        return machines
    kept = [machine for machine in machines if machine.name in chosen]
    if not kept:
        which = "failed in" if request.failed else "is of"
        raise UsageError(
            f"no such host {which} batch {request.batch}", "`gpuprep history --batch last` lists its hosts"
        )
    return kept


def _of_batch(request: Request) -> dict[str, None] | None:
    """Names of the hosts of --batch, in its order; None without it. A name of the store is never a pattern."""
    from gpuprep.errors import UsageError

    if request.batch is None:
        if request.failed:
            raise UsageError("--failed needs --batch", "--batch last --failed")
        return None
    from gpuprep.records import ended
    from gpuprep.workflows import storeofruns  # brings SQLAlchemy: half a second

    with storeofruns.existing(request.store) as store:
        runs = store.runs(limit=MOST_OF_BATCH, batch=request.batch)
    return {run.host: None for run in runs if not request.failed or ended.failed(run.verdict, run.exit_code)}


def ask_password() -> str:
    """The sudo password, typed unseen at a terminal or piped in as one line. Raises UsageError where there is none."""
    import getpass
    import sys

    from gpuprep.errors import UsageError

    if sys.stdin.isatty():
        password = getpass.getpass("sudo password on the host: ", stream=sys.stderr)
    else:
        password = sys.stdin.readline().rstrip("\n")
    if not password:
        raise UsageError("--ask-become-pass got no password", "type it at a terminal, or pipe it in as one line")
    keep_secret(password)
    return password


def show(
    records: list[RunRecord], output: Output, *, as_table: bool = False, as_plan: bool = False, stored: bool = True
) -> int:
    """The records of a command in its format; returns the exit code. `as_table`: a row a host, also of a single one."""
    from gpuprep.records import showable
    from gpuprep.reports import text_hosts

    # A terminal gets a short page; -v and a file have all of it.
    everything = output.verbose or output.file is not None

    def page(those: Sequence[RunRecord]) -> str:
        if as_table:
            return text_hosts.fleet_page(those, color=output.color, width=page_width(), everything=everything)
        return text_hosts.document(
            those,
            color=output.color,
            width=page_width(),
            everything=everything,
            as_plan=as_plan,
            stored=stored,
            # The error of a single host is printed on stderr, as in any program; a file of --output has it, too.
            error_shown=len(those) == 1 and bool(those[0].error) and output.file is None,
        )

    if output.form != "text":
        shown = show_records(records, output.form, output.file, open_page=output.open_page, code=_gravest)
        errors_to_stderr(shown, stored=stored)
        return _gravest(shown)
    whole, shown = showable.each(page, records)
    if not as_table and (len(shown) == 1 or output.file is not None):  # a table has the errors of its hosts
        errors_to_stderr(shown, stored=stored)
    output.write(whole)
    return _gravest(shown)


def show_plans(listed: Sequence[RunRecord], *, color: bool) -> None:
    """What a command is about to do, before it asks: on stderr, stdout is for the result."""
    from gpuprep.reports import text

    for record in listed:
        click.echo(text.render_plan(record, color=color, width=page_width()), err=True)


def errors_to_stderr(records: Sequence[RunRecord], *, stored: bool = True) -> None:
    """Print the errors of all records; equal errors of several hosts are printed once (reports/failures.py)."""
    failed = {record.run_id: record for record in records if record.error}
    for group in groups([Failed(record.host, record.error or "", run_id) for run_id, record in failed.items()]):
        record = failed[group[0].run_id]
        what = group[0].error if len(group) == 1 else group[0].plain
        first, *rest = masked(visible(what)).splitlines()
        if len(group) > 1:
            first = f"{len(group)} hosts: {first}: {visible(names([failed_host.host for failed_host in group]))}"
        lines = [f"Error: {first}", *(f"  {line}" for line in rest)]
        if stored and record.command not in ("plan", "last"):
            whose = f" of {visible(record.host)}" if len(group) > 1 else ""
            lines.append(f"  report{whose}: {_report_of(record)}")
        click.echo("\n".join(lines), err=True)


def _report_of(record: RunRecord) -> str:
    return shell_command("gpuprep", "report", about=record.run_id)


def _gravest(records: Sequence[RunRecord]) -> int:
    from gpuprep.workflows import provision

    return provision.worst([record.exit_code for record in records])
