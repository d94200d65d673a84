"""gpuprep trace compare."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpuprep.cli import options, trace_job, trace_options
from gpuprep.cli.console import page_width, steps
from gpuprep.cli.output import Output, as_output

if TYPE_CHECKING:
    from gpuprep.trace.comparing import Comparison, JobComparison


@click.command(short_help="Show what changed between two profiles")
@click.argument("before", metavar="PATH", type=click.Path(path_type=Path))
@click.argument("after", metavar="PATH", type=click.Path(path_type=Path))
@click.option("--key-op", metavar="NAME", default="", help="An iteration begins at each call of this op.")
@trace_options.record
@as_output(options.results("text", "json", "markdown", description="see docs/traces.md"))
@options.store
def compare(before: Path, after: Path, key_op: str, run: str | None, output: Output, store: str | None) -> None:
    """Show what changed between two profiles: steps, ops, kernels, recommendations.

    The first PATH was recorded before a change, the second after it. Both are profiles, or folders with one file per
    rank: then each rank is compared with the rank of the same number. Times and calls are those of one step. The exit
    code is 0 whether they differ or not: `gpuprep trace check PATH --baseline FILE` is for CI.
    """
    trace_options.need_extra()
    from gpuprep.trace import comparing, formats
    from gpuprep.trace.opening import Wish, open_trace
    from gpuprep.trace.reading import look

    record, wish = trace_options.recorded(run, store), Wish(key_op=key_op)
    old, new = (before, look(before)), (after, look(after))
    comparison: Comparison | JobComparison
    with steps(f"trace compare {before.name} {after.name}", quiet=output.quiet) as say:
        if trace_job.both_folders(old, new):
            trace_job.no_record(record)
            comparison = trace_job.compared(old, new, wish, say=say)
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
