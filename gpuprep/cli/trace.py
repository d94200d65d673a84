"""gpuprep trace: where did the time of a training step go?"""

from __future__ import annotations

from pathlib import Path

import click

from gpuprep.cli import options, trace_options
from gpuprep.cli.console import check_output, emit
from gpuprep.cli.steps import steps

FORMATS = ("text", "json")


@click.group(short_help="Read a profile of GPU work and say where the time went")
def trace() -> None:
    """Read a profile of GPU work and say where the time went, what did not use Tensor Cores, and what to change.

    It reads traces of PyTorch's profiler (.json, .json.gz, a folder with a file a rank) and exports of Nsight Systems
    (.sqlite; .nsys-rep where nsys is installed). docs/traces.md explains every figure.
    """


@trace.command(short_help="Show where the time of a profile went")
@trace_options.file
@trace_options.iterations
@options.results(*FORMATS)
def report(
    path: Path,
    start: int | None,
    stop: int | None,
    key_op: str,
    profile_name: str,
    keep_paths: bool,
    style: str,
    as_json: bool,
    output: Path | None,
    verbose: int,
    quiet: bool,
    no_color: bool,  # noqa: ARG001
) -> None:
    """Show where the time of a profile went."""
    form = options.chosen(style, as_json, False)
    check_output(output)
    trace_options.need_extra()
    from gpuprep.trace.opening import open_trace

    with steps(f"trace report {path.name}", quiet=quiet) as say:
        opened = open_trace(
            path,
            start=start,
            stop=stop,
            key_op=key_op,
            profile_name=profile_name,
            keep_paths=keep_paths,
            say=say,
        )
    if form == "json":
        from gpuprep.trace.formats import json

        emit(json.render(opened.document), output)
    else:
        from gpuprep.trace.formats import text

        emit(text.render(opened.document, full=bool(verbose)), output)
