"""A click group with a default subcommand, used if the first word names no subcommand."""

from __future__ import annotations

import inspect
from difflib import get_close_matches
from typing import Any

import click


class DefaultGroup(click.Group):
    """`gpuprep history HOST` means `gpuprep history list HOST` if `list` is the default.

    For a host that has the name of a subcommand, write the default subcommand: `gpuprep history list prune`.
    """

    def __init__(self, *args: Any, default: str, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.default = default

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[0] in self.commands:
            return super().parse_args(ctx, args)
        if ctx.resilient_parsing:  # completion: the words before the one at hand
            return super().parse_args(ctx, [self.default, *args] if args else [])
        first = args[0] if args and not args[0].startswith("-") else ""
        if near := get_close_matches(first, self.commands, n=1, cutoff=0.8):
            suggestion = f"Did you mean {near[0]!r}? A host of that name: {ctx.command_path} {self.default} {first}."
            ctx.fail(f"No such command {first!r}. {suggestion}")
        wants_help = any(arg in ("-h", "--help") for arg in args)
        return super().parse_args(ctx, args if wants_help else [self.default, *args])

    def format_usage(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Both forms: what the default subcommand takes, and a subcommand with what it takes."""
        default = self.commands[self.default]
        formatter.write_usage(ctx.command_path, " ".join(default.collect_usage_pieces(ctx)))
        formatter.write_usage(ctx.command_path, "COMMAND [ARGS]...", prefix="       ")

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The group's own text, then the default subcommand's text without its first paragraph, which is the same."""
        super().format_help_text(ctx, formatter)
        _, _, more = inspect.cleandoc(self.commands[self.default].help or "").partition("\n\n")
        if more:
            formatter.write_paragraph()
            with formatter.indentation():
                formatter.write_text(more)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The options of the default subcommand, which are those of the group, and the subcommands."""
        with self.commands[self.default].make_context(self.default, [], parent=ctx, resilient_parsing=True) as inner:
            click.Command.format_options(inner.command, inner, formatter)
        self.format_commands(ctx, formatter)
