"""Pages of all hosts: a row a host, the worst first; how each of the last nights ended; which hosts get slower."""

from __future__ import annotations

from collections import Counter
from datetime import date, timedelta
from typing import Any

from gpuprep.dashboard import charts
from gpuprep.dashboard.board import Board, Host
from gpuprep.dashboard.pages.common import (
    A_PAGE,
    NotFound,
    Page,
    Query,
    banner,
    cut,
    falling_row,
    fleet_banner,
    host_document,
    host_path,
    run_document,
    run_path,
    run_row,
    word_of,
)
from gpuprep.dashboard.speeds import NIGHTS, Falling, Headline, Speeds
from gpuprep.performance.trend import FEWEST_NIGHTS, Direction
from gpuprep.records import ended
from gpuprep.records.ended import ABOUT_HOSTS
from gpuprep.records.moments import minute
from gpuprep.reports.fleet import COUNTED
from gpuprep.reports.readings import figure
from gpuprep.untrusted.plaintext import one_line

# ---------------------------------------------------------------- from night to night


def trends(board: Board, query: Query) -> Page:
    now = board.fleet()
    read = [(host, speeds) for host in now.hosts if (speeds := board.speeds(host)) is not None]
    counts = Counter(speeds.direction.value for _, speeds in read)
    # A host that gets slower does so in all figures: its worst figure represents them.
    worst = [(host, max(speeds.falling, key=_loss), len(speeds.falling)) for host, speeds in read if speeds.falling]
    falling = sorted(worst, key=lambda each: -_loss(each[1]))
    rows = cut(falling, query)
    few = sorted((speeds.nights, host.name) for host, speeds in read if speeds.direction is Direction.UNKNOWN)
    variables = {
        "cut": rows,
        "rows": [
            {**falling_row(row), "host": host, "path": host_path(host.name), "more": count - 1}
            for host, row, count in rows.rows
        ],
        "counts": [(word.value, counts[word.value]) for word in (Direction.DOWN, Direction.STEADY, Direction.UNKNOWN)],
        "read": len(read),
        "every": len(now.hosts),
        "to_read": board.to_read,
        "few": [{"name": name, "nights": count, "path": host_path(name)} for count, name in reversed(few)][:A_PAGE],
        "few_count": len(few),
        "fewest": FEWEST_NIGHTS,
        "nights": NIGHTS,
        "banner": banner(sum(speeds.simulated for _, speeds in read), len(read)) if read else "",
    }
    document = {
        "counts": dict(counts),
        "read": len(read),
        "hosts": len(now.hosts),
        "trends": [{"host": host.name, **vars(row.trend)} for host, row, _ in rows.rows],
        "page": rows.number,
        "pages": rows.pages,
    }
    return Page("trends.html", variables, document)


def _loss(falling: Falling) -> float:
    return falling.trend.loss_percent or 0.0


def nights(board: Board) -> Page:
    now = board.nights()
    counted = [(str(day), counts) for day, counts in now.counted]
    description = f"How the hosts of each of the last {NIGHTS} nights ended"
    variables = {
        "chart": charts.both(charts.stacked, counted, description),
        "any": any(sum(counts.values()) for _, counts in counted),
        "rows": [
            {"day": day, "counts": counts, "total": sum(counts.values()), "path": f"/nights/{day}"}
            for day, counts in reversed(counted)
        ],
        "words": tuple(reversed(charts.STACK)),
        "legend": charts.STACK,
        "read_at": now.read_at,
        "banner": fleet_banner(board),
    }
    document = {"nights": [{"night": day, "counts": counts} for day, counts in counted], "read_at": now.read_at}
    return Page("nights.html", variables, document)


