"""The table of commands, and a click group that imports a command's module only when the command runs."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, NamedTuple

import click

from gpuprep.cli.subcommands import Subcommands

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


class Entry(NamedTuple):
    module: str
    help: str  # equal to the command's own short help: tests/unit/cli/test_cli.py compares them


COMMANDS: dict[str, Entry] = {
    "init": Entry("gpuprep.cli.init", "Look at a new machine, and write the two files that the other commands need"),
    "provision": Entry("gpuprep.cli.provision", "Plan, install, tune and check machines; end with a verdict"),
    "plan": Entry("gpuprep.cli.plan", "Show what provision would do and why; change nothing"),
    "tune": Entry("gpuprep.cli.tune", "Set only persistence mode, clocks, power limit, ECC and compute mode"),
    "validate": Entry("gpuprep.cli.validate", "Measure machines and judge them by a profile; change nothing"),
    "capacity": Entry("gpuprep.cli.capacity", "Measure how many video streams machines carry; change nothing"),
    "drift": Entry("gpuprep.cli.drift", "Compare machines with their profile and their certified run"),
    "status": Entry("gpuprep.cli.status", "Show how each host was when it was last checked, the worst first"),
    "watch": Entry("gpuprep.cli.watch", "Watch the GPUs of machines on the terminal, as they are now; change nothing"),
    "history": Entry("gpuprep.cli.history", "List recorded runs, newest first"),
    "compare": Entry("gpuprep.cli.compare", "Show what changed between two recorded runs"),
    "baseline": Entry("gpuprep.cli.baseline", "Show, set and clear the certified run and the figures of a host"),
    "report": Entry("gpuprep.cli.report", "Show the report of a recorded run"),
    "serve": Entry("gpuprep.cli.serve", "Show the recorded runs in a browser; change nothing"),
    "judge": Entry("gpuprep.cli.judge", "Judge a recorded run again; no host is contacted"),
    "trace": Entry("gpuprep.cli.trace", "Read a profile of GPU work and show where the time went"),
    "explain": Entry("gpuprep.cli.explain", "Show what a GPU can do, without a machine"),
    "codec": Entry("gpuprep.cli.codec", "Check an ffmpeg command against a build, and build FFmpeg for other machines"),
    "monitoring": Entry("gpuprep.cli.monitoring", "Print alert rules and a dashboard for the metrics of drift"),
    "profiles": Entry("gpuprep.cli.profiles", "List, show, check and write profiles"),
    "sim": Entry("gpuprep.cli.sim", "Start and stop simulated GPU VMs: real Linux machines with a simulated GPU"),
    "help": Entry("gpuprep.cli.help", "Show the help of a command"),
    "version": Entry("gpuprep.cli.version", "Show the versions of gpuprep and of what it uses"),
    "completion": Entry("gpuprep.cli.completion", "Print the script that completes gpuprep's command lines in a shell"),
}


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
