"""A click group that says what to write where a word is none of its commands."""

from __future__ import annotations

import click


class Subcommands(click.Group):
    """A word of another program is answered with ours: stop, below sim, with `gpuprep sim down --keep NAME`."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and not args[0].startswith("-") and args[0] not in self.commands:
            from gpuprep.cli import suggestions

            near = suggestions.subcommand(self, ctx, args[0])
            ask = f" Write `{ctx.command_path} {near}` instead." if near else ""
            ctx.fail(f"No such command {args[0]!r}.{ask} Commands: {', '.join(self.commands)}.")
        return super().resolve_command(ctx, args)
