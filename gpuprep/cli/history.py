"""gpuprep history: the list of runs, and its subcommands."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpuprep.cli import options
from gpuprep.cli.console import check_output, open_output, unwritable
from gpuprep.cli.groups import DefaultGroup
from gpuprep.cli.output import Output, as_output, fitting_columns, table_lines
from gpuprep.cli.run_command import drop_stdout
from gpuprep.cli.run_hosts import KEEP_LAST
from gpuprep.untrusted.plaintext import one_line

if TYPE_CHECKING:
    from gpuprep.reports import documents
    from gpuprep.store import RunSummary, Store
    from gpuprep.store.measurements import Headline, Series

    Points = Sequence[tuple[str, float]]

DAYS = click.IntRange(1, 36_500)  # as keep_days of settings.py, which --help need not import
YEAR = 365  # days that are shown while no other number is set
AGO = re.compile(r"([1-9][0-9]{0,4})([hdw])")
UNITS = {"h": timedelta(hours=1), "d": timedelta(days=1), "w": timedelta(weeks=1)}
MOMENT = re.compile(r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d)?([+-]\d\d:\d\d|Z)?)?", re.ASCII)
# Columns that a narrow terminal may not show, the most important first. The moment is in the id of a run, too.
OPTIONAL = ("FP16", "TOOK", "TREND", "TIME (UTC)", "STREAMS", "GB/s", "BF16")


def since(_ctx: click.Context, _parameter: click.Parameter, value: str | None) -> str | None:
    """7d, 12h, 2w, 2026-11-01 or 2026-11-01T12:00 as a moment in UTC, ISO 8601."""
    if value is None:
        return None
    if ago := AGO.fullmatch(value):
        began = datetime.now(timezone.utc) - int(ago[1]) * UNITS[ago[2]]
        return began.isoformat(timespec="seconds")
    try:
        if not MOMENT.fullmatch(value):
            raise ValueError
        written = datetime.fromisoformat(value.replace("Z", "+00:00"))
    except ValueError:
        raise click.BadParameter(
            f"{value!r} is no moment; allowed: 12h, 7d, 2w (so long ago), 2026-11-01 or 2026-11-01T12:00 (UTC)"
        ) from None
    written = written if written.tzinfo else written.replace(tzinfo=timezone.utc)
    return written.astimezone(timezone.utc).isoformat(timespec="seconds")


@dataclass(frozen=True)
class Listed:
    """The runs of a list, with their figures from the store."""

    runs: Sequence[RunSummary]
    figures: Mapping[str, Headline]  # by run
    series: Mapping[str, tuple[Series, Points]]  # by host, of its newest run of the list with a figure


@click.command("list", short_help="List recorded runs, newest first")
@click.argument("host", required=False, callback=options.named)
@click.option("--host", "hosts", metavar="HOST", multiple=True, help="Only runs of this host; may be repeated.")
@click.option("--failed", is_flag=True, help="Only runs whose exit code was not 0.")
@click.option(
    "--since",
    metavar="WHEN",
    callback=since,
    help="Only runs that began since then: 12h, 7d or 2w ago, or a moment in UTC such as 2026-11-01.",
)
@click.option("--batch", metavar="BATCH", help="Only runs of one command on several hosts: its batch id, or `last`.")
@click.option("--limit", type=click.IntRange(1, 10**9), default=20, show_default=True, help="How many runs to list.")
@as_output(options.output)
@options.store
def list_runs(
    host: str | None,
    hosts: tuple[str, ...],
    failed: bool,
    since: str | None,
    batch: str | None,
    limit: int,
    output: Output,
    store: str | None,
) -> None:
    """List recorded runs, newest first, with the figures that people look for first.

    HOST is a name that you gave to the command of a run; the runs of all names of that host are listed. FP16 and BF16
    are TFLOPS, GB/s is the GPU's memory, STREAMS are streams of 30 frames per second. TREND shows the newest figures of
    the host, oldest first.
    """
    from gpuprep.workflows import storeofruns

    with storeofruns.existing(store) as opened:
        runs = opened.runs(host, limit, hosts=hosts, since=since or "", failed=failed, batch=batch)
        listed = _listed(opened, runs)
    if output.as_json:
        output.write(_document(listed))
        return
    if not runs and not output.quiet:
        asked = [*hosts, *([host] if host else [])]
        narrowed = " like that" if failed or since or batch else ""
        named = f"no runs{narrowed} of {', '.join(map(one_line, asked))} are recorded"
        click.echo(named if asked else f"no runs{narrowed} are recorded{'' if narrowed else ' yet'}", err=True)
    if runs:
        output.write(table(listed, output.color, output.verbose, output.columns))


def _listed(store: Store, summaries: Sequence[RunSummary]) -> Listed:
    figures = store.headlines([run.run_id for run in summaries])
    series: dict[str, tuple[Series, Points]] = {}
    for run in summaries:
        known = figures.get(run.run_id)
        if known is not None and known.leading is not None and run.host not in series:
            series[run.host] = (known.leading, store.recent(run.host, known.leading))
    return Listed(summaries, figures, series)


def table(listed: Listed, color: bool, verbose: bool, columns: int | None = None) -> str:
    """The list as text, without empty columns; on a narrow terminal also without columns of LEFT_OUT."""
    rows = fitting_columns(_rows(listed), None if verbose else columns, OPTIONAL, "HOST")
    if not verbose:
        return "\n".join(table_lines(rows, color=color, columns=columns))
    head, *lines = table_lines(rows, color=color)
    shown = [head]
    for run, line in zip(listed.runs, lines, strict=True):
        batch = f"batch {run.batch_id}" if run.batch_id else ""
        more = "; ".join(filter(None, [one_line(run.summary), batch]))
        shown += [line, f"    {more}"] if more else [line]
    return "\n".join(shown)


def _rows(listed: Listed) -> list[tuple[str, ...]]:
    from gpuprep.records import ended
    from gpuprep.records.moments import moment, seconds_between
    from gpuprep.reports import history as pages

    rows: list[tuple[str, ...]] = [
        ("RUN", "TIME (UTC)", "HOST", "COMMAND", "TOOK", "RESULT", "FP16", "BF16", "GB/s", "STREAMS", "TREND", "")
    ]
    drawn: set[str] = set()
    for run in listed.runs:
        began = moment(run.started_at)
        known, trend = listed.figures.get(run.run_id), ""
        if known is not None and run.host not in drawn and run.host in listed.series:
            drawn.add(run.host)
            trend = pages.sparkline([value for _, value in listed.series[run.host][1]])
        rows.append(
            (
                run.run_id,
                f"{began:%Y-%m-%d %H:%M}" if began else run.started_at,
                run.host,
                run.command,
                _took(seconds_between(run.started_at, run.ended_at)),
                ended.word(run.verdict, run.exit_code),
                _figure(known.fp16_tflops if known else None),
                _figure(known.bf16_tflops if known else None),
                _figure(known.memory_gb_per_s if known else None),
                _streams(known),
                trend,
                "simulated" if run.source.value == "simulated" else "",
            )
        )
    return rows


def _took(seconds: float | None) -> str:
    """ "0:41", "12:05", "1:02:05" """
    if seconds is None:
        return ""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def _figure(value: float | None) -> str:
    return "" if value is None else f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def _streams(known: Headline | None) -> str:
    """ "20 transcode": whole streams, and of which kind."""
    if known is None or known.video_fps is None:
        return ""
    from gpuprep.checks.judges.throughput.capacity import STREAM_FPS

    return f"{int(known.video_fps // STREAM_FPS)} {known.video.partition(' ')[0]}"


def run_line(run: RunSummary) -> documents.RunLine:
    """A run of the store as JSON lists show it."""
    from gpuprep.records import ended
    from gpuprep.reports import documents

    word = ended.word(run.verdict, run.exit_code)
    judged = run.verdict is not None and word == run.verdict.value  # else the summary is of an error
    return documents.RunLine(
        run_id=run.run_id,
        batch_id=run.batch_id,
        command=run.command,
        host=run.host,
        started_at=run.started_at,
        ended_at=run.ended_at,
        source=run.source,
        exit_code=run.exit_code,
        profile=documents.ProfileName(run.profile) if run.profile else None,
        verdict=documents.VerdictLine(run.verdict, run.summary if judged else "") if run.verdict else None,
        result=word,
        error=None if judged else run.summary or None,
        failed=run.failed,
    )


def _document(listed: Listed) -> str:
    from gpuprep.reports import documents

    lines = []
    for run in listed.runs:
        known = listed.figures.get(run.run_id)
        figures = None
        if known is not None:
            figures = documents.HeadFigures(
                known.fp16_tflops, known.bf16_tflops, known.memory_gb_per_s, known.video_fps, known.video
            )
        lines.append(documents.ListedRun(**vars(run_line(run)), figures=figures))
    series = tuple(
        documents.HostSeries(
            host, of.gpu_uuid, of.probe, of.versions, of.figure, tuple(documents.Point(*point) for point in points)
        )
        for host, (of, points) in listed.series.items()
    )
    return documents.document(documents.History(tuple(lines), series))


STATUSES = {"DOWN": "FAIL", "STEADY": "PASS", "UNKNOWN": "UNKNOWN"}


@click.group(cls=DefaultGroup, default="list")
def history() -> None:
    """List recorded runs, newest first.

    `gpuprep history [HOST]` means `gpuprep history list [HOST]`.
    """


history.add_command(list_runs)


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
        output.write("\n".join([head, *table_lines(rows, color=output.color, columns=output.columns), *notes]))
    elif not output.quiet:
        click.echo(f"no figures of {host} are recorded: drift with --probe quick and validate measure some", err=True)
    return code


HOW = {"joined": "joined by you", "apart": "set apart by you", "": "by SSH host key and hardware"}


@history.command("names", short_help="List the names of hosts, and which are one host")
@as_output(options.output)
@options.store
def names(output: Output, store: str | None) -> None:
    """List the names of hosts, and which of them are one host.

    Names of one host have one history. gpuprep joins two names if both answered with SSH host keys of one machine, and
    machine id and hardware, or a GPU, are the same.
    """
    from gpuprep.workflows import storeofruns

    with storeofruns.existing(store) as opened:
        known_names = opened.names()
    if output.as_json:
        from gpuprep.reports import documents

        listed = [
            documents.NameLine(
                known.name,
                known.host,
                tuple(sorted(known.identity.gpus)),
                known.identity.proven,
                known.seen_at,
                known.by_hand,
            )
            for known in known_names
        ]
        output.write(documents.document(documents.Names(tuple(listed))))
        return
    if not known_names:
        if not output.quiet:
            click.echo("no host was identified yet", err=True)
        return
    together = {known.host for known in known_names if known.name != known.host}
    rows = [("NAME", "HOST", "GPUS", "SEEN", "")]
    rows += [
        (known.name, known.host, str(len(known.identity.gpus)), known.seen_at[:10],
         HOW.get(known.by_hand, "") if known.by_hand or known.host in together else "")
        for known in known_names
    ]  # fmt: skip
    output.write("\n".join(table_lines(rows, columns=output.columns)))


@history.command("join", short_help="Say that two names are one host")
@click.argument("name", callback=options.named)
@click.argument("other", metavar="NAME", callback=options.named)
@as_output(options.output)
@options.store
def join(name: str, other: str, output: Output, store: str | None) -> None:
    """Say that two names are one host: from now on they have one history, certified run and baseline."""
    from gpuprep.errors import UsageError
    from gpuprep.records.ids import now
    from gpuprep.workflows import storeofruns

    with storeofruns.existing(store) as opened:
        storeofruns.check_known(opened, name, other)
        if name == other:
            raise UsageError("a name cannot be joined with itself", "give two names")
        joined_names = opened.join(name, other, now())
    if output.as_json:
        from gpuprep.reports import documents

        output.write(documents.document(documents.Joined(name, tuple(joined_names))))
    else:
        output.confirm(f"one host from now on: {', '.join(map(one_line, joined_names))}")


@history.command("part", short_help="Say that a name is a host of its own")
@click.argument("name", callback=options.named)
@as_output(options.output)
@options.store
def part(name: str, output: Output, store: str | None) -> None:
    """Say that a name is a host of its own. It is not joined with another again, unless you do it with `join`."""
    from gpuprep.records.ids import now
    from gpuprep.workflows import storeofruns

    with storeofruns.existing(store) as opened:
        storeofruns.check_known(opened, name)
        others = opened.set_apart(name, now())
    if output.as_json:
        from gpuprep.reports import documents

        output.write(documents.document(documents.Parted(name, tuple(others))))
    else:
        was = f"; it was joined with {', '.join(map(one_line, others))}" if others else ""
        output.confirm(f"{one_line(name)} is a host of its own{was}")


@history.command("prune", short_help="Delete old runs that nothing refers to")
@click.option(
    "--keep-days",
    type=DAYS,
    help="Keep all runs of this many days.  [default: keep_days of config.yml]",
)
@click.option(
    "--keep-last",
    type=click.IntRange(min=0),
    default=KEEP_LAST,
    show_default=True,
    help="Keep this many runs of each host, however old.",
)
@click.option("--dry-run", is_flag=True, help="Show what would be deleted, and delete nothing.")
@as_output(options.output)
@options.store
def prune(keep_days: int | None, keep_last: int, dry_run: bool, output: Output, store: str | None) -> None:
    """Delete old runs that nothing refers to. With keep_days in config.yml each command on a host does that at its end.

    Deletes each run with its findings, its measurements and its log folder on this machine. Always keeps the certified
    run of a host, the runs of its baseline and its last drift check.
    """
    from gpuprep import settings
    from gpuprep.errors import UsageError
    from gpuprep.workflows import storeofruns

    keep_days = keep_days or settings.load().keep_days
    if keep_days is None:
        raise UsageError(
            "how many days are to be kept?", "say it with --keep-days, or for good with `gpuprep history keep 365`"
        )
    with storeofruns.existing(store) as opened:
        pruned = storeofruns.prune(opened, keep_days, keep_last, dry=dry_run)
    if output.as_json:
        from gpuprep.reports import documents

        output.write(
            documents.document(documents.Pruned(pruned.before, dry_run, tuple(pruned.run_ids), pruned.folders))
        )
        return
    lines = list(pruned.run_ids) if output.verbose else []
    would = "would be deleted" if dry_run else "deleted"
    lines.append(
        f"{len(pruned.run_ids)} runs from before {pruned.before[:10]} {would}, and {pruned.folders} log folders"
    )
    output.confirm("\n".join(lines))


@history.command("keep", short_help="Show or set after how many days old runs are deleted by themselves")
@click.argument("days", required=False, type=DAYS)
@as_output(options.output)
@options.store
def keep(days: int | None, output: Output, store: str | None) -> None:
    """Show or set after how many days old runs are deleted by themselves. DAYS is written as keep_days into config.yml.

    From then on each command that runs on hosts deletes at its end the older runs of these hosts, as `history prune`
    does. Without DAYS nothing is changed. Until keep_days is set, nothing is deleted by itself.
    """
    from gpuprep import settings
    from gpuprep.workflows import storeofruns

    with storeofruns.existing(store) as opened:
        if days is not None:
            settings.set_keep_days(days)
        kept = settings.load().keep_days
        age = storeofruns.age(opened, kept or YEAR, KEEP_LAST)
    if output.as_json:
        from gpuprep.reports import documents

        output.write(
            documents.document(
                documents.Keep(kept, str(settings.file()), age.before, age.runs, age.older, age.deletable)
            )
        )
        return
    where = one_line(str(settings.file()))
    lines = [
        f"keep_days: {kept}, in {where}"
        if kept
        else f"keep_days is not in {where}: no run is deleted by itself; `gpuprep history keep 365` sets it",
        f"{age.older} of {age.runs} runs are older than {kept or YEAR} days (before {age.before[:10]}),"
        f" {age.deletable} of them can be deleted",
    ]
    if kept and age.deletable:
        lines.append("each command on a host deletes those of this host at its end; `gpuprep history prune` all, now")
    (output.confirm if days else output.write)("\n".join(lines))


@history.command("forget", short_help="Delete all that is stored of a host")
@click.argument("host", callback=options.named)
@click.option("--yes", is_flag=True, help="Also of a host with a certified run.")
@as_output(options.output)
@options.store
def forget(host: str, yes: bool, output: Output, store: str | None) -> None:
    """Delete all that is stored of a host, for good: a mistyped name, or a machine that was given back.

    Deletes its runs with their log folders on this machine, its baseline and its certified run. Other names of the same
    host stay. The machine itself is not contacted; a nightly check there goes on.
    """
    from gpuprep.errors import UsageError
    from gpuprep.paths import state_dir
    from gpuprep.store.retention import log_folders, remove
    from gpuprep.untrusted.plaintext import command, one_line
    from gpuprep.workflows import storeofruns

    with storeofruns.existing(store) as opened:
        storeofruns.check_known(opened, host)
        run_id = opened.host_baseline(host).run_id
        if run_id and opened.host_of(run_id) == host and not yes:
            advice = f"to delete it for good: `{command('gpuprep', 'history', 'forget', '--yes', about=host)}`"
            raise UsageError(f"{one_line(host)} has a certified run, {run_id}", advice)
        removed = opened.forget(host)
    folders = log_folders(state_dir() / "runs", removed)
    remove(folders)
    if output.as_json:
        from gpuprep.reports import documents

        output.write(documents.document(documents.Forgotten(host, tuple(removed), len(folders))))
        return
    output.confirm(f"{one_line(host)} is forgotten: {len(removed)} runs deleted, and {len(folders)} log folders")


@history.command("export", short_help="Write runs to stdout or a file, oldest first")
@click.argument("host", required=False, callback=options.named)
@click.option(
    "--format",
    "style",
    type=click.Choice(["jsonl", "csv"]),
    default="jsonl",
    show_default=True,
    help="jsonl: the whole record of each run, one per line. csv: rows of a table, see --what.",
)
@click.option(
    "--what",
    type=click.Choice(["runs", "findings", "measurements"]),
    help="With csv: which table. Default: runs.",
)
@click.option(
    "--output",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write to FILE instead of stdout.",
)
@options.store
def export(host: str | None, style: str, what: str | None, output: Path | None, store: str | None) -> None:
    """Write runs to stdout or a file, oldest first, of one host or of all hosts.

    A large store needs no more memory than a small store.
    """
    from gpuprep.errors import UsageError
    from gpuprep.workflows import storeofruns

    if style == "jsonl" and what is not None:
        raise UsageError("--what goes with --format csv: jsonl is whole records", "add --format csv, or drop --what")
    check_output(output)
    with storeofruns.existing(store) as opened:
        if host is not None:
            storeofruns.check_known(opened, host)
        if style == "jsonl":
            _write((f"{_strict(record)}\n" for record in opened.export_records(host)), output)
        else:
            from gpuprep.reports.csv import lines

            _write(lines(opened.export_rows(what or "runs", host)), output)


def _strict(record: str) -> str:
    """The record as strict JSON: an older gpuprep may have stored NaN and Infinity, which JSON does not have."""
    if "NaN" not in record and "Infinity" not in record:
        return record
    import json

    from gpuprep.records.showable import strict_json

    return strict_json(json.loads(record))


def _write(pieces: Iterable[str], output: Path | None) -> None:
    """Write to stdout, or to a file that appears only when it is complete."""
    import sys

    if output is None:
        try:
            sys.stdout.writelines(pieces)
            sys.stdout.flush()
        except BrokenPipeError:  # `| head`
            drop_stdout()
        return
    plain = output.is_file() or not output.exists()  # a pipe or a terminal cannot be replaced
    part = output.with_name(f".{output.name}.part") if plain else output
    try:
        with open_output(part) as file:
            file.writelines(piece.encode() for piece in pieces)
        if plain:
            part.replace(output)
    except OSError as error:
        raise unwritable(output, error) from error
    finally:
        if plain:
            part.unlink(missing_ok=True)
