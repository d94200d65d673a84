"""Man pages of all commands, made from the command line itself: `make man` writes them to man/.

gpuprep.1 has the list of commands; each command has a page, with its subcommands in it. The pages are kept in the
repository, because the wheel is built where gpuprep's libraries are not; test_manpages.py makes them anew.

click-man does not do: it passes over commands that are imported late, does not escape lines that begin with a dot,
leaves out epilogs, and needs Python 3.11.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from gpuprep import __version__
from gpuprep.cli import cli
from gpuprep.cli.groups import DefaultGroup

FILES = (
    ("~/.local/state/gpuprep/history.db", "the store of runs, if no other is chosen"),
    ("~/.local/state/gpuprep/runs/", "log and record of each run"),
    ("~/.config/gpuprep/config.yml", "settings"),
    ("~/.config/gpuprep/profiles/", "your own profiles"),
)
ENVIRONMENT = (
    ("GPUPREP_STORE", "URL of the store of runs, as --store"),
    ("NO_COLOR", "if it is not empty: no colour"),
    ("XDG_STATE_HOME, XDG_CONFIG_HOME, XDG_CACHE_HOME", "folders in place of ~/.local/state, ~/.config and ~/.cache"),
)
HELP = ("-h, --help", "Show this message and exit.")
CODE = re.compile(r"`([^`]+)`")


def pages() -> dict[str, str]:
    """File name ► page."""
    context = click.Context(cli, info_name="gpuprep", **cli.context_settings)
    made = {"gpuprep.1": _main(context)}
    for name in cli.list_commands(context):
        command = cli.get_command(context, name)
        assert command is not None
        made[f"gpuprep-{name}.1"] = _page(click.Context(command, info_name=name, parent=context))
    return made


def _main(context: click.Context) -> str:
    assert isinstance(cli, click.Group)
    summary = (cli.help or "").partition("\n")[0].rstrip(".")
    lines = [*_head("gpuprep", summary), ".SH SYNOPSIS", *_synopsis(context), ".SH DESCRIPTION", *_text(cli.help or "")]
    lines += [
        ".SH COMMANDS",
        "Each has a page of its own: gpuprep\\-COMMAND(1), or `gpuprep help COMMAND`.".replace("`", ""),
    ]
    for name in cli.list_commands(context):
        command = cli.get_command(context, name)
        assert command is not None
        lines += [".TP", f"\\fB{_escaped(name)}\\fR", *_inline(_short(command))]
    lines += [".SH OPTIONS", *_options(context)]
    for paragraph in (cli.epilog or "").split("\b")[1:]:
        title, _, rest = paragraph.strip("\n").partition("\n")
        is_title = title.endswith(":")
        lines += [f".SH {_escaped(title.rstrip(':').upper())}" if is_title else ".SH HOST"]
        lines += _block(rest if is_title else f"{title}\n{rest}")
    lines += [".SH ENVIRONMENT", *_terms(ENVIRONMENT), ".SH FILES", *_terms(FILES)]
    return _joined(lines)


def _page(context: click.Context) -> str:
    command, path = context.command, context.command_path
    lines = [*_head(path, _short(command)), ".SH SYNOPSIS", *_synopsis(context)]
    lines += [".SH DESCRIPTION", *_text(command.help or "")]
    lines += _of(context)
    if isinstance(command, click.Group):
        for inner in _inner(context):
            lines += [f".SH {_escaped(inner.command_path.upper())}", *_synopsis(inner), ".PP"]
            lines += [*_text(inner.command.help or ""), *_of(inner, ".SS Options")]
            for deeper in _inner(inner):
                lines += [f".SS {_escaped(deeper.command_path)}", *_synopsis(deeper), ".PP"]
                lines += [*_text(deeper.command.help or ""), *_of(deeper, ".PP")]
    if command.epilog:
        for paragraph in command.epilog.split("\b"):
            if paragraph.strip():
                lines += [".SH NOTES", *_block(paragraph.strip("\n"))]
    lines += [".SH EXIT STATUS", "See", "\\fBgpuprep\\fR(1).", ".SH SEE ALSO", "\\fBgpuprep\\fR(1)"]
    return _joined(lines)


def _of(context: click.Context, heading: str = ".SH OPTIONS") -> list[str]:
    """The options; of a group with a default subcommand those are on the default's part of the page."""
    if isinstance(context.command, DefaultGroup):
        name = f"{context.command_path} {context.command.default}"
        return [heading, *_inline(f"Those of `{name}`, below.")]
    found = _options(context)
    return [heading, *found] if found else []


