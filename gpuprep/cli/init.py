"""gpuprep init: the first look at a machine."""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpuprep.cli import options
from gpuprep.cli.console import emit, page_width, want_color
from gpuprep.cli.output import Output
from gpuprep.cli.run_hosts import Request, errors_to_stderr, machines_of, on_hosts, run_options
from gpuprep.untrusted.plaintext import command, visible

if TYPE_CHECKING:
    from gpuprep.desired.proposal import Proposal
    from gpuprep.records import Plan, RunRecord
    from gpuprep.remote import Target
    from gpuprep.workflows.effort import Effort
    from gpuprep.workflows.firstmachine import HostKey
    from gpuprep.workflows.provision import Proposed
    from gpuprep.workflows.runs import Options, RunContext

INVENTORY = Path("inventory")
ACCEPT = "--accept-new-host-key"


@click.command()
@click.argument("host", metavar="HOST")
@click.option(
    "--ssh-key", metavar="FILE", type=click.Path(path_type=Path), help="Private SSH key; only this one is tried."
)
@click.option("--name", metavar="NAME", help="What the inventory calls the host. Default: as in HOST.")
@click.option(
    "--inventory",
    metavar="FOLDER",
    type=click.Path(file_okay=False, path_type=Path),
    default=INVENTORY,
    show_default=True,
    help="Folder that gets a file for this host.",
)
@click.option(
    "--profile-file",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="File for your own profile. Default: my-MODEL.yml.",
)
@click.option("--force", is_flag=True, help="Replace existing files.")
@click.option(
    "-y",
    "--yes",
    ACCEPT,
    "accept",
    is_flag=True,
    help="Accept a host key that is not known, without a question. A changed host key is still refused.",
)
@click.option("-K", "--ask-become-pass", is_flag=True, help="Ask for the sudo password; needed if sudo asks for one.")
@click.option("-v", "--verbose", count=True, help="Show more.")
@click.option("-q", "--quiet", is_flag=True, help="No progress on stderr; errors and the host key are still shown.")
@click.option("--no-color", is_flag=True, help="No colour. The NO_COLOR variable does the same.")
@options.store
def init(
    host: str,
    ssh_key: Path | None,
    name: str | None,
    inventory: Path,
    profile_file: Path | None,
    force: bool,
    accept: bool,
    ask_become_pass: bool,
    verbose: int,
    quiet: bool,
    no_color: bool,
    store: str | None,
) -> int:
    """Look at a new machine, and write the two files that the other commands need.

    Changes nothing on the machine.

    Finds a user and a key that may log in, shows the host key and asks before it is accepted, reads which GPUs the
    machine has, writes an inventory file and a profile of your own for them, shows what provision would do with its
    minutes, downloads and restarts, and ends with the next command. HOST may also be local or sim:NAME.
    """
    from gpuprep.errors import UsageError
    from gpuprep.workflows import firstmachine, targets

    if name is not None:
        firstmachine.check_name(name)
    if store is not None:
        from gpuprep.store import Store

        Store.open(store).close()  # an invalid store is reported first; a new store is made for the first run
    (target,) = targets.parse([host], ssh_key=str(ssh_key.expanduser().absolute()) if ssh_key else None)
    if ssh_key is not None and (target.local or target.simulated):
        raise UsageError(f"--ssh-key: {host} needs no SSH key", "leave --ssh-key out")

    def say(text: str) -> None:
        if not quiet:
            click.echo(visible(text), err=True)

    again = _again(name, inventory, profile_file, force=force, ask_become_pass=ask_become_pass, store=store)
    accepting = command(*again, *(["--ssh-key", str(ssh_key)] if ssh_key else []), ACCEPT, about=host)
    login = firstmachine.log_in(target, lambda shown: _accepted(shown, host, accepting, yes=accept), say, again)
    if login.user:
        say(f"logged in as {login.user} with {login.key}")
    key = Path(login.target.identity_file) if login.target.identity_file and login.user else None
    request = Request(
        hosts=(login.target.login,), profile=None, inventory=None, limit=None, forks=1, ssh_key=key,
        accept_new_host_key=False, become=False, ask_become_pass=ask_become_pass,
        output=Output("text", None, verbose, quiet, no_color, open_page=False), store=store,
    )  # fmt: skip
    made = _planned(request)
    plan, effort = made.record.plan, made.effort
    if made.record.error or made.proposal is None or plan is None or effort is None:
        errors_to_stderr([made.record])
        click.echo("No file was written.", err=True)
        return made.record.exit_code or 3
    called = name or firstmachine.inventory_name(login.target)
    profile = profile_file or firstmachine.default_profile(made.proposal)
    written = _write(login.target, called, inventory, profile, made.proposal, force=force)
    next_, why = (
        _command(verb, login.target, called, inventory, profile)
        for verb in (("provision" if made.record.plan and made.record.plan.steps else "validate"), "plan")
    )
    logged = [f"Login: {login.user} with {login.key}"] if login.user else []
    lines = [
        *_page(made.record, plan, effort, color=want_color(sys.stdout, no_color)),
        "", f"Machine: {made.proposal.why}", *logged, *written,
        f"Why each step is needed: {why}", "", "Next:", f"  {next_}",
    ]  # fmt: skip
    emit("\n".join(lines), None)
    return 0


