"""The fleet: a row a host, the worst first."""

from __future__ import annotations

from collections import Counter
from typing import Any

from gpuprep.dashboard import charts
from gpuprep.dashboard.board import Board
from gpuprep.dashboard.digest import Host
from gpuprep.dashboard.pages.common import Page, Query, banner, cut, host_document, host_path, run_path
from gpuprep.dashboard.speeds import Headline, Speeds
from gpuprep.performance.trend import Direction
from gpuprep.records.moments import minute
from gpuprep.reports.fleet import COUNTED
from gpuprep.reports.readings import figure

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
