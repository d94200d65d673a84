"""gpuprep trace: where did the time of a training step go?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpuprep.cli import options, trace_check, trace_compare, trace_job, trace_options, trace_record, trace_serve
from gpuprep.cli.console import page_width, steps
from gpuprep.cli.groups import Subcommands
from gpuprep.cli.output import Output, as_output

if TYPE_CHECKING:
    from gpuprep.trace.document import TraceDocument
    from gpuprep.trace.opening import Opened

FORMATS = ("text", "html", "json", "csv", "xlsx", "junit", "markdown")


@click.group(cls=Subcommands, short_help="Read a profile of GPU work and show where the time went")
def trace() -> None:
    """Read a profile of GPU work and show where the time went, what did not use Tensor Cores, and what to change.

    It reads traces of PyTorch's profiler (.json, .json.gz, a folder with a file a rank) and exports of Nsight Systems
    (.sqlite; .nsys-rep where nsys is installed). docs/traces.md explains every figure.
    """


@trace.command(short_help="Show where the time of a profile went")
@trace_options.path
@trace_options.iterations
@trace_options.record
@click.option("--profile-name", metavar="TEXT", default="", help="Name of the profile, in the head of every export.")
@trace_options.keep_paths
@click.option("--full", is_flag=True, help="With --format text: all tables, not the first screen alone.")
@click.option(
    "--table",
    metavar="TABLE",
    help="With --format csv: which table. ops (the default), op-types, kernels, iterations, modules, gpus, roofs,"
    " advice, ...; of a folder: ranks (the default), collectives, steps, notes.",
)
@as_output(options.results(*FORMATS, description="see docs/traces.md"))
@options.store
def report(
    path: Path,
    start: int | None,
    stop: int | None,
    key_op: str,
    run: str | None,
    profile_name: str,
    keep_paths: bool,
    full: bool,
    table: str | None,
    output: Output,
    store: str | None,
) -> None:
    """Show where the time of a profile went.

    PATH is a trace of PyTorch's profiler, an export of Nsight Systems, or a folder with a file of each rank. All
    figures are of the chosen iterations, counted from 0 in the file; totals of the whole file are in `file` of the
    JSON. The exit code is 0, whatever was found: `gpuprep trace check` is for CI.
    """
    from gpuprep.errors import UsageError

    form = output.form
    if table is not None and form != "csv":
        raise UsageError("--table goes with --format csv", "add --format csv, or drop --table")
    trace_options.need_extra(*(("xlsxwriter",) if form == "xlsx" else ()))
    if form == "xlsx":
        trace_options.check_bytes(output.file)
    from gpuprep.trace.opening import Wish, job, open_trace
    from gpuprep.trace.reading import look

    wish = Wish(start, stop, key_op, profile_name, keep_paths)
    record = trace_options.recorded(run, store)
    files = look(path)
    if len(files.profiles) > 1:  # a file of each rank
        with steps(f"trace report {path.name}", quiet=output.quiet) as say:
            rendered = trace_job.rendered(
                path, files, wish, form, record, table=table or "ranks", full=full or output.verbose, say=say
            )
        output.deliver(rendered, f"trace-{path.resolve().name}")
        return
    (path,) = files.profiles
    table = table or "ops"
    if form == "csv":
        trace_options.check_table(table)
    with steps(f"trace report {path.name}", quiet=output.quiet) as say:
        opened = open_trace(path, wish, record, say=say).with_notes(job.others(files))
        say("writing")
        made = _rendered(opened, form, full=full or output.verbose, table=table)
    output.deliver(made, f"trace-{_name(opened.document)}")


def _rendered(opened: Opened, form: str, *, full: bool, table: str) -> str | bytes:
    from gpuprep.trace import formats

    if form == "html":
        from gpuprep.trace.page import html

        return html(opened.profile, opened.document)
    if form == "text":
        return formats.text(opened.document, full=full, width=page_width())
    if form == "csv":
        return formats.csv(opened.document, table)
    return formats.FORMATS[form](opened.document)


def _name(document: TraceDocument) -> str:
    return document.file.profile_name or document.file.name


for command in (trace_check.check, trace_compare.compare, trace_serve.serve, trace_record.record):
    trace.add_command(command)
