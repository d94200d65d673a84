"""gpuprep completion, and the values that it offers to a shell for a word.

The shell's script (cli/shells/) starts gpuprep with _GPUPREP_COMPLETE=SHELL_complete and the line in the environment.
The answer is a line a candidate: kind, value and help with tabs between them. Whatever goes wrong, the answer is
shorter and nothing is printed: a message would stand in the middle of the line that the user types.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from pathlib import Path
from typing import Any

import click

from gpuprep.cli import candidates
from gpuprep.cli.candidates import Asked, Candidate
from gpuprep.cli.groups import DefaultGroup
from gpuprep.untrusted.plaintext import one_line

SHELLS = ("bash", "zsh", "fish")
SECONDS = 3.0  # then the shell gets no answer: a folder on a network that does not answer must not hold the terminal
MOST_HELP = 70
BLANKS = " \t\n"
INSTALL = {
    "bash": 'in ~/.bashrc:  eval "$(gpuprep completion bash)"',
    "zsh": 'in ~/.zshrc, after compinit:  eval "$(gpuprep completion zsh)"',
    "fish": "gpuprep completion fish > ~/.config/fish/completions/gpuprep.fish",
}


@click.command(
    epilog="\b\nHow to switch it on:\n" + "\n".join(f"  {shell:5} {line}" for shell, line in INSTALL.items())
)
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> None:
    """Print the script that completes gpuprep's command lines in a shell.

    Tab then completes commands, options and their values, hosts, profiles and runs. Completion only reads files of this
    machine: it contacts no host, runs no inventory script and writes nothing.
    """
    click.echo((Path(__file__).parent / "shells" / f"gpuprep.{shell}").read_text(encoding="utf-8"), nl=False)


def answer(cli: click.Group, instruction: str) -> int:
    """Print the candidates for the shell; returns 0. Prints nothing on stderr. `instruction`: "bash_complete"."""
    shell = instruction.partition("_")[0]
    if shell not in SHELLS:
        return 0
    signal.signal(signal.SIGALRM, lambda *_: os._exit(0))
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stderr(nowhere):
        try:
            text = _answered(cli, shell)
        except (Exception, SystemExit, KeyboardInterrupt):  # noqa: BLE001  there is nobody whom a message would help
            text = ""
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.write(text)
        sys.stdout.flush()
    return 0


def _answered(cli: click.Group, shell: str) -> str:
    words = _words(shell)
    if not words:
        return ""
    *before, incomplete = words[1:] or [""]
    completions = completed(cli, before, incomplete)
    if shell == "bash":
        completions = [
            _after_break(candidate, incomplete, os.environ.get("GPUPREP_COMP_BREAKS", "")) for candidate in completions
        ]
    return "".join(
        f"plain\t{candidate.value}\t{_plain_help(candidate.help)}\n"
        if candidate.kind == "plain"
        else f"{candidate.kind}\n"
        for candidate in completions
    )


def _words(shell: str) -> list[str]:
    """The words of the line up to the cursor; the last one is the word at hand, maybe "".

    bash splits at each "=" and ":" of a line, so it hands over the line itself.
    """
    if shell != "bash":
        return [*os.environ.get("GPUPREP_COMP_WORDS", "").split("\n"), os.environ.get("GPUPREP_COMP_WORD", "")]
    from click.shell_completion import split_arg_string

    line = os.environ.get("GPUPREP_COMP_LINE", "")
    words = split_arg_string(line)
    return [*words, ""] if line[-1:] in BLANKS and not line.endswith("\\ ") else words


def completed(cli: click.Group, before: list[str], incomplete: str) -> list[Candidate]:
    """The candidates for the word at hand, after the words `before` it."""
    from click.shell_completion import _resolve_context, _resolve_incomplete

    context = _resolve_context(cli, {}, "gpuprep", list(before))
    group = context.command
    if isinstance(group, DefaultGroup) and incomplete.startswith("-") and "=" in incomplete:
        command = group.commands[group.default]
        context = command.make_context(group.default, [], parent=context, resilient_parsing=True)
    asked, word = _resolve_incomplete(context, list(before), incomplete)
    begin = incomplete[: len(incomplete) - len(word)]  # "--format=" of --format=ht
    completions = {f"{candidate.kind} {candidate.value}": candidate for candidate in _values(context, asked, word)}
    return [
        Candidate(f"{begin}{candidate.value}", candidate.help, candidate.kind) for candidate in completions.values()
    ]


def _values(context: click.Context, asked: click.Command | click.Parameter, word: str) -> list[Candidate]:
    if isinstance(asked, click.Parameter):
        source = candidates.of(asked, context.command_path.partition(" ")[2])
        if source is not None:
            given: dict[str, Any] = {}
            for each in (context, *_parents(context)):
                given = {**each.params, **given}
            return candidates.offered(source(Asked(word, given)), word)
    items = asked.shell_complete(context, word)
    completions = [Candidate(str(item.value), item.help or "", item.type) for item in items]
    return completions + _of_default(context, asked, word) if isinstance(asked, DefaultGroup) else completions


def _of_default(context: click.Context, group: DefaultGroup, word: str) -> list[Candidate]:
    """Candidates of the group's default subcommand: `drift HOST` is short for `drift check HOST`."""
    command = group.commands[group.default]
    with command.make_context(group.default, [], parent=context, resilient_parsing=True) as inner:
        if word.startswith("-"):
            return _values(inner, command, word)
        first = next((each for each in command.params if isinstance(each, click.Argument)), None)
        return _values(inner, first, word) if first else []


def _parents(context: click.Context) -> list[click.Context]:
    parents = []
    while context.parent is not None:
        context = context.parent
        parents.append(context)
    return parents


def _after_break(candidate: Candidate, incomplete: str, breaks: str) -> Candidate:
    """The candidate without its part up to the last ":" or "=": bash replaces only the text after this character."""
    last = max((incomplete.rfind(mark) for mark in breaks if mark not in BLANKS), default=-1)
    if last < 0 or candidate.kind != "plain":
        return candidate
    begin = last if incomplete[last] in "@$" else last + 1  # readline takes these two for the begin of a word
    return Candidate(candidate.value[begin:], candidate.help, candidate.kind)


def _plain_help(text: str) -> str:
    """`text` as one short line of printable ASCII, which cannot disturb the shell's menu."""
    line = one_line(text, MOST_HELP).replace("…", "...")
    return "".join(letter if letter.isascii() and letter.isprintable() else "?" for letter in line)
