"""gpuprep history list: the newest runs as rows, with their headline figures."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING

import click

from gpuprep.cli import options, tables
from gpuprep.cli.output import Output, as_output
from gpuprep.untrusted.plaintext import one_line

if TYPE_CHECKING:
    from gpuprep.store import RunSummary, Store
    from gpuprep.store.measurements import Headline, Series

    Points = Sequence[tuple[str, float]]

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
    rows = tables.fitting(_rows(listed), None if verbose else columns, OPTIONAL, "HOST")
    if not verbose:
        return "\n".join(tables.lines(rows, color=color, columns=columns))
    head, *lines = tables.lines(rows, color=color)
    table_lines = [head]
    for run, line in zip(listed.runs, lines, strict=True):
        batch = f"batch {run.batch_id}" if run.batch_id else ""
        more = "; ".join(filter(None, [one_line(run.summary), batch]))
        table_lines += [line, f"    {more}"] if more else [line]
    return "\n".join(table_lines)


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


def _document(listed: Listed) -> str:
    from gpuprep.records import ended
    from gpuprep.reports import documents

    lines = []
    for run in listed.runs:
        known = listed.figures.get(run.run_id)
        figures = None
        if known is not None:
            figures = documents.HeadFigures(
                known.fp16_tflops, known.bf16_tflops, known.memory_gb_per_s, known.video_fps, known.video
            )
        word = ended.word(run.verdict, run.exit_code)
        judged = run.verdict is not None and word == run.verdict.value  # else the summary is of an error
        verdict = documents.VerdictLine(run.verdict, run.summary if judged else "") if run.verdict else None
        lines.append(
            documents.ListedRun(
                run_id=run.run_id,
                batch_id=run.batch_id,
                command=run.command,
                host=run.host,
                started_at=run.started_at,
                ended_at=run.ended_at,
                source=run.source,
                exit_code=run.exit_code,
                profile=documents.ProfileName(run.profile) if run.profile else None,
                verdict=verdict,
                result=word,
                error=None if judged else run.summary or None,
                failed=run.failed,
                figures=figures,
            )
        )
    series = tuple(
        documents.HostSeries(
            host, of.gpu_uuid, of.probe, of.versions, of.figure, tuple(documents.Point(*point) for point in points)
        )
        for host, (of, points) in listed.series.items()
    )
    return documents.document(documents.History(tuple(lines), series))
