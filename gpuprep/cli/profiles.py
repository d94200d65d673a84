"""gpuprep profiles: list the profiles, show one with all its values, check files, write a new one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from gpuprep.cli.console import emit, table_columns
from gpuprep.cli.groups import Subcommands
from gpuprep.cli.output import table_lines
from gpuprep.untrusted.plaintext import command, visible

MOST_MODELS = 5  # that the table names of one profile


@click.group(cls=Subcommands)
def profiles() -> None:
    """List, show, check and write profiles."""


@profiles.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of a table.")
def list_profiles(as_json: bool) -> None:
    """List all profiles: those of gpuprep and your own."""
    from gpuprep.desired.loading import available, document
    from gpuprep.errors import ProfileError
    from gpuprep.reports import documents
    from gpuprep.reports.documents import ProfileLine

    rows = []
    for name, path in available().items():
        try:
            data = document(str(path))
            row = ProfileLine(name, tuple(data["gpus"]), data["description"], str(path))
        except ProfileError as error:
            count = len(error.problems)
            see = command("gpuprep", "profiles", "check", about=name)
            note = f"has {count} problem{'s' if count > 1 else ''}: see {see}"
            row = ProfileLine(name, (), note, str(path))
        rows.append(row)
    if as_json:
        emit(documents.document(documents.Profiles(tuple(rows))), None)
        return
    table = [("NAME", "GPUS", "DESCRIPTION"), *((row.name, _few(row.gpus), row.description) for row in rows)]
    emit("\n".join(table_lines(table, columns=table_columns(None))), None)


def _few(gpus: Sequence[str]) -> str:
    """The first models by name and how many more: a profile may be for all models."""
    if len(gpus) <= MOST_MODELS:
        return ", ".join(gpus)
    return f"{', '.join(gpus[: MOST_MODELS - 1])} and {len(gpus) - MOST_MODELS + 1} more"


@profiles.command()
@click.argument("profile", metavar="NAME|PATH")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of YAML.")
def show(profile: str, as_json: bool) -> None:
    """Show a profile with every value, including those that it inherits."""
    from gpuprep.desired.loading import document

    data = document(profile)
    if as_json:
        import json

        text = json.dumps(data, indent=2, ensure_ascii=False)
        emit(text if visible(text) == text else json.dumps(data, indent=2), None)
        return
    import yaml

    emit(yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=110), None)


@profiles.command()
@click.argument("names", metavar="NAME|PATH...", nargs=-1, required=True)
@click.pass_context
def check(context: click.Context, names: tuple[str, ...]) -> None:
    """Check profiles without touching a machine.

    Prints `file:line: key: what is wrong, what is allowed` for every problem, also for combinations that no machine
    can have, and one line for each profile without a problem. A waiver that has expired is a note. The exit code is 2
    if a profile has a problem.
    """
    from gpuprep.records.ids import now
    from gpuprep.workflows import ownprofile

    by_profile = {name: ownprofile.problems(name) for name in names}
    for name, problems in by_profile.items():
        notes = [] if problems else [f"note: {note}" for note in ownprofile.notes(name, now()[:10])]
        emit("\n".join([*(problems or [f"{name}: ok"]), *notes]), None)
    context.exit(2 if any(by_profile.values()) else 0)


@profiles.command()
@click.argument("name")
@click.option(
    "--gpu", "gpus", metavar="MODEL", multiple=True, help="A GPU that it is for: t4 or 'A100 PCIe'; may be repeated."
)
@click.option("--from", "parent", metavar="PROFILE", help="The profile to extend. Default: the profile for --gpu.")
@click.option(
    "--output",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write this file. Default: NAME.yml in your folder of profiles, where NAME finds it.",
)
@click.option("--force", is_flag=True, help="Replace an existing file.")
def new(name: str, gpus: tuple[str, ...], parent: str | None, output: Path | None, force: bool) -> None:
    """Write a profile of your own that extends another one.

    The new profile only names its GPUs: add the values that shall differ (docs/profiles.md lists all keys).
    """
    from gpuprep.errors import UsageError
    from gpuprep.workflows import ownprofile

    if not gpus and parent is None:
        again = command("gpuprep", "profiles", "new", "--gpu", "t4", about=name)
        raise UsageError("`gpuprep profiles new` needs --gpu or --from", again)
    path = ownprofile.place(name) if output is None else output
    models = ownprofile.models_named(gpus)
    extends = ownprofile.parent_of(models) if parent is None else ownprofile.parent_named(parent)
    ownprofile.refuse_other_models(extends, models)
    content = ownprofile.text(extends, models)
    if not ownprofile.write(path, content, force=force, check=ownprofile.problems):
        emit(f"{path} is there already, just like this", None)
    else:
        emit(f"{path} is written; it extends {extends}", None)
    chosen = name if output is None else ownprofile.as_path(path)
    emit(f"\nNext, a machine with such a GPU:\n  {command('gpuprep', 'plan', 'HOST', '--profile', chosen)}", None)
