"""gpuprep trace: where did the time of a training step go?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpuprep import listening
from gpuprep.cli import options
from gpuprep.cli.console import page_width, steps
from gpuprep.cli.groups import Subcommands
from gpuprep.cli.output import Output, as_output
from gpuprep.trace.cli import arguments, folders
from gpuprep.trace.cli.check import check
from gpuprep.trace.cli.record import record

if TYPE_CHECKING:
    from gpuprep.trace.comparing import Comparison, JobComparison
    from gpuprep.trace.document import TraceDocument
    from gpuprep.trace.opening import Opened


PORT = 8766  # of serve
FORMATS = ("text", "html", "json", "csv", "xlsx", "junit", "markdown")


@click.group(cls=Subcommands, short_help="Read a profile of GPU work and show where the time went")
def trace() -> None:
    """Read a profile of GPU work and show where the time went, what did not use Tensor Cores, and what to change.

    It reads traces of PyTorch's profiler (.json, .json.gz, a folder with a file a rank) and exports of Nsight Systems
    (.sqlite; .nsys-rep where nsys is installed). docs/traces.md explains every figure.
    """


@trace.command(short_help="Show where the time of a profile went")
@arguments.path
@arguments.iterations
@arguments.record
@click.option("--profile-name", metavar="TEXT", default="", help="Name of the profile, in the head of every export.")
@arguments.keep_paths
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
    arguments.need_extra(*(("xlsxwriter",) if form == "xlsx" else ()))
    if form == "xlsx":
        arguments.check_bytes(output.file)
    from gpuprep.trace.opening import Wish, job, open_trace
    from gpuprep.trace.reading import look

    wish = Wish(start, stop, key_op, profile_name, keep_paths)
    record = arguments.recorded(run, store)
    files = look(path)
    if len(files.profiles) > 1:  # a file of each rank
        with steps(f"trace report {path.name}", quiet=output.quiet) as say:
            rendered = folders.rendered(
                path, files, wish, form, record, table=table or "ranks", full=full or output.verbose, say=say
            )
        output.deliver(rendered, f"trace-{path.resolve().name}")
        return
    (path,) = files.profiles
    table = table or "ops"
    if form == "csv":
        arguments.check_table(table)
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


@trace.command(short_help="Show what changed between two profiles")
@click.argument("before", metavar="PATH", type=click.Path(path_type=Path))
@click.argument("after", metavar="PATH", type=click.Path(path_type=Path))
@click.option("--key-op", metavar="NAME", default="", help="An iteration begins at each call of this op.")
@arguments.record
@as_output(options.results("text", "json", "markdown", description="see docs/traces.md"))
@options.store
def compare(before: Path, after: Path, key_op: str, run: str | None, output: Output, store: str | None) -> None:
    """Show what changed between two profiles: steps, ops, kernels, recommendations.

    The first PATH was recorded before a change, the second after it. Both are profiles, or folders with one file per
    rank: then each rank is compared with the rank of the same number. Times and calls are those of one step. The exit
    code is 0 whether they differ or not: `gpuprep trace check PATH --baseline FILE` is for CI.
    """
    arguments.need_extra()
    from gpuprep.trace import comparing, formats
    from gpuprep.trace.opening import Wish, open_trace
    from gpuprep.trace.reading import look

    record, wish = arguments.recorded(run, store), Wish(key_op=key_op)
    old, new = (before, look(before)), (after, look(after))
    comparison: Comparison | JobComparison
    with steps(f"trace compare {before.name} {after.name}", quiet=output.quiet) as say:
        if folders.both_folders(old, new):
            folders.no_record(record)
            comparison = folders.compared(old, new, wish, say=say)
        else:
            old_document, new_document = (
                open_trace(files.profiles[0], wish, record, say=say).document for _, files in (old, new)
            )
            comparison = comparing.compare(old_document, new_document)
    if output.form == "json":
        output.write(formats.compared(comparison))
    elif output.form == "markdown":
        output.write(formats.markdown_of_comparison(comparison))
    else:
        output.write(formats.text_of_comparison(comparison, full=output.verbose, width=page_width()))


@trace.command(short_help="Show profiles in a browser")
@arguments.path
@click.option(
    "--listen", metavar="ADDRESS:PORT", default=f"127.0.0.1:{PORT}", show_default=True, help="Where to listen."
)
@options.no_token
@options.server_names
@arguments.record
@arguments.keep_paths
@click.option("-q", "--quiet", is_flag=True, help="No progress on stderr.")
@options.store
def serve(
    path: Path,
    listen: str,
    no_token: bool,
    names: tuple[str, ...],
    run: str | None,
    keep_paths: bool,
    quiet: bool,
    store: str | None,
) -> None:
    """Show profiles in a browser: the page of `gpuprep trace report PATH --format html`, and Perfetto.

    PATH is a profile, or a folder of them. It prints the address, with a token that the browser must give once. A page
    takes start=N, stop=M and key_op=NAME in its address. Ctrl-C ends it.
    """
    arguments.need_extra()
    from gpuprep.errors import UsageError
    from gpuprep.trace import serve as server
    from gpuprep.trace.reading import find
    from gpuprep.trace.web import Asked, Library, application
    from gpuprep.untrusted.masking import keep_secret

    where = listening.parse(listen, PORT)
    if no_token and not where.is_loopback:
        raise UsageError(
            f"--no-token with --listen {listen}: everybody who reaches this address could read the pages",
            "leave --no-token out",
        )
    if not where.is_loopback:
        click.echo(
            f"Note: {where.host} is no loopback address, and there is no TLS: others on the network can read the pages",
            err=True,
        )
    token = "" if no_token else listening.new_token()
    keep_secret(token)
    record = arguments.recorded(run, store)
    library = Library(
        lambda: {str(each.relative_to(path)) if path.is_dir() else each.name: each for each in find(path)},
        [path] if path.is_dir() else [],
        whole=True,
        keep_paths=keep_paths,
        record=record,
    )
    runs = library.names()
    if len(runs) == 1:  # what is wrong with it is reported here, not in the browser
        with steps(f"trace serve {path.name}", quiet=quiet) as say:
            say(f"reading {path.name}")
            library.page(Asked(runs[0]))
    server.serve(application(library), where, token, names, say=lambda line: click.echo(line))


for command in (check, record):
    trace.add_command(command)
