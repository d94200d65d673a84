"""gpuprep profiles: list the profiles, show one with all its values, check files."""

from __future__ import annotations

import click

from gpuprep.cli import tables
from gpuprep.cli.console import emit
from gpuprep.untrusted.plaintext import command, visible


@click.group()
def profiles() -> None:
    """List, show and check profiles."""


@profiles.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of a table.")
def list_profiles(as_json: bool) -> None:
    """List all profiles: those of gpuprep and your own."""
    from gpuprep.desired.loading import available, document
    from gpuprep.errors import ProfileError

    rows = []
    for name, path in available().items():
        try:
            data = document(str(path))
            row = {"name": name, "gpus": data["gpus"], "description": data["description"], "path": str(path)}
        except ProfileError as error:
            count = len(error.problems)
            see = command("gpuprep", "profiles", "check", about=name)
            note = f"has {count} problem{'s' if count > 1 else ''}: see {see}"
            row = {"name": name, "gpus": [], "description": note, "path": str(path)}
        rows.append(row)
    if as_json:
        emit(tables.document(profiles=rows), None)
        return
    table = [("NAME", "GPUS", "DESCRIPTION"), *((r["name"], ", ".join(r["gpus"]), r["description"]) for r in rows)]
    widths = [max(len(row[column]) for row in table) for column in (0, 1)]
    for name, gpus, description in table:
        emit(f"{name:<{widths[0]}}  {gpus:<{widths[1]}}  {description}", None)


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
    can have, and one line for each profile without a problem. The exit code is 2 if a profile has a problem.
    """
    found = {name: _problems(name) for name in names}
    for name, problems in found.items():
        emit("\n".join(problems) if problems else f"{name}: ok", None)
    context.exit(2 if any(found.values()) else 0)


def _problems(name: str) -> list[str]:
    from gpuprep.desired.loading import build, resolve
    from gpuprep.desired.state import check_profile
    from gpuprep.errors import ProfileError, UsageError

    try:
        resolved = resolve(name)
    except ProfileError as error:
        return list(error.problems)
    except UsageError as error:
        return [error.what]
    lines = []
    for refusal in check_profile(build(resolved)):  # "driver.flavour: reason; works: ..."
        place = resolved.place(*refusal.partition(": ")[0].split("."))
        lines.append(f"{place.file}:{place.line}: {refusal}")
    return lines
