"""What does not pass now, each check once; and one check over the last nights."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from datetime import date
from typing import Any
from urllib.parse import quote, urlencode

from gpuprep.dashboard import charts
from gpuprep.dashboard.board import Board, beginning, last_nights
from gpuprep.dashboard.digest import Host
from gpuprep.dashboard.pages.common import MOST_LETTERS, NotFound, Page, Query, banner, cut, host_path, run_path
from gpuprep.dashboard.speeds import NIGHTS
from gpuprep.performance import trend
from gpuprep.records import Finding, Status
from gpuprep.records.findings import PROBLEMS
from gpuprep.records.moments import moment
from gpuprep.reports import drifted
from gpuprep.untrusted.plaintext import one_line

NAMED = 5  # hosts that a finding names


def findings(board: Board, query: Query) -> Page:
    now = board.fleet()
    by_finding: dict[tuple[str, str], list[tuple[Host, Finding]]] = defaultdict(list)
    for host in now.hosts:
        for problem in host.problems:
            by_finding[problem.status.value, problem.key].append((host, problem))
    order = {status.value: place for place, status in enumerate(PROBLEMS)}
    groups = sorted(by_finding.items(), key=lambda each: (order[each[0][0]], -len(each[1]), each[0][1]))
    rows = cut(groups, query)
    silent = [host for host in now.hosts if not host.problems and host.word != Status.PASS.value]
    variables = {
        "cut": rows,
        "unjudged": [{"name": host.name, "path": host_path(host.name)} for host in silent[:NAMED]],
        "more": len(silent) - NAMED,
        "count": len(silent),
        "rows": [_finding_row(word, key, listed) for (word, key), listed in rows.rows],
        "hosts": sum(bool(host.problems) for host in now.hosts),
        "every": len(now.hosts),
        "banner": banner(sum(host.simulated for host in now.hosts), len(now.hosts)),
    }
    document = {
        "findings": [
            {"status": word, "key": key, "hosts": [host.name for host, _ in listed], "actual": listed[0][1].actual}
            for (word, key), listed in rows.rows
        ],
        "page": rows.number,
        "pages": rows.pages,
    }
    return Page("findings.html", variables, document)


def _finding_row(word: str, key: str, listed: Sequence[tuple[Host, Finding]]) -> dict[str, Any]:
    values = Counter(problem.actual for _, problem in listed)
    moments = [read for _, problem in listed if (read := moment(problem.since)) is not None]
    first = listed[0][1]
    return {
        "word": word,
        "name": drifted.words(key),
        "count": len(listed),
        "said": values.most_common(3),
        "kinds": len(values),
        "expected": first.expected,
        "reason": first.reason,
        "remedy": first.remedy,
        "since": f"{min(moments):%Y-%m-%d}" if moments else "–",
        "hosts": [{"name": host.name, "path": host_path(host.name)} for host, _ in listed[:NAMED]],
        "more": len(listed) - NAMED,
        "all": f"/fleet?{urlencode({'finding': key})}",
        "path": f"/findings/{quote(key, safe='')}",
    }


def finding(board: Board, key: str, query: Query) -> Page:
    """One check over the last nights, on all hosts."""
    subject, _, name = key.partition(".")
    days = last_nights()
    by_night: dict[date, dict[str, str]] = defaultdict(dict)
    runs = board.store.with_problem(subject, name, beginning(days[0]))
    for host, started_at, status in sorted(runs, key=lambda run: run[1]):
        day = trend.night(started_at)
        if day is not None:
            by_night[day][host] = status
    counted = [(str(day), dict(Counter(by_night[day].values()))) for day in days]
    now = [host for host in board.fleet().hosts if any(problem.key == key for problem in host.problems)]
    if not now and not runs:
        raise NotFound(
            f"no check {one_line(key, MOST_LETTERS)} failed in the last {NIGHTS} nights", "/findings has all"
        )
    example = next((problem for host in now for problem in host.problems if problem.key == key), None)
    description = f"On how many hosts {drifted.words(key)} did not pass, by night"
    rows = cut(now, query)
    variables = {
        "name": drifted.words(key),
        "chart": charts.both(charts.stacked, counted, description),
        "any": bool(runs),
        "legend": [word for word in charts.STACK if word != "PASS"],
        "example": example,
        "cut": rows,
        "rows": [
            {
                "host": host,
                "path": host_path(host.name),
                "run": run_path(host.record.run_id),
                "since": drifted.since(finding, host.record.started_at),
                "one": finding,
            }
            for host in rows.rows
            for finding in host.problems
            if finding.key == key
        ],
        "nights": NIGHTS,
        "banner": banner(sum(host.simulated for host in now), len(now)) if now else "",
    }
    document = {
        "key": key,
        "nights": [{"night": day, "counts": counts} for day, counts in counted],
        "hosts": [host.name for host in now],
    }
    return Page("finding.html", variables, document)
