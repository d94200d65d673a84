"""gpuprep history: the list of runs, and its subcommands."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpuprep.cli import history_names, history_upkeep, options, tables
from gpuprep.cli.console import check_output, emit, table_columns, want_color
from gpuprep.cli.defaultgroup import DefaultGroup
from gpuprep.untrusted.plaintext import one_line

if TYPE_CHECKING:
    from gpuprep.store import RunSummary

# By exit code, the same words as in reports.
WITHOUT_VERDICT = {0: "DONE", 2: "REFUSED", 4: "FAILED", 130: "STOPPED"}
EXIT_CODES = {"DOWN": 1, "STEADY": 0, "UNKNOWN": 3}


@click.group(cls=DefaultGroup, default="list")
def history() -> None:
    """List recorded runs, newest first.

    `gpuprep history [HOST]` means `gpuprep history list [HOST]`.
    """


for command in (
    history_upkeep.prune,
    history_upkeep.export,
    history_names.names,
    history_names.join,
    history_names.part,
):
    history.add_command(command)


@history.command("list", short_help="List recorded runs, newest first")
@click.argument("host", required=False)
@click.option("--limit", type=click.IntRange(min=1), default=20, show_default=True, help="How many runs to list.")
@options.output
@options.store
def list_runs(
    host: str | None,
    limit: int,
    as_json: bool,
    output: Path | None,
    verbose: int,
    quiet: bool,
    no_color: bool,
    store: str | None,
) -> None:
    """List recorded runs, newest first.

    HOST is a name that you gave to the command of a run; the runs of all names of that host are listed.
    """
    import sys

    from gpuprep import settings
    from gpuprep.store import Store

    check_output(output)
    opened = Store.open(store or settings.load().store)
    try:
        found = opened.runs(host, limit)
    finally:
        opened.close()
    if as_json:
        emit(tables.document(runs=found), output)
        return
    if not found and not quiet:
        click.echo(f"no runs of {host} are recorded" if host else "no runs are recorded yet", err=True)
    if found:
        color = output is None and want_color(sys.stdout, no_color)
        emit(_table(found, color, verbose, table_columns(output)), output)


@history.command("trend", short_help="Find figures of a host that get worse from night to night")
@click.argument("host")
@click.option(
    "--nights", type=click.IntRange(min=8), default=30, show_default=True, help="Number of nights to look back."
)
@click.option(
    "--percent",
    type=click.FloatRange(min=0, min_open=True),
    default=5.0,
    show_default=True,
    help="Smallest loss over these nights that counts as DOWN, as history_warn_percent of profiles.",
)
@options.output
@options.store
def trend(
    host: str,
    nights: int,
    percent: float,
    as_json: bool,
    output: Path | None,
    verbose: int,
    quiet: bool,
    no_color: bool,
    store: str | None,
) -> int:
    """Find figures of a host that get worse from night to night.

    A figure is DOWN if it falls significantly (Mann-Kendall test, p below 0.01) and by more than --percent (Theil-Sen
    line). One bad night is not enough. The exit code is 1 if a figure is DOWN, 3 if there are too few nights.
    """
    import sys

    from gpuprep import settings
    from gpuprep.performance import trend as trends
    from gpuprep.store import Store

    check_output(output)
    opened = Store.open(store or settings.load().store)
    try:
        newest = opened.newest_figure(host)
        measured = opened.figures(host, trends.begin(newest, nights)) if newest else []
    finally:
        opened.close()
    found = trends.trends(measured, nights=nights, percent=percent)
    result = trends.verdict(found)
    code = EXIT_CODES[result.value]
    if as_json:
        emit(
            tables.document(host=host, nights=nights, percent=percent, verdict=result, trends=found, exit_code=code),
            output,
        )
        return code
    if found:
        from gpuprep.reports import history as pages

        color = output is None and want_color(sys.stdout, no_color)
        head, rows, notes = pages.trend_table(host, found, nights, percent, whole=bool(verbose))
        emit("\n".join([head, *tables.lines(rows, color=color, columns=table_columns(output)), *notes]), output)
    elif not quiet:
        click.echo(f"no figures of {host} are recorded: drift with --probe quick and validate measure some", err=True)
    return code


def _table(found: list[RunSummary], color: bool, verbose: int, columns: int | None = None) -> str:
    rows = [("RUN", "HOST", "COMMAND", "PROFILE", "RESULT", "")]
    for run in found:
        result = run.verdict.value if run.verdict else WITHOUT_VERDICT.get(run.exit_code, "UNKNOWN")
        simulated = "simulated" if run.source.value == "simulated" else ""
        rows.append((run.run_id, run.host, run.command, run.profile, result, simulated))
    if not verbose:
        return "\n".join(tables.lines(rows, color=color, columns=columns))
    head, *lines = tables.lines(rows, color=color)
    told = [head]
    for run, line in zip(found, lines, strict=True):
        told += [line, f"    {one_line(run.summary)}"] if run.summary else [line]
    return "\n".join(told)
