"""Hosts, runs and findings by a few letters; what does not pass now, each check once; one check over some nights."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from datetime import date
from typing import Any
from urllib.parse import urlencode

from gpuprep.dashboard import charts
from gpuprep.dashboard.board import Board, Host, beginning, last_nights
from gpuprep.dashboard.pages.common import (
    MOST_CAUSES,
    MOST_LETTERS,
    NAMED,
    NotFound,
    Page,
    Query,
    banner,
    cause_row,
    cut,
    fleet_banner,
    host_path,
    run_document,
    run_path,
    run_row,
)
from gpuprep.dashboard.speeds import NIGHTS
from gpuprep.performance import trend
from gpuprep.records import Finding, Status
from gpuprep.records.findings import PROBLEMS, in_order, weight
from gpuprep.reports import causes, drifted
from gpuprep.reports.causes import Group
from gpuprep.untrusted.plaintext import one_line

# ---------------------------------------------------------------- search


FOUND = 20  # of each kind
FEWEST_LETTERS = 2


def search(board: Board, query: Query) -> Page:
    asked = query.text("q")
    matches: dict[str, Any] = {"hosts": [], "runs": [], "findings": []}
    if len(asked) >= FEWEST_LETTERS:
        words = asked.casefold().split()
        hosts = board.fleet().hosts
        matches["hosts"] = [host for host in hosts if _has(words, *_texts(host))]
        matches["runs"] = board.store.beginning_with(asked, FOUND)
        matches["findings"] = causes_of(hosts, lambda finding: _has(words, *_said(finding)))
    variables = {
        "asked": asked,
        "few": bool(asked) and len(asked) < FEWEST_LETTERS,
        "hosts": [{"host": host, "path": host_path(host.name)} for host in matches["hosts"][:FOUND]],
        "more_hosts": len(matches["hosts"]) - FOUND,
        "all_hosts": f"/fleet?{urlencode({'name': asked})}",
        "runs": [run_row(run) for run in matches["runs"]],
        "findings": [cause_row(group, hosts) for group, hosts in matches["findings"][:FOUND]],
        "more_findings": len(matches["findings"]) - FOUND,
        "nothing": bool(asked) and not any(matches.values()),
        "banner": fleet_banner(board),
    }
    document = {
        "q": asked,
        "hosts": [host.name for host in matches["hosts"][:FOUND]],
        "runs": [run_document(run) for run in matches["runs"]],
        "findings": list(
            dict.fromkeys(finding.key for group, _ in matches["findings"][:FOUND] for finding in group.findings)
        ),
    }
    return Page("search.html", variables, document)


def _has(words: Sequence[str], *texts: str) -> bool:
    """Whether each of the words is in one of the texts."""
    whole = "\n".join(texts).casefold()
    return all(word in whole for word in words)


def _texts(host: Host) -> tuple[str, ...]:
    return (host.name, *host.others, host.gpu, host.driver, host.kernel, host.system, host.record.run_id, host.what)


def _said(finding: Finding) -> tuple[str, ...]:
    """All texts on the page about the finding."""
    return (
        finding.status.value, finding.key, drifted.words(finding.key), finding.expected, finding.actual,
        finding.reason, finding.remedy,
    )  # fmt: skip


# ---------------------------------------------------------------- findings


def findings(board: Board, query: Query) -> Page:
    now = board.fleet()
    groups = causes_of(now.hosts)
    rows = cut(groups, query)
    silent = [host for host in now.hosts if not host.problems and host.word != Status.PASS.value]
    shown = [cause_row(group, hosts, hosts[0].record if len(hosts) == 1 else None) for group, hosts in rows.rows]
    variables = {
        "cut": rows,
        "unjudged": [{"name": host.name, "path": host_path(host.name)} for host in silent[:NAMED]],
        "more": len(silent) - NAMED,
        "count": len(silent),
        "rows": shown,
        "most": MOST_CAUSES,
        "hosts": sum(bool(host.problems) for host in now.hosts),
        "every": len(now.hosts),
        "banner": banner(sum(host.simulated for host in now.hosts), len(now.hosts)),
    }
    document = {
        "findings": [
            {
                "status": row["word"],
                "key": row["keys"][0],
                "keys": row["keys"],
                "hosts": list(dict.fromkeys(host.name for host in hosts)),
                "actual": group.first.actual,
                "reason": group.first.reason,
            }
            for row, (group, hosts) in zip(shown, rows.rows, strict=True)
        ],
        "page": rows.number,
        "pages": rows.pages,
    }
    return Page("findings.html", variables, document)


def causes_of(
    hosts: Iterable[Host], wanted: Callable[[Finding], bool] = lambda _: True
) -> list[tuple[Group, list[Host]]]:
    """Each cause once with the hosts that have it: the gravest first, of one weight what most hosts have."""
    of: dict[int, Host] = {}
    every: list[Finding] = []
    for host in hosts:
        listed = [finding for finding in host.problems if wanted(finding)]
        of.update((id(finding), host) for finding in listed)
        every += listed
    groups = [
        (group, list({of[id(finding)].name: of[id(finding)] for finding in group.findings}.values()))
        for group in causes.of_hosts(in_order(every, PROBLEMS))
    ]

    def place(each: tuple[Group, list[Host]]) -> tuple[int, int, int]:
        first = each[0].first
        return PROBLEMS.index(first.status), weight(first.subject, first.role), -len(each[1])

    return sorted(groups, key=place)


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