def night(board: Board, day: str, query: Query) -> Page:
    try:
        wanted = date.fromisoformat(day)
        after = wanted + timedelta(days=1)
    except (ValueError, OverflowError) as error:
        raise NotFound(f"{one_line(day, 40)} is no day", "write it as 2026-11-22") from error
    runs = board.store.between(f"{wanted}T12:00:00+00:00", f"{after}T12:00:00+00:00")
    judged = [run for run in runs if run.command in ABOUT_HOSTS]
    word = query.text("verdict")
    words = Counter(map(word_of, judged))
    chosen = [run for run in judged if not word or word_of(run) == word]
    chosen.sort(key=lambda run: (ended.place(word_of(run)), run.host, run.started_at))
    rows = cut(chosen, query)
    listed = [run_row(run) for run in board.store.whole([run.run_id for run in rows.rows])]
    variables = {
        "day": str(wanted),
        "after": str(after),
        "before_path": f"/nights/{wanted - timedelta(days=1)}" if wanted > date(1, 1, 2) else "",
        "after_path": f"/nights/{after}",
        "words": sorted(words.items(), key=lambda one: ended.place(one[0])),
        "links": {each: query.link(verdict=each, page="") for each in words},
        "wanted": word,
        "cut": rows,
        "rows": listed,
        "total": len(judged),
        "banner": fleet_banner(board),
    }
    document = {"night": str(wanted), "runs": [run_document(row["run"]) for row in listed],
                "page": rows.number, "pages": rows.pages, "total": rows.total, "counts": dict(words)}  # fmt: skip
    return Page("night.html", variables, document)


# ---------------------------------------------------------------- all hosts


SORTS = ("worst", "name", "checked", "speed")


def fleet(board: Board, query: Query) -> Page:
    now = board.fleet()
    chosen, finding = query.text("name").casefold(), query.text("finding")
    wanted = {name: query.text(name) for name in ("verdict", "gpu", "driver")}
    hosts = [
        host
        for host in now.hosts
        if (not wanted["verdict"] or host.word == wanted["verdict"])
        and (not wanted["gpu"] or host.gpu == wanted["gpu"])
        and (not wanted["driver"] or host.driver == wanted["driver"])
        and (not chosen or any(chosen in name.casefold() for name in (host.name, *host.others)))
        and (not finding or any(problem.key == finding for problem in host.problems))
    ]
    sort = query.choice("sort", SORTS)
    speeds = {host.name: board.speeds(host) for host in hosts}
    if sort == "name":
        hosts.sort(key=lambda host: host.name)
    elif sort == "checked":
        hosts.sort(key=lambda host: host.record.started_at)
    elif sort == "speed":
        hosts.sort(key=lambda host: _headline_value(speeds[host.name]))
    rows = cut(hosts, query)
    words = Counter(host.word for host in now.hosts)
    shown = [*COUNTED, *sorted(words.keys() - set(COUNTED))]
    stand_ins = sum(host.simulated for host in now.hosts)
    variables = {
        "cut": rows,
        "rows": [_fleet_row(host, speeds[host.name]) for host in rows.rows],
        "tiles": [{"word": word, "count": words[word], "link": query.link(verdict=word, page="")} for word in shown],
        "wanted": {**wanted, "name": query.text("name"), "finding": finding, "sort": sort},
        "verdicts": shown,
        "gpus": sorted({host.gpu for host in now.hosts if host.gpu}),
        "drivers": sorted({host.driver for host in now.hosts if host.driver}),
        "sorts": {name: query.link(sort=name, page="") for name in SORTS},
        "every": len(now.hosts),
        "filtered": any(wanted.values()) or bool(chosen or finding),
        "to_read": board.to_read,
        "read_at": now.read_at,
        "stand_ins": stand_ins,
        "banner": banner(stand_ins, len(now.hosts)),
    }
    document = {
        "hosts": [host_document(host, speeds[host.name]) for host in rows.rows],
        "page": rows.number,
        "pages": rows.pages,
        "total": rows.total,
        "counts": dict(words),
        "read_at": now.read_at,
    }
    return Page("fleet.html", variables, document)


def _headline_value(speeds: Speeds | None) -> float:
    return speeds.headlines[0].newest if speeds and speeds.headlines else float("inf")


def _fleet_row(host: Host, speeds: Speeds | None) -> dict[str, Any]:
    headline = speeds.headlines[0] if speeds and speeds.headlines else None
    return {
        "host": host,
        "path": host_path(host.name),
        "run": run_path(host.record.run_id),
        "checked": minute(host.record.started_at).removesuffix(" UTC"),
        "headline": headline,
        "speed": f"{figure(headline.newest)} {headline.unit}" if headline else "",
        "spark": _spark(headline) if headline and len(headline.nights) > 1 else "",
        "falls": speeds is not None and speeds.direction is Direction.DOWN,
    }


def _spark(headline: Headline) -> Any:
    first, last = headline.nights[0], headline.nights[-1]
    return charts.spark(
        headline.nights, f"{headline.label}: {figure(first[1])} on {first[0]}, {figure(last[1])} on {last[0]}"
    )
