"""A click group with a default subcommand, used if the first word names no subcommand."""

from __future__ import annotations

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
        if args and (near := get_close_matches(args[0], self.commands, n=1, cutoff=0.8)):
            meant = f"Did you mean {near[0]!r}? A host of that name: {ctx.command_path} {self.default} {args[0]}."
            ctx.fail(f"No such command {args[0]!r}. {meant}")
        wants_help = any(arg in ("-h", "--help") for arg in args)
        return super().parse_args(ctx, args if wants_help else [self.default, *args])
