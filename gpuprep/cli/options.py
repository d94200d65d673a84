"""Options that several commands share, with their help in one place."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])


def _note_json(ctx: click.Context, parameter: click.Parameter, value: Any) -> Any:
    """--json or --format json: errors are JSON, too (cli/run_command.py)."""
    session = ctx.find_root().obj
    asked = ctx.meta.setdefault("gpuprep.json", {})
    asked[parameter.name] = value is True or value == "json"
    if session is not None:
        session.json = any(asked.values())
    return value


def stack(*options: Callable[[F], F]) -> Callable[[F], F]:
    def decorate(function: F) -> F:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


class Number(click.FloatRange):
    """A finite number within a range. click's own range accepts NaN, which is neither below nor above any limit."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        import math

        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value} is not a finite number", param, ctx)
        return number


def names(_ctx: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...]:
    """Callback of an option that may be repeated or written as a,b. Raises UsageError for an empty value."""
    choices = tuple(name.strip() for value in values for name in value.split(",") if name.strip())
    if values and not choices:
        from gpuprep.errors import UsageError

        raise UsageError(f"{parameter.opts[-1]} is empty", "leave the option out to choose all")
    return choices


def named(
    _ctx: click.Context, parameter: click.Parameter, value: str | tuple[str, ...] | None
) -> str | tuple[str, ...] | None:
    """Callback of an argument with one or several names. Raises UsageError for "": often an unset shell variable."""
    if value == "" or (isinstance(value, tuple) and "" in value):
        from gpuprep.errors import UsageError

        raise UsageError(f"{parameter.human_readable_name} '' is empty", "`gpuprep status` lists the hosts")
    return value


_destination = stack(
    click.option(
        "--output",
        metavar="FILE",
        type=click.Path(dir_okay=False, path_type=Path),
        help="Write the result to FILE instead of stdout.",
    ),
    click.option("-v", "--verbose", count=True, help="Show more: all checks, and tasks that changed nothing."),
    click.option("-q", "--quiet", is_flag=True, help="No progress on stderr; errors are still shown."),
    click.option("--no-color", is_flag=True, help="No colour. The NO_COLOR variable does the same."),
)

output = stack(
    click.option(
        "--json", "as_json", is_flag=True, is_eager=True, callback=_note_json, help="Print one JSON document on stdout."
    ),
    _destination,
)


def results(*formats: str, description: str = "one document for all hosts (docs/reports.md)") -> Callable[[F], F]:
    """Options of a command that returns records: --format with these formats, its short form --json, --open, `output`.

    The command gets the parameters `style`, `as_json`, `open_page` (if html is a format) and those of `output`;
    `chosen` makes one format of the first three. `as_output` (cli/output.py) makes one argument of all.
    """
    page = click.option(
        "--open", "open_page", is_flag=True, help="With --format html: write the page to a file and open a browser."
    )
    return stack(
        click.option(
            "--format",
            "style",
            type=click.Choice(formats),
            default="text",
            show_default=True,
            is_eager=True,
            callback=_note_json,
            help=f"Output format, {description}."
            + (" On a terminal html goes to a file." if "html" in formats else ""),
        ),
        click.option(
            "--json", "as_json", is_flag=True, is_eager=True, callback=_note_json, help="The same as --format json."
        ),
        *([page] if "html" in formats else []),
        _destination,
    )


def chosen(style: str, as_json: bool, open_page: bool) -> str:
    """The format that --format, --json and --open mean together. Raises UsageError if they exclude each other."""
    from gpuprep.errors import UsageError

    wanted = [(as_json, "--json", "json"), (open_page, "--open", "html")]
    given = [(word, means) for is_given, word, means in wanted if is_given]
    for word, means in given:
        if style not in ("text", means):
            raise UsageError(f"{word} means --format {means}, and --format {style} is given", f"leave out {word}")
        style = means
    return style


store = click.option(
    "--store",
    metavar="URL",
    envvar="GPUPREP_STORE",
    show_envvar=True,
    help="Database of runs: sqlite:////FILE or postgresql://USER@HOST/NAME. Default: SQLite in the XDG state folder.",
)

no_token = click.option("--no-token", is_flag=True, help="Ask for no token. Only on a loopback address.")
server_names = click.option(
    "--name",
    "names",
    metavar="NAME",
    multiple=True,
    help="A host name that browsers use for this server, such as that of a proxy. Other names are refused. Repeatable.",
)

profile = click.option(
    "-p",
    "--profile",
    metavar="PROFILE",
    help="Wanted state: a profile name (`gpuprep profiles list`), or the path of a YAML file.",
)

busy = stack(
    click.option(
        "--when-busy",
        type=click.Choice(["refuse", "wait", "go"]),
        default="refuse",
        show_default=True,
        help="Before a restart or a change of GPUs that programs, Slurm's jobs or users who are logged in would feel:"
        " refuse the machine, wait until it is free, or go on.",
    ),
    click.option(
        "--wait-minutes",
        metavar="MINUTES",
        type=click.IntRange(min=1, max=10080),
        default=60,
        show_default=True,
        help="With --when-busy wait: the longest wait.",
    ),
)

hosts = stack(
    click.argument("hosts", metavar="HOST...", nargs=-1),
    click.option(
        "-i",
        "--inventory",
        metavar="PATH",
        help="Ansible inventory (file, folder or plugin). HOST is then a host or group pattern.",
    ),
    click.option("--limit", metavar="PATTERN", help="With -i: only those hosts that also match this pattern."),
    click.option(
        "--batch",
        metavar="BATCH",
        help="Only hosts of this earlier command: a batch id of `gpuprep history`, or `last`.",
    ),
    click.option("--failed", is_flag=True, help="With --batch: only those of them that did not pass there."),
    click.option(
        "--forks", type=click.IntRange(min=1), help="How many hosts to work on at the same time. Default: 5, drift 10."
    ),
    click.option("--ssh-key", metavar="FILE", type=click.Path(path_type=Path), help="Private SSH key for the login."),
    click.option(
        "--accept-new-host-key",
        is_flag=True,
        help="Trust a host on first connection and remember its key. A changed host key is still refused.",
    ),
    click.option(
        "-b",
        "--become",
        is_flag=True,
        help="Use sudo on the host. Not needed: gpuprep uses sudo whenever you do not log in as root.",
    ),
    click.option(
        "-K", "--ask-become-pass", is_flag=True, help="Ask for the sudo password; needed if sudo asks for one."
    ),
)
