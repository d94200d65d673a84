"""gpuprep trace report of a folder with several profiles."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import click

from gpuprep.cli import page, trace_options
from gpuprep.cli.console import emit, page_width
from gpuprep.cli.steps import steps
from gpuprep.errors import UsageError
from gpuprep.untrusted.plaintext import visible

if TYPE_CHECKING:
    from gpuprep.records import RunRecord
    from gpuprep.trace.opening import Opened, OpenedFolder, Wish


def report(
    folder: Path,
    files: Sequence[Path],
    wish: Wish,
    record: RunRecord | None,
    form: str,
    full: bool,
    table: str,
    output: Path | None,
    *,
    open_page: bool,
    quiet: bool,
) -> None:
    """One document of all profiles; of HTML a page each, and one that leads to them."""
    from gpuprep.trace.formats import folder as formats
    from gpuprep.trace.opening import open_folder

    pages: list[tuple[str, str]] = []
    if form == "html" and output is None:
        raise UsageError(f"{folder.name}: {len(files)} profiles make several pages", "name a file: --output job.html")

    def keep(opened: Opened) -> None:
        if form == "html" and output is not None:
            pages.append(_page(opened, output, len(pages)))

    name = folder.resolve().name
    with steps(f"trace report {folder.name}", quiet=quiet) as say:
        found = open_folder(files, name, wish, record, say=say, each=keep)
    for one in found.left_out:
        click.echo(f"Note: {visible(one.file)} is left out: {one.why}", err=True)
    if form == "html":
        emit(formats.index(found, [(shown, quote(file)) for shown, file in pages]), output, markup=True)
        if open_page and output is not None:
            page.browse(output)
        return
    made = _rendered(found, form, full, table)
    if isinstance(made, bytes):
        trace_options.emit_bytes(made, output)
    else:
        emit(made, output)


def _rendered(found: OpenedFolder, form: str, full: bool, table: str) -> str | bytes:
    from gpuprep.trace.formats import folder as formats

    if form == "text":
        return formats.as_text(found, full=full, width=page_width())
    if form == "csv":
        return formats.as_csv(found, table)
    return formats.FORMATS[form](found)


def _page(opened: Opened, output: Path, number: int) -> tuple[str, str]:
    """(name, file beside `output`) of one profile. Its name comes from nobody else: files are numbered."""
    from gpuprep.trace.page import html

    path = output.with_name(f"{output.stem}-{number}{output.suffix or '.html'}")
    emit(html(opened.profile, opened.document), path, markup=True)
    return opened.document.file.profile_name or opened.document.file.name, path.name
