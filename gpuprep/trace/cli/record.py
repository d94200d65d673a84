"""gpuprep trace record."""

from __future__ import annotations

from pathlib import Path

import click

from gpuprep.cli import options
from gpuprep.cli.console import refuse_link
from gpuprep.trace.cli import arguments

STEPS_FROM = ("optimizer", "forward", "none")
NOTHING_RECORDED = 3


@click.command(short_help="Record a profile of a program", context_settings={"ignore_unknown_options": True})
@click.option(
    "-o",
    "--output",
    metavar="FOLDER",
    type=click.Path(file_okay=False, path_type=Path),
    help="Where the traces go. Default: gpuprep-trace-DATE-TIME in the current folder.",
)
@click.option(
    "--with",
    "tool",
    type=click.Choice(["torch", "nsys"]),
    default="torch",
    show_default=True,
    help="PyTorch's own profiler, or Nsight Systems where it is installed.",
)
@click.option(
    "--steps-from",
    metavar="NAME",
    default="optimizer",
    show_default=True,
    help="What ends a step: optimizer, forward (of the first module), MODULE:FUNCTION; none records the whole program.",
)
@click.option(
    "--wait",
    metavar="STEPS",
    type=click.IntRange(0, 10**6),
    default=3,
    show_default=True,
    help="Steps before the profiler starts. They are timed, to find out how much the profiler slows a step down.",
)
@click.option(
    "--warmup",
    metavar="STEPS",
    type=click.IntRange(0, 10**6),
    default=2,
    show_default=True,
    help="Steps after the profiler has started whose events are not kept.",
)
@click.option(
    "--active", metavar="STEPS", type=click.IntRange(1, 10**4), default=5, show_default=True, help="Steps to record."
)
@click.option("--shapes/--no-shapes", default=True, show_default=True, help="Record the shapes of inputs.")
@click.option("--stacks/--no-stacks", default=False, show_default=True, help="Record Python's stacks, for modules.")
@click.option("--memory/--no-memory", default=False, show_default=True, help="Record what the allocator does.")
@arguments.record
@click.option("-q", "--quiet", is_flag=True, help="Print errors only.")
@options.store
@click.argument("words", nargs=-1, type=click.UNPROCESSED, required=True, metavar="-- PROGRAM [ARGUMENT]...")
def record(
    output: Path | None,
    tool: str,
    steps_from: str,
    wait: int,
    warmup: int,
    active: int,
    shapes: bool,
    stacks: bool,
    memory: bool,
    run: str | None,
    quiet: bool,
    store: str | None,
    words: tuple[str, ...],
) -> int:
    """Record a profile of a program, unchanged: `gpuprep trace record -- python train.py`.

    A PyTorch program runs under PyTorch's profiler for some of its steps; torchrun and other launchers work, and each
    rank writes its own trace. A file beside the trace has the CPU, the driver and the versions, and with --record the
    record of the machine. The environment of the program is never stored. The exit code is the program's; 3 if the
    program ended with 0 and nothing was recorded.
    """
    import time

    from gpuprep.errors import GpuprepError, UsageError
    from gpuprep.trace import recording
    from gpuprep.untrusted.plaintext import command

    module, colon, function = steps_from.partition(":")
    if steps_from not in STEPS_FROM and not (module and colon and function):
        raise UsageError(f"--steps-from {steps_from}: not known", "optimizer, forward, none, or MODULE:FUNCTION")
    if module == "__main__":
        raise UsageError(
            "--steps-from: a function of the program's own file cannot be watched", "name a function of a module"
        )
    host = arguments.recorded(run, store)
    folder = output or Path(time.strftime("gpuprep-trace-%Y%m%d-%H%M%S"))
    refuse_link(folder)
    new = not folder.exists()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"--output {folder}: cannot be made: {error.strerror}", "name another folder") from error
    wish = recording.Wish(folder, wait, warmup, active, steps_from, shapes, stacks, memory)
    try:
        recorded = recording.record(words, wish) if tool == "torch" else recording.record_with_nsys(words, wish)
    except GpuprepError:
        if new and not any(folder.iterdir()):
            folder.rmdir()
        raise
    for trace in recorded.traces:
        if host is not None:
            recording.put_record(trace, host)
        if not quiet:
            click.echo(f"recorded {trace}: {command('gpuprep', 'trace', 'report', about=str(trace))}", err=True)
    if not recorded.traces:
        if output is None and not any(folder.iterdir()):
            folder.rmdir()
        click.echo(f"Nothing was recorded: {recorded.why_none}", err=True)
    return recorded.exit_code or (0 if recorded.traces else NOTHING_RECORDED)
