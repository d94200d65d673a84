"""gpuprep help and version."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


# What each extra of pyproject.toml brings, by the names that are imported.
EXTRAS = {
    "postgresql": ("psycopg",),
    "serve": ("starlette", "uvicorn"),
    "trace": ("msgspec", "numpy", "xlsxwriter"),
    "tensorboard": ("msgspec", "numpy", "tensorboard"),
}


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document on stdout.")
@click.option("--store", metavar="URL", envvar="GPUPREP_STORE", help="Database of runs, as for other commands.")
def version(as_json: bool, store: str | None) -> None:
    """Show the versions of gpuprep and of what it uses.

    Also where the store of runs is and which extras are installed. Contacts nobody, and does not open the store.
    `gpuprep --version` prints gpuprep's own version alone.
    """
    import importlib.metadata
    import importlib.util
    import platform
    import sys
    from pathlib import Path

    from gpuprep import __version__, settings
    from gpuprep.errors import GpuprepError
    from gpuprep.paths import state_dir
    from gpuprep.untrusted.masking import masked_url
    from gpuprep.untrusted.plaintext import visible

    def of(package: str) -> str | None:
        try:
            return importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            return None

    try:
        url = store or settings.load().store
    except GpuprepError as error:  # a version is asked for where something is wrong, too
        click.echo(f"note: {error.what}", err=True)
        url = None
    path = state_dir() / "history.db"
    place = masked_url(url) if url else str(path) + ("" if path.exists() else " (not made yet)")
    libraries = {name: of(name) for name in ("ansible-core", "click", "sqlalchemy", "paramiko", "rich")}
    extras = {name: all(map(importlib.util.find_spec, modules)) for name, modules in EXTRAS.items()}
    if as_json:
        from gpuprep.reports import documents

        click.echo(
            documents.document(
                {
                    "gpuprep": __version__, "python": platform.python_version(), "executable": sys.executable,
                    "store": place, "libraries": libraries, "extras": extras, "package": str(Path(__file__).parents[1]),
                }
            )
        )  # fmt: skip
        return
    lines = [
        f"gpuprep {__version__}  {Path(__file__).parents[1]}",
        f"Python  {platform.python_version()}  {sys.executable}",
        f"store   {place}",
        *(f"extra   {name}: {'installed' if there else 'not installed'}" for name, there in extras.items()),
        *(f"library {name} {installed_version or 'not installed'}" for name, installed_version in libraries.items()),
    ]
    click.echo(visible("\n".join(lines)))


def _subcommands(ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from click.shell_completion import CompletionItem

    command: click.Command | None = ctx.find_root().command
    for word in ctx.params.get("command") or ():
        command = command.get_command(ctx, word) if isinstance(command, click.Group) else None
    if not isinstance(command, click.Group):
        return []
    return [CompletionItem(name) for name in command.list_commands(ctx) if name.startswith(incomplete)]


@click.command("help")
@click.argument("command", metavar="[COMMAND]...", nargs=-1, shell_complete=_subcommands)
@click.pass_context
def help(ctx: click.Context, command: tuple[str, ...]) -> None:
    """Show the help of a command.

    `gpuprep help drift schedule` is the same as `gpuprep drift schedule --help`. Without a command: all commands.
    """
    context = ctx.find_root()
    for word in command:
        group = context.command
        if not isinstance(group, click.Group):
            context.fail(f"{context.command_path!r} has no subcommands.")
        _, subcommand, _ = group.resolve_command(context, [word])  # fails with what there is
        assert subcommand is not None
        context = click.Context(subcommand, parent=context, info_name=word)
    click.echo(context.get_help())
