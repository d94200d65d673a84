"""A click group that suggests a command if a word is not one of its commands."""

from __future__ import annotations

import click


class Subcommands(click.Group):
    """A word of another program is answered with ours: stop, below sim, with `gpuprep sim down --keep NAME`."""

    def names(self) -> list[str]:
        """Its commands in the order of the code."""
        return list(self.commands)

    def advice(self, ctx: click.Context, word: str) -> str:
        """A sentence that says what to write in place of `word`; "" where nobody knows."""
        from gpuprep.cli import suggestions

        near = suggestions.subcommand(self, ctx, word)
        return f"Write `{ctx.command_path} {near}` instead." if near else ""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and not args[0].startswith("-") and args[0] not in self.names():
            sentences = (
                f"No such command {args[0]!r}.",
                self.advice(ctx, args[0]),
                f"Commands: {', '.join(self.names())}.",
            )
            ctx.fail(" ".join(filter(None, sentences)))
        return super().resolve_command(ctx, args)
