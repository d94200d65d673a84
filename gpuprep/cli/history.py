"""gpuprep history: the list of runs, and its subcommands."""

from __future__ import annotations

import click

from gpuprep.cli import history_list, history_names, history_upkeep, options, tables
from gpuprep.cli.defaultgroup import DefaultGroup
from gpuprep.cli.output import Output, as_output

STATUSES = {"DOWN": "FAIL", "STEADY": "PASS", "UNKNOWN": "UNKNOWN"}


@click.group(cls=DefaultGroup, default="list")
def history() -> None:
    """List recorded runs, newest first.

    `gpuprep history [HOST]` means `gpuprep history list [HOST]`.
    """


for command in (
    history_list.list_runs,
    history_upkeep.prune,
    history_upkeep.forget,
    history_upkeep.export,
    history_names.names,
    history_names.join,
    history_names.part,
):
    history.add_command(command)


@history.command("trend", short_help="Find figures of a host that get worse from night to night")
@click.argument("host", callback=options.named)
@click.option(
    "--nights", type=click.IntRange(min=8), default=30, show_default=True, help="Number of nights to look back."
)
@click.option(
    "--percent",
    type=options.Number(min=0, min_open=True),
    default=5.0,
    show_default=True,
    help="Smallest loss over these nights that counts as DOWN, as history_warn_percent of profiles.",
)
@as_output(options.output)
@options.store
def trend(host: str, nights: int, percent: float, output: Output, store: str | None) -> int:
    """Find figures of a host that get worse from night to night.

    A figure is DOWN if it falls significantly (Mann-Kendall test, p below 0.01) and by more than --percent (Theil-Sen
    line). One bad night is not enough. The exit code is 1 if a figure is DOWN, 3 if there are too few nights.
    """
    from gpuprep.performance import trend as trends
    from gpuprep.records import Status
    from gpuprep.records.ended import EXIT_CODES
    from gpuprep.workflows import storeofruns

    with storeofruns.existing(store) as opened:
        newest = opened.newest_figure(host)
        measured = opened.figures(host, trends.begin(newest, nights)) if newest else []
    figure_trends = trends.trends(measured, nights=nights, percent=percent)
    result = trends.verdict(figure_trends)
    status = Status(STATUSES[result.value])
    code = EXIT_CODES[status]
    if output.as_json:
        from gpuprep.reports import documents
        from gpuprep.reports import history as pages

        judged = documents.VerdictLine(status, pages.trend_summary(figure_trends))
        needed = trends.FEWEST_NIGHTS
        document = documents.Trends(host, nights, needed, percent, result, judged, tuple(figure_trends), code)
        output.write(documents.document(document))
        return code
    if figure_trends:
        from gpuprep.reports import history as pages

        head, rows, notes = pages.trend_table(host, figure_trends, nights, percent, whole=output.verbose)
        output.write("\n".join([head, *tables.lines(rows, color=output.color, columns=output.columns), *notes]))
    elif not output.quiet:
        click.echo(f"no figures of {host} are recorded: drift with --probe quick and validate measure some", err=True)
    return code
