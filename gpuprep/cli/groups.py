"""The table of commands, and the groups of commands: imported when they run, with advice, with a default."""

from __future__ import annotations

import importlib
import inspect
from typing import TYPE_CHECKING, Any, NamedTuple

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


class Entry(NamedTuple):
    module: str
    help: str  # equal to the command's own short help: tests/unit/cli/test_cli.py compares them


COMMANDS: dict[str, Entry] = {
    "init": Entry("gpuprep.cli.init", "Look at a new machine, and write the two files that the other commands need"),
    "provision": Entry("gpuprep.cli.hosts", "Plan, install, tune and check machines; end with a verdict"),
    "plan": Entry("gpuprep.cli.hosts", "Show what provision would do and why; change nothing"),
    "tune": Entry("gpuprep.cli.hosts", "Set only persistence mode, clocks, power limit, ECC, MIG and compute mode"),
    "validate": Entry("gpuprep.cli.hosts", "Measure machines and judge them by a profile; change nothing"),
    "capacity": Entry("gpuprep.cli.hosts", "Measure how many video streams machines carry; change nothing"),
    "rollback": Entry("gpuprep.cli.rollback", "Go back to the driver that a host had before its last change"),
    "unprovision": Entry("gpuprep.cli.unprovision", "Take back what gpuprep did on machines, and nothing else"),
    "drift": Entry("gpuprep.cli.drift", "Compare machines with their profile and their certified run"),
    "doctor": Entry("gpuprep.cli.doctor", "Say what is wrong with machines and what to do"),
    "status": Entry("gpuprep.cli.status", "Show how each host was when it was last checked, the worst first"),
    "watch": Entry("gpuprep.cli.watch", "Watch the GPUs of machines on the terminal, as they are now; change nothing"),
    "history": Entry("gpuprep.cli.history", "List recorded runs, newest first"),
    "compare": Entry("gpuprep.cli.compare", "Show what changed between two recorded runs"),
    "baseline": Entry("gpuprep.cli.baseline", "Show, set and clear the certified run and the figures of a host"),
    "report": Entry("gpuprep.cli.report", "Show the report of a recorded run"),
    "serve": Entry("gpuprep.cli.serve", "Show the recorded runs in a browser; change nothing"),
    "judge": Entry("gpuprep.cli.judge", "Judge a recorded run again; no host is contacted"),
    "trace": Entry("gpuprep.trace.cli", "Read a profile of GPU work and show where the time went"),
    "explain": Entry("gpuprep.cli.explain", "Show what a GPU can do, without a machine"),
    "codec": Entry("gpuprep.cli.codec", "Check an ffmpeg command against a build, and build FFmpeg for other machines"),
    "monitoring": Entry("gpuprep.cli.monitoring", "Print alert rules and a dashboard for the metrics of drift"),
    "profiles": Entry("gpuprep.cli.profiles", "List, show, check and write profiles"),
    "sim": Entry("gpuprep.cli.sim", "Start and stop simulated GPU VMs: real Linux machines with a simulated GPU"),
    "help": Entry("gpuprep.cli.about", "Show the help of a command"),
    "version": Entry("gpuprep.cli.about", "Show the versions of gpuprep and of what it uses"),
    "completion": Entry("gpuprep.cli.completion", "Print the script that completes gpuprep's command lines in a shell"),
}


class Subcommands(click.Group):
    """A word of another program is answered with gpuprep's: `sim stop` with `gpuprep sim down --keep NAME`."""

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


class LazyGroup(Subcommands):
    """Answers --help and completion from COMMANDS alone."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  click's signature
        return self.names()

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        entry = COMMANDS.get(cmd_name)
        if entry is None:
            return None
        command = getattr(importlib.import_module(entry.module), cmd_name)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.help) for name, entry in COMMANDS.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Completions from COMMANDS: click itself would import every command."""
        from click.shell_completion import CompletionItem

        names = [
            CompletionItem(name, help=command.help) for name, command in COMMANDS.items() if name.startswith(incomplete)
        ]
        return names + click.Command.shell_complete(self, ctx, incomplete)

    def names(self) -> list[str]:
        return list(COMMANDS)

    def advice(self, ctx: click.Context, word: str) -> str:
        from gpuprep.cli import suggestions

        near = suggestions.command(self, ctx, word)
        return f"Did you mean {near!r}?" if near else ""


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
        from difflib import get_close_matches

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