def _again(
    name: str | None,
    inventory: Path,
    profile_file: Path | None,
    *,
    force: bool,
    ask_become_pass: bool,
    store: str | None,
) -> list[str]:
    """The words of this command with the options that were given, for the command that an error names."""
    words = ["gpuprep", "init"]
    words += ["--name", name] if name else []
    words += ["--inventory", str(inventory)] if inventory != INVENTORY else []
    words += ["--profile-file", str(profile_file)] if profile_file else []
    words += ["--force"] if force else []
    words += ["--ask-become-pass"] if ask_become_pass else []
    return words + (["--store", store] if store else [])


def _accepted(shown: HostKey, host: str, accepting: str, *, yes: bool) -> bool:
    """Show a host key, and ask before it becomes known; `accepting` is this command with --accept-new-host-key.

    Returns whether the key is accepted. Raises HostKeyRefused if there is no terminal to ask at.
    """
    from gpuprep.errors import HostKeyRefused

    lines = [
        f"The host key of {shown.name} is not known yet:",
        f"  {shown.algorithm} {shown.fingerprint}",
        f"Compare the fingerprint with the one that {shown.compare}",
    ]
    click.echo(visible("\n".join(lines)), err=True)
    if yes:
        click.echo(visible(f"Accepted, as asked; it is added to {shown.file}"), err=True)
        return True
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise HostKeyRefused(
            f"{host}: the host key is not known, and there is no terminal to ask at",
            f"compare the fingerprint; if it is the machine's, run `{accepting}`",
            where=host,
        )
    if not click.confirm(f"Is it this machine's? Yes adds it to {visible(shown.file)}", default=False, err=True):
        raise HostKeyRefused(f"{host}: the host key was not accepted", f"later: `{accepting}`", where=host)
    return True


def _write(
    target: Target, called: str, inventory: Path, profile: Path, proposal: Proposal, *, force: bool
) -> list[str]:
    """Write both files; returns one line about each. Raises UsageError, ProfileError: then it wrote neither."""
    from gpuprep.workflows import firstmachine, ownprofile

    file, content = inventory / f"{called}.yml", firstmachine.inventory_text(called, target)
    if not target.simulated:
        ownprofile.refuse_other(file, content, force=force)
    kept = not force and firstmachine.serves(profile, proposal)
    new = not kept and ownprofile.write(
        profile, firstmachine.profile_text(proposal), force=force, check=ownprofile.problems
    )
    lines = [f"Profile: {profile}, {'written: extends ' + proposal.profile if new else 'there already, used as it is'}"]
    if target.simulated:
        return [*lines, f"Inventory: not needed, {target.name} is the full name of a simulated machine"]
    new = ownprofile.write(file, content, force=force)
    return [*lines, f"Inventory: {file}, host {called}, {'written' if new else 'there already'}"]


def _command(verb: str, target: Target, called: str, inventory: Path, profile: Path) -> str:
    from gpuprep.workflows.ownprofile import as_path

    path = as_path(profile)
    if target.simulated:
        return command("gpuprep", verb, "--profile", path, about=target.name)
    return command("gpuprep", verb, "-i", str(inventory), "--profile", path, about=called)


def _planned(request: Request) -> Proposed:
    """What provision would do by the profile that fits the GPUs."""
    from gpuprep import settings
    from gpuprep.workflows import provision

    site = settings.load()
    proposals: list[Proposed] = []

    def workflow(target: Target, chosen: Options, context: RunContext) -> RunRecord:
        proposals.append(provision.plan_proposing(target, chosen, context))
        return proposals[0].record

    options = run_options(request, site)
    (record,) = on_hosts("plan", request, site, workflow, options, machines_of(request), stored=False)
    return proposals[0] if proposals else provision.Proposed(record, None, None)


def _page(record: RunRecord, plan: Plan, effort: Effort, *, color: bool) -> list[str]:
    """The steps with their minutes, downloads and restarts; `gpuprep plan` shows why each step is needed."""
    from gpuprep.records import Source
    from gpuprep.records.showable import SIMULATED
    from gpuprep.reports import text

    lines = [SIMULATED, ""] if record.source is Source.SIMULATED else []
    if not plan.steps:
        return [*lines, f"Plan for {plan.host}: nothing to do, the host is as the profile wants it"]
    bold = ("\x1b[1m", "\x1b[0m") if color else ("", "")
    lines += [f"{bold[0]}Plan for {plan.host}{bold[1]}", "    minutes  download"]
    titles = {step.role.removeprefix("gpu_"): step.title for step in plan.steps}
    titles |= {"facts": "Connect, read facts", "preflight": titles.get("preflight", "Check the host")}
    titles |= {"measuring": "Measure briefly and judge"}
    for step in effort.steps:
        download = text.size(step.megabytes) if step.megabytes else ""
        restart = ", may restart the machine" if step.restart else ""
        lines.append(f"  {step.seconds / 60:9.1f}  {download:>8}  {titles[step.name]}{restart}")
    lines += textwrap.wrap(text.whole_effort(effort.total), page_width(), initial_indent="  ", subsequent_indent="  ")
    return lines
