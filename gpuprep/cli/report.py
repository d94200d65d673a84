"""gpuprep report."""

from __future__ import annotations

from pathlib import Path

import click

from gpuprep.cli import options
from gpuprep.cli.console import check_output, emit, page_width, want_color
from gpuprep.reports import FORMATS, render


@click.command()
@click.argument("run")
@click.option(
    "--format",
    "style",
    type=click.Choice(FORMATS),
    default="text",
    show_default=True,
    help="Output format (docs/reports.md). json is the whole record, html a page to look at.",
)
@options.output
@options.store
def report(
    run: str,
    style: str,
    as_json: bool,
    output: Path | None,
    verbose: int,  # noqa: ARG001  taken for the sake of one set of flags; there is nothing more to say
    quiet: bool,  # noqa: ARG001
    no_color: bool,
    store: str | None,
) -> None:
    """Show the report of a recorded run.

    RUN is a run id of `gpuprep history`, the beginning of a run id, or `last`. The exit code is 0 whatever the result
    of the run was.
    """
    import sys

    from gpuprep import settings
    from gpuprep.store import Store

    check_output(output)
    opened = Store.open(store or settings.load().store)
    try:
        record = opened.get(run)
    finally:
        opened.close()
    style = "json" if as_json else style
    if style != "text":
        emit(render(record, style), output, markup=style == "html")
        return
    from gpuprep.records import showable
    from gpuprep.reports import text

    color = output is None and want_color(sys.stdout, no_color)
    emit(showable.document(lambda shown: text.render(shown[0], color=color, width=page_width()), [record]), output)
