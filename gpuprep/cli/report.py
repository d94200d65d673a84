"""gpuprep report."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from gpuprep.cli import options
from gpuprep.cli.console import page_width
from gpuprep.cli.output import Output, as_output, name_of, show_records
from gpuprep.reports import FORMATS, render

if TYPE_CHECKING:
    from gpuprep.records import RunRecord


@click.command()
@click.argument("run", required=False)
@click.option(
    "--batch",
    metavar="BATCH",
    help="All hosts of one command as one document, in place of RUN: a batch id of `gpuprep history`, or `last`.",
)
@as_output(options.results(*FORMATS))
@options.store
def report(run: str | None, batch: str | None, output: Output, store: str | None) -> None:
    """Show the report of a recorded run.

    RUN is a run id of `gpuprep history`, the beginning of a run id, or `last`. With --batch: all hosts of one command.
    The exit code is 0 whatever the results of the runs were.
    """
    records = _records(run, batch, output.form, store)
    if output.form != "text" and batch is None:
        output.deliver(render(records[0], output.form), name_of(records))
        return
    if output.form != "text":
        show_records(records, output.form, output.file, open_page=output.open_page, code=_worst)
        return
    from gpuprep.records import showable
    from gpuprep.reports import text, text_hosts

    def as_text(shown: Sequence[RunRecord]) -> str:
        if batch is not None:
            return text_hosts.fleet_page(shown, color=output.color, width=page_width())
        return text.render(shown[0], color=output.color, width=page_width())

    output.write(showable.document(as_text, records))


def _records(run: str | None, batch: str | None, form: str, store: str | None) -> list[RunRecord]:
    from gpuprep.errors import UsageError
    from gpuprep.workflows import storeofruns

    run = run or None
    if (run is None) == (batch is None):
        problem = "RUN and --batch exclude each other" if run else "`gpuprep report` needs a RUN, or --batch"
        raise UsageError(problem, "gpuprep report last, or gpuprep report --batch last")
    if batch is not None and form == "sbom":
        raise UsageError("--format sbom is for one host", "give a RUN; `gpuprep history --batch last` lists them")
    with storeofruns.existing(store) as opened:
        if batch is not None:
            return opened.batch(batch)
        assert run is not None
        return [opened.get(run)]


def _worst(records: Sequence[RunRecord]) -> int:
    from gpuprep.workflows import provision

    return provision.worst([record.exit_code for record in records])
