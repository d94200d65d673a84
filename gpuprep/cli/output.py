"""Where the result of a command goes, in which format, and how much of it is shown: one argument for all commands."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpuprep.cli import options, page
from gpuprep.cli.console import check_output, emit, emit_as_it_is, table_columns, want_color

Command = Callable[..., Any]


@dataclass(frozen=True)
class Output:
    """What --format, --json, --open, --output, -v, -q and --no-color ask for."""

    form: str  # "text", "json" or another format of the command
    file: Path | None  # None: stdout
    verbose: bool
    quiet: bool
    no_color: bool
    open_page: bool

    @property
    def as_json(self) -> bool:
        return self.form == "json"

    @property
    def color(self) -> bool:
        return self.file is None and want_color(sys.stdout, self.no_color)

    @property
    def columns(self) -> int | None:
        """Columns of the terminal for a list; None if the list does not go to a terminal."""
        return table_columns(self.file)

    def write(self, text: str) -> None:
        """Write the result. Raises UsageError if the file cannot be written."""
        emit(text, self.file)

    def deliver(self, made: str | bytes, name: str) -> None:
        """Write a result in `form`; `name` is that of a page of HTML that goes to a file of its own (page.py)."""
        if isinstance(made, bytes):
            emit_as_it_is(made, self.file)
        else:
            page.deliver(made, self.form, self.file, open_page=self.open_page, name=name)

    def confirm(self, text: str) -> None:
        """Write what was done. With --quiet only to a file."""
        if not self.quiet or self.file is not None:
            emit(text, self.file)


def as_output(stack: Callable[[Command], Command]) -> Callable[[Command], Command]:
    """The options of `options.output` or `options.results`, handed to the command as one argument `output`.

    Before the command begins it is checked that the file can be written.
    """

    def decorate(function: Command) -> Command:
        @functools.wraps(function)
        def command(
            *,
            as_json: bool,
            output: Path | None,
            verbose: int,
            quiet: bool,
            no_color: bool,
            style: str = "text",
            open_page: bool = False,
            **others: Any,
        ) -> Any:
            form = options.chosen(style, as_json, open_page)
            check_output(output)
            return function(output=Output(form, output, verbose > 0, quiet, no_color, open_page), **others)

        return stack(command)

    return decorate
