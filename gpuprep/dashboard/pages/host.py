"""One host: how it is, how fast it was, and what did not pass over time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from gpuprep.dashboard import charts
from gpuprep.dashboard.board import Board, Host
from gpuprep.dashboard.pages.common import (
    MOST_LETTERS,
    NotFound,
    Page,
    Query,
    cause_row,
    cut,
    falling_row,
    host_document,
    run_document,
    run_path,
    run_row,
    word_of,
)
from gpuprep.dashboard.pages.findings import causes_of
from gpuprep.dashboard.speeds import Headline
from gpuprep.performance.trend import FEWEST_NIGHTS
from gpuprep.records import Status
from gpuprep.records.ended import ABOUT_HOSTS
from gpuprep.records.findings import GRAVEST_FIRST
from gpuprep.records.moments import minute
from gpuprep.reports import drifted
from gpuprep.reports.readings import figure
from gpuprep.store.overview import Run
from gpuprep.untrusted.plaintext import one_line

MOST_SHOWN = 3  # causes, and figures that fall, that are read at once; the others are in a fold
STRIP = 60  # runs of a host's strip
OVER_TIME = 30  # checks in a row of findings over time


def host(board: Board, name: str, query: Query) -> Page:
    store = board.store
    before = query.text("before")
    names = store.names_of(name)
    runs = store.of_names(names, before, STRIP)
    if not runs and not before:
        raise NotFound(f"no runs of {one_line(name, MOST_LETTERS)} are recorded", "/search looks for names")
    latest = board.fleet().named(name)
    certified = store.host_baseline(name)
    speeds = board.speeds_now(name if latest is None else latest.name)
    figures = {
        (key.gpu_uuid, of): baseline.value for key, named in certified.figures.items() for of, baseline in named.items()
    }
    checks = [run for run in runs if run.command in ABOUT_HOSTS and run.verdict][:OVER_TIME]
    shown = cut(runs, query)
    variables = {
        "name": name,
        "others": names[1:],
        "host": latest,
        "word": latest.word if latest else "",
        "problems": [cause_row(group, (), latest.record, latest.record.started_at) for group, _ in causes_of([latest])]
        if latest
        else [],
        "most": MOST_SHOWN,
        "last": _run_row_of(latest) if latest else None,
        "certified": certified,
        "certified_path": run_path(certified.run_id) if certified.run_id else "",
        "strip": [_cell(run) for run in reversed(runs) if run.command in ABOUT_HOSTS],
        "speeds": speeds,
        "fewest": FEWEST_NIGHTS,
        "headlines": [
            _over_time(headline, figures.get((headline.gpu_uuid, headline.figure))) for headline in speeds.headlines
        ],
        "falling": [falling_row(trend) for trend in speeds.falling],
        "over_time": _findings_over_time(board, checks),
        "checks": len(checks),
        "cut": shown,
        "rows": [run_row(run) for run in shown.rows],
        "older": query.link(before=runs[-1].started_at, page="") if len(runs) == STRIP else "",
        "before": before,
        "listed": bool(before or query.text("page")),
        "banner": "SIMULATED: no figure here is of a real GPU" if latest and latest.simulated else "",
    }
    document = {
        "host": name,
        "also_called": names[1:],
        "newest": host_document(latest, speeds) if latest else None,
        "certified": {"run_id": certified.run_id, "started_at": certified.run_at, "reason": certified.reason},
        "trend": speeds.direction,
        "nights": speeds.nights,
        "falling": [trend.trend for trend in speeds.falling],
        "runs": [run_document(run) for run in runs],
    }
    return Page("host.html", variables, document)


def _cell(run: Run) -> dict[str, str]:
    word = word_of(run)
    return {"word": word, "path": run_path(run.run_id), "told": f"{run.started_at[:10]} {run.command}: {word}"}


def _over_time(headline: Headline, certified: float | None) -> dict[str, Any]:
    nights = f"{headline.nights[0][0]} to {headline.nights[-1][0]}"
    description = f"{headline.label} of {nights}, newest {figure(headline.newest)} {headline.unit}"
    more = f", certified with {figure(certified)}" if certified else ""
    drawn = charts.both(charts.over_time, headline.nights, headline.unit, certified, description + more)
    return {
        **drawn,
        "one": headline,
        "value": figure(headline.newest),
        "certified": figure(certified) if certified else "",
    }


def _findings_over_time(board: Board, checks: Sequence[Run]) -> list[dict[str, Any]]:
    """A row a check that did not pass in one of these runs: those that still do not pass first, then the newest."""
    runs = list(reversed(checks))
    place = {run.run_id: number for number, run in enumerate(runs)}
    statuses: dict[str, list[str]] = defaultdict(lambda: [""] * len(runs))
    actual: dict[str, tuple[int, str]] = {}
    for finding in board.store.problems(list(place)):
        key = f"{finding.subject}.{finding.property}"
        statuses[key][place[finding.run_id]] = finding.status.value
        actual[key] = max(actual.get(key, (-1, "")), (place[finding.run_id], finding.actual))
    rows = []
    for key, words in statuses.items():
        last = max(number for number, word in enumerate(words) if word)
        first = next(number for number in range(last, -1, -1) if not number or not words[number - 1])
        still = last == len(runs) - 1
        failed = sum(map(bool, words))
        rows.append(
            {
                "name": drifted.words(key),
                "word": words[last],
                "still": still,
                "told": f"{failed} of {len(runs)}",
                "actual": actual[key][1],
                "since": runs[first].started_at[:10] if first else f"{runs[0].started_at[:10]} or earlier",
                "until": "" if still else runs[last].started_at[:10],
                "drawn": charts.checks(words, f"{drifted.words(key)}: did not pass in {failed} of {len(runs)} checks"),
                "order": (not still, GRAVEST_FIRST.index(Status(words[last])), -last, key),
            }
        )
    return sorted(rows, key=lambda row: row["order"])


def _run_row_of(latest: Host) -> dict[str, Any]:
    record = latest.record
    summary = record.verdict.summary if record.verdict else (record.error or "").partition("\n")[0]
    return {"path": run_path(record.run_id), "when": minute(record.started_at), "summary": summary, "record": record}