def _inner(context: click.Context) -> Iterator[click.Context]:
    group = context.command
    if isinstance(group, click.Group):
        for name in group.list_commands(context):
            command = group.get_command(context, name)
            assert command is not None
            yield click.Context(command, info_name=name, parent=context)


def _head(path: str, summary: str) -> list[str]:
    name = path.replace(" ", "-")
    return [
        '.\\" Made by `make man` from the command line itself.',
        f'.TH {_escaped(name.upper())} 1 "" "gpuprep {_escaped(__version__)}" "gpuprep manual"',
        ".SH NAME",
        f"{_escaped(name)} \\- {_escaped(summary.rstrip('.'))}",
    ]


def _short(command: click.Command) -> str:
    return command.get_short_help_str(limit=200).rstrip(".")


def _synopsis(context: click.Context) -> list[str]:
    command = context.command
    found = []
    if isinstance(command, DefaultGroup):
        pieces = command.commands[command.default].collect_usage_pieces(context)
        found.append(f"\\fB{_escaped(context.command_path)}\\fR {_escaped(' '.join(pieces))}")
        found.append(".br")
    pieces = ["COMMAND [ARGS]..."] if isinstance(command, click.Group) else command.collect_usage_pieces(context)
    return [*found, f"\\fB{_escaped(context.command_path)}\\fR {_escaped(' '.join(pieces))}"]


def _options(context: click.Context) -> list[str]:
    lines = []
    # Not get_params(): click keeps its --help with the names of the context that asked first.
    records = [parameter.get_help_record(context) for parameter in context.command.params]
    for names, what in [*(told for told in records if told is not None), HELP]:
        lines += [".TP", f"\\fB{_escaped(names)}\\fR", *_inline(what)]
    return lines


def _text(text: str) -> list[str]:
    """Paragraphs of a help text; one that begins with \\b keeps its lines."""
    lines: list[str] = []
    for paragraph in inspect.cleandoc(text).split("\n\n"):
        lines += [".PP"] if lines else []
        lines += (
            _block(paragraph[1:].strip("\n")) if paragraph.startswith("\b") else _inline(" ".join(paragraph.split()))
        )
    return lines


def _block(text: str) -> list[str]:
    return [".nf", *(_line(line) for line in text.splitlines() if line.strip()), ".fi"]


def _terms(rows: tuple[tuple[str, str], ...]) -> list[str]:
    return [line for term, what in rows for line in (".TP", f"\\fB{_escaped(term)}\\fR", _line(what))]


def _inline(text: str) -> list[str]:
    """One paragraph, what stands in backticks bold; a sentence a line, as roff likes it."""
    marked = "".join(
        f"\\fB{_escaped(part)}\\fR" if place % 2 else _escaped(part) for place, part in enumerate(CODE.split(text))
    )
    return [_begin(line) for line in re.sub(r"(?<=[a-z0-9)])\. (?=[A-Z])", ".\n", marked).split("\n")]


def _line(text: str) -> str:
    return _begin(_escaped(text))


def _begin(line: str) -> str:
    """A line that begins with a dot or an apostrophe would be a request."""
    return f"\\&{line}" if line.startswith((".", "'")) else line


def _escaped(text: str) -> str:
    return text.replace("\\", "\\e").replace("-", "\\-")


def _joined(lines: list[str]) -> str:
    return "\n".join(lines) + "\n"


def main(folder: Path) -> None:
    made = pages()
    folder.mkdir(exist_ok=True)
    for path in folder.glob("*.1"):
        if path.name not in made:
            path.unlink()
    for name, text in made.items():
        (folder / name).write_text(text, encoding="utf-8")
    print(f"{len(made)} pages in {folder}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
