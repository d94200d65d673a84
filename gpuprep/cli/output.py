"""Where the result of a command goes, in which format, and how much of it is shown: one argument for all commands.

A page of HTML goes to --output, to a file where stdout is a terminal, else to stdout; and to the browser.
"""

from __future__ import annotations

import functools
import os
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpuprep.cli import options
from gpuprep.cli.console import check_output, emit, emit_as_it_is, table_columns, want_color
from gpuprep.errors import UsageError
from gpuprep.reports.terminal import COLORS, aligned, painted
from gpuprep.untrusted.plaintext import one_line

if TYPE_CHECKING:
    from gpuprep.records import RunRecord

    Records = Sequence[RunRecord]

MOST_OF_CELL = 255  # of a cell


def table_lines(
    rows: Sequence[Sequence[str]], *, color: bool = False, indent: str = "", columns: int | None = None
) -> list[str]:
    """One line per row, each column as wide as its widest cell; words of COLORS get their colour.

    `columns` of a terminal: cells are made to fit, a row may take several lines.
    """
    # Names of hosts, facts and ids of runs come from other machines: a cell is one line, whatever they hold.
    rows = [[one_line(cell, MOST_OF_CELL) for cell in row] for row in rows]
    if columns is not None:
        from gpuprep.cli import drawing

        drawn = drawing.table(rows, columns=columns - len(indent), color=color, colors=COLORS)
        return [indent + line for line in drawn]
    painted_rows = [[painted(cell, COLORS.get(cell, "")) for cell in row] for row in rows] if color else rows
    return [(indent + "  ".join(cells)).rstrip() for cells in aligned(painted_rows)]


def fitting_columns(
    rows: Sequence[tuple[str, ...]], columns: int | None, optional: Sequence[str], folded: str, least: int = 0
) -> list[tuple[str, ...]]:
    """`rows` without empty columns and without those `optional` columns that do not fit; the first are kept first.

    Cells of the column `folded` are wrapped (cli/drawing.py), so a long cell does not push other columns out. It gets
    `least` characters of width before optional columns are shown.
    """
    heads = rows[0]
    filled = [place for place, _ in enumerate(heads) if any(row[place] for row in rows[1:])]
    widths = [max(len(row[place]) for row in rows) + 2 for place, _ in enumerate(heads)]
    wide = heads.index(folded)
    widest = max(width for place, width in enumerate(widths) if place != wide)
    widths[wide] = min(widths[wide], max(widest + 1, least))
    keep = {place for place in filled if heads[place] not in optional}
    for place in sorted(set(filled) - keep, key=lambda place: optional.index(heads[place])):
        if columns is None or sum(widths[column] for column in (*keep, place)) <= columns:
            keep.add(place)
    return [tuple(row[place] for place in sorted(keep)) for row in rows]


Command = Callable[..., Any]


@dataclass(frozen=True)
class Output:
    """What --format, --json, --open, --output, -v, -q and --no-color ask for."""

    form: str  # "text", "json" or another format of the command
    file: Path | None  # None: stdout
    verbosity: int  # how often -v was given
    quiet: bool
    no_color: bool
    open_page: bool

    @property
    def as_json(self) -> bool:
        return self.form == "json"

    @property
    def verbose(self) -> bool:
        return self.verbosity > 0

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
        """Write a result in `form`; `name` is that of a page of HTML that goes to a file of its own."""
        if isinstance(made, bytes):
            emit_as_it_is(made, self.file)
        else:
            deliver(made, self.form, self.file, open_page=self.open_page, name=name)

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
            return function(output=Output(form, output, verbose, quiet, no_color, open_page), **others)

        return stack(command)

    return decorate


MOST_PAGES = 50  # that are kept; each can be made again from its record
NOT_PLAIN = re.compile("[^0-9A-Za-z._-]+")  # ids and commands may come from another machine
MOST_LETTERS = 80


def show_records(
    records: Sequence[RunRecord], style: str, output: Path | None, *, open_page: bool, code: Callable[[Records], int]
) -> list[RunRecord]:
    """Records as one document in a format that is not text; returns them as shown. `code` gives the exit code."""
    from gpuprep.records import showable
    from gpuprep.reports import PROGRAMS, several

    whole, shown = showable.each(lambda those: several(those, style, code(those)), records, whole=style in PROGRAMS)
    deliver(whole, style, output, open_page=open_page, name=name_of(shown))
    return shown


def deliver(text: str, style: str, output: Path | None, *, open_page: bool, name: str) -> None:
    """Write the document of a command to `output` or stdout.

    An HTML page that would go to a terminal, or that is to be opened, goes to a new file; prints the file's path.
    """
    if style != "html":
        emit(text, output)
        return
    to_file = output is None and (open_page or sys.stdout.isatty())
    if not to_file:
        emit(text, output, markup=True)
    path = _write(text, name) if to_file else output
    if to_file:
        emit(str(path), None)
    if open_page and path is not None:
        browse(path)


def name_of(records: Sequence[RunRecord]) -> str:
    """A name for the page of these records: "validate-20261120-100000-abc123"; of several, with their batch."""
    first = records[0]
    run_or_batch = (first.batch_id if len(records) > 1 else "") or first.run_id
    return f"{first.command}-{run_or_batch}"


def browse(path: Path) -> None:
    """Open a page in the user's browser; if that is not possible, print the path of the page on stderr."""
    import webbrowser

    # Without a display webbrowser would start a browser inside the terminal, or wait for one.
    seen = sys.platform == "darwin" or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    if not seen:
        click.echo(f"There is no display here, so no browser was opened. The page is {path}", err=True)
    elif not webbrowser.open(path.absolute().as_uri()):
        click.echo(f"No browser could be opened. The page is {path}", err=True)


def _write(text: str, name: str) -> Path:
    from gpuprep.paths import private_folder, private_text, state_dir

    path = state_dir() / "pages" / f"{NOT_PLAIN.sub('_', name)[:MOST_LETTERS]}.html"
    try:
        private_folder(path.parent)
        private_text(path, text)
        _tidy(path.parent)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}", "give a file with --output") from error
    return path


def _tidy(folder: Path) -> None:
    """Keep the newest pages."""
    pages = sorted(folder.glob("*.html"), key=lambda page: page.stat().st_mtime, reverse=True)
    for page in pages[MOST_PAGES:]:
        page.unlink(missing_ok=True)
