"""gpuprep help."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


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
