"""gpuprep status."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from gpuprep.cli import options
from gpuprep.cli.output import Output, as_output, fitting_columns, table_lines
from gpuprep.untrusted.plaintext import command as shell_command
from gpuprep.untrusted.plaintext import one_line

if TYPE_CHECKING:
    from datetime import datetime

    from gpuprep.store import RunSummary

OPTIONAL = ("WHEN", "COMMAND", "PROFILE")  # columns that a narrow terminal may not show, the most important first
SUMMARY = 28  # columns of a summary, before others are shown beside it
UNITS = ((86400, "d"), (3600, "h"), (60, "min"))
OLD_DAYS = 2.0  # two nights: what is older may have changed since


@click.command()
@click.argument("hosts", metavar="[HOST]...", nargs=-1, callback=options.named)
@as_output(options.output)
@options.store
def status(hosts: tuple[str, ...], output: Output, store: str | None) -> None:
    """Show how each host was when it was last checked, the worst first.

    One row per host: its newest provision, validate or drift in the store, and how long ago that was. With HOST: only
    these, with the command that shows the report. Contacts no host: `gpuprep drift HOST` checks a host now, `gpuprep
    drift last HOST` reads its last night check, `gpuprep history` lists all runs. The exit code is 0, whatever the
    results are.
    """
    from datetime import datetime, timezone

    from gpuprep.records import ended
    from gpuprep.workflows import storeofruns

    with storeofruns.existing(store) as opened:
        runs = opened.newest_of_each()
        if hosts:
            wanted = {name for host in hosts for name in opened.names_of(host)}
            storeofruns.check_known(opened, *hosts)
            runs = [run for run in runs if run.host in wanted]
    runs.sort(key=lambda run: (ended.place(_result(run)), run.host))
    now = datetime.now(timezone.utc)
    if output.as_json:
        listed = [{"host": run.host, "result": _result(run), "age_seconds": _age(run, now), "run": run} for run in runs]
        from gpuprep.reports import documents

        output.write(documents.document({"hosts": listed}))
        return
    if not runs:
        if not output.quiet:
            who = "no host" if not hosts else f"no machine called {', '.join(map(one_line, hosts))}"
            does = shell_command("gpuprep", "validate", "--profile", "PROFILE", about=tuple(hosts) or ("HOST",))
            click.echo(f"{who} was checked yet: {does} does it", err=True)
        return
    output.write(_page(runs, now, output, whole=bool(hosts) or output.verbose))


def _result(run: RunSummary) -> str:
    from gpuprep.records import ended

    return ended.word(run.verdict, run.exit_code)


def _age(run: RunSummary, now: datetime) -> float | None:
    """Seconds since the run ended; None if that time is invalid or in the future."""
    from gpuprep.records.moments import moment

    ended = moment(run.ended_at)
    seconds = None if ended is None else (now - ended).total_seconds()
    return None if seconds is None or seconds < -60 else max(0.0, seconds)


def _age_text(seconds: float | None) -> str:
    if seconds is None:
        return "?"
    for size, unit in UNITS:
        if seconds >= size:
            return f"{seconds // size:.0f} {unit} ago"
    return "now"


def _page(summaries: list[RunSummary], now: datetime, output: Output, *, whole: bool) -> str:
    from gpuprep.records import ended

    rows: list[tuple[str, ...]] = [("HOST", "RESULT", "COMMAND", "WHEN", "PROFILE", "SUMMARY")]
    for run in summaries:
        simulated = "simulated: " if run.source.value == "simulated" else ""
        rows.append(
            (run.host, _result(run), run.command, _age_text(_age(run, now)), run.profile, simulated + run.summary)
        )
    rows = fitting_columns(rows, output.columns, OPTIONAL, "SUMMARY", SUMMARY)
    lines = table_lines(rows, color=output.color, columns=output.columns)
    counts = [f"{sum(_result(run) == word for run in summaries)} {word}" for word in ended.WORST_FIRST]
    shown = ", ".join(count for count in counts if count[:2] != "0 ")
    total = f"{len(summaries)} host{'s' * (len(summaries) != 1)}: {shown}"
    old = sum((_age(run, now) or 0.0) > OLD_DAYS * 86400 for run in summaries)
    if old:
        total += f"; {old} not checked for more than two days"
    lines.append(total)
    if whole:
        lines += [f"Report: {shell_command('gpuprep', 'report', about=run.run_id)}" for run in summaries]
    return "\n".join(lines)
